"""The change of an output: computed for every kind of file, bounded, and never the agent's own words."""

import time
from pathlib import Path
from shutil import which
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.limits import LIMITS
from codegenie.eval.log.diff import change_of

INPUT = {"a.txt": b"one\ntwo\n", "b.bin": b"\xff\x00", "dos.txt": b"one\r\ntwo\r\n"}

FILES: dict[str, tuple[object, list[str]]] = {
    "the same": ({"a.txt": "one\ntwo\n"}, ["a.txt: as in the input"]),
    "one line": (
        {"a.txt": "one\n2\n"},
        ["--- a/a.txt", "+++ b/a.txt", "@@ -1,2 +1,2 @@", " one", "-two", "+2"],
    ),
    "deleted": (
        {"a.txt": None},
        ["--- a/a.txt", "+++ /dev/null", "@@ -1,2 +0,0 @@", "-one", "-two"],
    ),
    "emptied": ({"a.txt": ""}, ["--- a/a.txt", "+++ b/a.txt", "@@ -1,2 +0,0 @@", "-one", "-two"]),
    "new": ({"c.txt": "x\n"}, ["--- /dev/null", "+++ b/c.txt", "@@ -0,0 +1 @@", "+x"]),
    "new and empty": ({"c.txt": ""}, ["--- /dev/null", "+++ b/c.txt"]),
    "nothing deleted": ({"c.txt": None}, ["c.txt: deleted, and the input has no such file"]),
    "no text before": (
        {"b.bin": "x"},
        ["b.bin: 2 bytes that are not UTF-8 text are replaced by a text of 1 characters"],
    ),
    "no text deleted": ({"b.bin": None}, ["b.bin: 2 bytes that are not UTF-8 text are deleted"]),
    "no text after": ({"a.txt": 3}, ["a.txt: its new content is a int and not text"]),
    "other line ends": (
        {"dos.txt": "one\ntwo\r\n"},
        ["--- a/dos.txt", "+++ b/dos.txt", "@@ -1,2 +1,2 @@", "-one\r", "+one", " two\r"],
    ),
    "none": ({}, ["the output names no files, so nothing is changed"]),
    "no mapping": (["a.txt"], ["the output names no files, so nothing is changed"]),
}


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_change_is_told(kind: str) -> None:
    files, lines = FILES[kind]

    assert list(change_of({"files": files, "diff": "a lie"}, INPUT).computed or ()) == lines


def test_what_has_no_input_to_compare_with_says_why_and_names_the_files() -> None:
    change = change_of({"files": {f"{n:02}": "x" for n in range(12)}}, "the case is not here")

    assert change.computed is None
    assert change.not_computed is not None
    assert change.not_computed.startswith("the case is not here; the output names 00 (text), 01 (text)")
    assert change.not_computed.endswith("09 (text) and 2 more")


@pytest.mark.parametrize("claim", [3, ["a"], {"x": 1}, "--- a\n+++ b\n"])
def test_what_an_agent_calls_its_diff_changes_nothing(claim: object) -> None:
    assert change_of({"diff": claim, "files": {"a.txt": None}}, INPUT) == change_of(
        {"files": {"a.txt": None}}, INPUT
    )


def test_a_small_change_of_a_large_file_is_found_and_a_large_one_is_bounded() -> None:
    lines = [f"line {n}\n" for n in range(200_000)]
    before = {"large.txt": "".join(lines).encode()}
    small = change_of({"files": {"large.txt": "".join([*lines[:99_999], "x\n", *lines[100_000:]])}}, before)
    large = change_of({"files": {"large.txt": "".join(reversed(lines))}}, before)

    assert small.computed is not None
    assert small.computed[2] == "@@ -99997,7 +99997,7 @@"
    assert small.computed[6:8] == ("-line 99999", "+x")
    assert large.computed is not None
    assert large.computed[2:] == ("@@ -1,200000 +1,200000 @@ too much to compare",)


def test_many_files_share_one_cap() -> None:
    half = "".join(f"{n % 150}\n" for n in range(LIMITS.compared_lines // 3))
    files = {f"{name}.txt": half[::-1] + name for name in "abcdef"}
    started = time.monotonic()
    change = change_of({"files": files}, dict.fromkeys(files, half.encode()))

    assert sum("too much to compare" in line for line in change.computed or ()) == 5
    assert time.monotonic() - started < 60


texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=30).map("".join)


@given(texts, texts, st.sampled_from(["", "end"]))
def test_what_is_shown_is_a_patch_from_one_to_the_other(old: str, new: str, end: str) -> None:
    shown = change_of({"files": {"f": new + end}}, {"f": old.encode()}).computed or ()

    assert _patched(old, shown) == new + end


def _patched(old: str, shown: tuple[str, ...]) -> str:
    if not shown[0].startswith("---"):
        return old
    lines, result, at = old.splitlines(keepends=True), [], 0
    for line in shown[2:]:
        if line.startswith("@@"):
            first, _, length = line.split()[1][1:].partition(",")
            begin = int(first) - (length != "0")
            result += lines[at:begin]
            at = begin
        elif line.startswith("\\"):
            result[-1] = result[-1].removesuffix("\n")
        elif line[0] in " -":
            assert lines[at] == line[1:] + "\n"
            result += [lines[at]] if line[0] == " " else []
            at += 1
        else:
            result.append(line[1:] + "\n")
    return "".join([*result, *lines[at:]])


def test_patch_takes_what_is_shown(tmp_path: Path) -> None:
    program = which("patch") or which("git")
    assert program
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(50)))
    shown = change_of(
        {"files": {"f": "".join(f"{n}\n" for n in range(50) if n not in (3, 30)) + "end"}},
        {"f": (tmp_path / "f").read_bytes()},
    )
    (tmp_path / "p").write_text("\n".join(shown.computed or ()) + "\n")
    apply = ["apply", "p"] if program.endswith("git") else ["-p1", "-i", "p"]
    done = run([program, *apply], cwd=tmp_path, capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").read_text().endswith("49\nend")
