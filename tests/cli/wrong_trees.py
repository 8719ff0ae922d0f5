"""Wrong trees of files in a case, and wrong directories around it."""

import os
import socket
from pathlib import Path

from tests.cli.refusals import Refusal, bad_case, bench_invalid
from tests.support.stub_benches import (
    CASE,
    Edit,
    case_of,
    digested,
    in_place_of,
    in_turn,
    link,
    removed,
    sparse,
    written,
)

ANSWER = f"cases/{CASE}/expected/answer.txt"
INPUT = f"cases/{CASE}/input"
DEEP = "input/" + "d/" * 20


def _named(name: str | bytes) -> Edit:
    """Make a file of this name beside the expected answer."""
    return lambda bench: Path(
        os.fsdecode(os.fsencode(case_of(bench) / "expected") + b"/" + os.fsencode(name))
    ).touch()


def _socket(path: Path) -> None:
    # Bound by a short relative name: the whole path may be too long for an address.
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.fchdir(here)
    os.close(here)


def _deep_file(bench: Path) -> None:
    (case_of(bench) / DEEP).mkdir(parents=True)
    (case_of(bench) / DEEP / "file").touch()


def _long_path(bench: Path) -> None:
    folder = case_of(bench) / "input" / "/".join(["n" * 200] * 6)
    folder.mkdir(parents=True)
    (folder / "file").touch()


def _many_large_files(bench: Path) -> None:
    for number in range(5):
        sparse(32 << 20)(case_of(bench) / "input" / f"{number}.bin")


def _case_named(name: str) -> Edit:
    return lambda bench: case_of(bench).rename(bench / "cases" / name)


TREES = [
    bad_case("with a link to a file", link(f"{INPUT}/x", "/etc/passwd"), "input/x: is a symbolic link"),
    bad_case("with a link to its answer", link(f"{INPUT}/x", "../expected/answer.txt"), "symbolic link"),
    bad_case("with a link to a directory", link(f"{INPUT}/x", "/"), "input/x: is a symbolic link"),
    bad_case("with a link to itself", link(f"{INPUT}/x", "x"), "input/x: is a symbolic link"),
    bad_case("with a link to nothing", link(f"{INPUT}/x", "gone"), "input/x: is a symbolic link"),
    bad_case(
        "whose input is a link",
        in_place_of(INPUT, lambda path: path.symlink_to("expected")),
        "input: is a symbolic link",
    ),
    bad_case(
        "with a second name for its answer",
        lambda bench: os.link(bench / ANSWER, bench.parent / "second"),
        "expected/answer.txt: has more than one hard link",
    ),
    bad_case("with a pipe", lambda bench: os.mkfifo(case_of(bench) / "input/pipe"), "input/pipe: is neither"),
    bad_case("with a socket", lambda bench: _socket(case_of(bench) / "input/s"), "input/s: is neither"),
    bad_case("with a name in Cyrillic", _named("\u0430.txt"), r"'\u0430.txt': is not a plain ASCII name"),
    bad_case("with a name that is no text", _named(b"\xff"), r"'\udcff': is not a plain ASCII name"),
    bad_case("with an escape in a name", _named("\x1b[2J"), r"'\x1b[2J': is not a plain ASCII name"),
    bad_case("with a line end in a name", _named("a\nb"), r"'a\nb': is not a plain ASCII name"),
    bad_case("with a backslash in a name", _named("a\\b"), "is not a plain ASCII name"),
    bad_case("with a space at the end of a name", _named("a "), "is not a plain ASCII name"),
    bad_case("20 directories deep", _deep_file, "is more than 16 directories deep"),
    bad_case("with a path of 1,200 characters", _long_path, "more than 1024 characters"),
    bad_case(
        "of a tebibyte",
        lambda bench: sparse(1 << 40)(case_of(bench) / "input/big"),
        "is larger than 33554432",
    ),
    bad_case("of many large files", _many_large_files, "larger than 134217728 bytes"),
    bad_case(
        "with a file beside its parts",
        lambda bench: (case_of(bench) / "x").touch(),
        "x: is not part of a case",
    ),
    bad_case(
        "with a directory beside its parts",
        lambda bench: sparse(0)(case_of(bench) / ".git/HEAD"),
        ".git/HEAD",
    ),
    bad_case("whose input is a file", in_place_of(INPUT, lambda path: path.touch()), "input: is not part"),
]

