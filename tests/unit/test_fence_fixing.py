"""What `--fix` repairs, and what it keeps its hands off."""

import os
import stat
from pathlib import Path

import pytest

from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.fence import fix_classes, inspect_paths
from tests.support.fence import found_in, rules_of
from tests.support.stub_benches import (
    CASE,
    CASES,
    NAME,
    appended,
    copy_stub,
    digested,
    in_place_of,
    link,
    removed,
    replaced,
    sparse,
    write_manifest,
    written,
)

ANSWER = f"cases/{CASE}/expected/answer.txt"
DIGESTS = "cases/digests.yaml"
GONE = f"gone: blake3:{'0' * 64}\n"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    return copy_stub(tmp_path / "bench")


def fixed(bench: Path) -> tuple[str, ...]:
    return fix_classes(inspect_paths([bench]).classes)


def content(bench: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(bench)): path.read_bytes() for path in sorted(bench.rglob("*")) if path.is_file()
    }


def test_stale_missing_and_extra_digests_are_written_and_the_bench_loads(bench: Path) -> None:
    appended(ANSWER, "\n")(bench)
    appended(DIGESTS, GONE)(bench)
    lines = (bench / DIGESTS).read_text(encoding="utf-8").splitlines(keepends=True)
    written(DIGESTS, "# by hand\n" + "".join(line for line in reversed(lines) if CASES[1] not in line))(bench)
    assert rules_of(found_in(bench)) == ["F062", "F063", "F061"]

    said = fixed(bench)

    assert found_in(bench) == ()
    assert [line.split(": ")[1] for line in said] == [CASE, CASES[1], "gone"]
    assert "no entry is now" in said[1]
    assert said[2].endswith("is now no entry")
    after = (bench / DIGESTS).read_bytes()
    write_manifest(bench)
    assert (bench / DIGESTS).read_bytes() == after
    assert load_cases(load_task_class(NAME, bench_root=bench.parent), lambda _: True)[1] == 3


def test_a_missing_list_of_digests_is_written(bench: Path) -> None:
    before = content(bench)
    removed(DIGESTS)(bench)

    assert len(fixed(bench)) == 3
    assert content(bench) == before


@pytest.mark.parametrize(
    "wrong",
    [
        appended(f"cases/{CASE}/case.toml", "weight = 2\n"),
        appended(ANSWER, "\N{RIGHT-TO-LEFT OVERRIDE}"),
        link(f"cases/{CASE}/input/x", "/etc/passwd"),
        written(f"cases/{CASE}/notes.txt", "x"),
        written(f"cases/{CASE}/input/.gitattributes", "* -diff"),
        removed(f"cases/{CASE}/case.toml"),
        lambda bench: (bench / f"cases/{CASE}/case.toml").chmod(0o755),
    ],
    ids=["its head", "its text", "a link", "a stray file", "attributes", "no head", "an executable head"],
)
def test_a_case_that_is_wrong_in_another_way_keeps_its_digest(wrong: object, bench: Path) -> None:
    before = (bench / DIGESTS).read_bytes()
    assert callable(wrong)
    wrong(bench)

    assert fixed(bench) == ()
    assert (bench / DIGESTS).read_bytes() == before

    appended(DIGESTS, GONE)(bench)
    assert len(fixed(bench)) == 1
    assert (bench / DIGESTS).read_bytes() == before


def test_executable_bits_go_and_others_stay(bench: Path) -> None:
    sparse(0)(bench / "rubric_lib/deep/x.py")
    digested(lambda bench: (bench / ANSWER).chmod(0o755))(bench)
    for name, bits in {"rubric.py": 0o755, "rubric_lib/deep/x.py": 0o711, DIGESTS: 0o775}.items():
        (bench / name).chmod(bits)
    before = content(bench)

    assert len(fixed(bench)) == 3
    modes = [
        stat.S_IMODE((bench / name).stat().st_mode) for name in ("rubric.py", "rubric_lib/deep/x.py", DIGESTS)
    ]
    assert modes == [0o644, 0o600, 0o664]
    assert stat.S_IMODE((bench / ANSWER).stat().st_mode) == 0o755
    assert content(bench) == before
    assert found_in(bench) == ()


def test_a_list_that_cannot_be_read_is_left_to_a_human(bench: Path) -> None:
    replaced(DIGESTS, "blake3:", "sha256:")(bench)
    before = content(bench)

    assert fixed(bench) == ()
    assert content(bench) == before


@pytest.mark.parametrize("name", [DIGESTS, "rubric.py"])
def test_what_became_a_link_after_the_look_is_not_written_through(
    name: str, bench: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine\n", encoding="utf-8")
    outside.chmod(0o755)
    (bench / "rubric.py").chmod(0o755)
    appended(ANSWER, "\n")(bench)
    report = inspect_paths([bench])
    in_place_of(name, lambda path: path.symlink_to(outside))(bench)

    if name == "rubric.py":
        with pytest.raises(HarnessFailure):
            fix_classes(report.classes)
    else:
        fix_classes(report.classes)
        assert not (bench / name).is_symlink()

    assert outside.read_text(encoding="utf-8") == "mine\n"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


def test_a_directory_that_became_a_link_after_the_look_is_not_entered(bench: Path, tmp_path: Path) -> None:
    appended(ANSWER, "\n")(bench)
    report = inspect_paths([bench])
    (bench / "cases").rename(tmp_path / "elsewhere")
    (bench / "cases").symlink_to(tmp_path / "elsewhere")
    before = content(tmp_path / "elsewhere")

    with pytest.raises(HarnessFailure, match="not fixed"):
        fix_classes(report.classes)

    assert content(tmp_path / "elsewhere") == before
    assert os.listdir(bench) != []