DIRECTORIES = [
    bad_case("id in capitals", _case_named("Adds_up"), "'Adds_up' is not a case id"),
    bad_case("id with a dot", _case_named("adds.up"), "'adds.up' is not a case id"),
    bad_case("id that starts with a dash", _case_named("-adds"), "'-adds' is not a case id"),
    bad_case("id of 65 characters", _case_named("a" * 65), "is not a case id"),
    bad_case("id with an escape", _case_named("a\x1b[2J"), r"'a\x1b[2J' is not a case id"),
    bad_case("id that is hidden", _case_named(".adds_up"), "'.adds_up' is not a case id"),
    bench_invalid("a file among the cases", lambda bench: (bench / "cases/x").touch(), "'x' lies among"),
    bench_invalid("a link among the cases", link("cases/x", CASE), "'x' lies among the cases"),
    Refusal(
        "a case that lost its entry's name",
        _case_named("moved"),
        "DigestManifestInvalid",
        "case 'moved' has no",
    ),
    bench_invalid("a bench without a case", in_place_of("cases", lambda path: path.mkdir()), "has no case"),
    bench_invalid(
        "a bench whose cases are a link",
        in_place_of("cases", lambda path: path.symlink_to("/")),
        "'cases' (other)",
    ),
    bench_invalid("a bench with a cache", lambda bench: (bench / "__pycache__").mkdir(), "'__pycache__'"),
    bench_invalid("a bench with a module that shadows json", written("json.py", ""), "'json.py' (file)"),
    bench_invalid("a bench with an escape in a name", written("\x1b[2J", ""), r"'\x1b[2J' (file)"),
    bench_invalid(
        "a bench of 300 files",
        in_turn(*(written(str(number), "") for number in range(300))),
        "holds more than 256 entries",
    ),
    bench_invalid("a bench without a rubric", removed("rubric.py"), "has no rubric.py"),
    bench_invalid(
        "a rubric that is a link",
        in_place_of("rubric.py", lambda path: path.symlink_to("/etc/passwd")),
        "'rubric.py' (other)",
    ),
    bench_invalid("a rubric of a tebibyte", in_place_of("rubric.py", sparse(1 << 40)), "is larger than"),
    bench_invalid(
        "a rubric with a second name",
        lambda bench: os.link(bench / "rubric.py", bench.parent / "second"),
        "rubric.py: has more than one hard link",
    ),
    bench_invalid("a rubric_lib that is a link", link("rubric_lib", "/etc"), "'rubric_lib' (other)"),
    bench_invalid("a rubric_lib that is a file", written("rubric_lib", ""), "'rubric_lib' (file)"),
    bench_invalid(
        "a rubric_lib with a link",
        in_turn(lambda bench: (bench / "rubric_lib").mkdir(), link("rubric_lib/x.py", "/etc/passwd")),
        "x.py: is a symbolic link",
    ),
    bench_invalid(
        "a rubric_lib with compiled code",
        lambda bench: sparse(9)(bench / "rubric_lib/__pycache__/x.pyc"),
        "is compiled code",
    ),
    bench_invalid(
        "a rubric_lib of 65 files",
        lambda bench: [sparse(0)(bench / f"rubric_lib/{n}.py") for n in range(65)],
        "holds more than 64 entries",
    ),
    bench_invalid(
        "a README that is a directory",
        in_place_of("README.md", lambda path: path.mkdir()),
        "'README.md' (directory)",
    ),
    bench_invalid(
        "a task class that is a link",
        in_turn(lambda bench: bench.rename(bench.parent / "real"), link(".", "real")),
        "is a symbolic link",
    ),
]


BENIGN: dict[str, Edit] = {
    "a case with plain names": digested(
        _named("-a+b=c,d@e f.txt"),
        _named("[id].tsx"),
        lambda bench: sparse(7)(case_of(bench) / "input/a/b/.c"),
    ),
    "a case with an empty directory": lambda bench: (case_of(bench) / "notes").mkdir(),
    "a rubric in several files": lambda bench: sparse(0)(bench / "rubric_lib/deeper/x.py"),
    "a bench without a README": removed("README.md"),
}
