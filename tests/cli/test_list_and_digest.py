"""`codegenie eval list` and `codegenie eval digest`."""

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.cli import run_command_line
from tests.support.stub_benches import CASE, CASES, NAME, appended, case_of, copy_stub, in_place_of, removed

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = "dependency-pin  12 cases; minimum bronze 8; shipped with codegenie"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_stub(tmp_path / "bench")


def asked(capsys: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run_command_line(["eval", *arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def said(capsys: Capture, *arguments: str) -> tuple[int, list[str]]:
    code = run_command_line(["eval", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_classes_are_listed_with_their_cases_and_minimums(bench: Path, capsys: Capture) -> None:
    assert bench.is_dir()
    entry = {"name": NAME, "cases": 3, "tiers": {"bronze": 3}, "problem": None, "shipped": False}
    code, document = asked(capsys, "list")
    assert (code, document["schema"], document["task_classes"][-1]) == (0, "codegenie.eval.list/1", entry)
    assert said(capsys, "list") == (0, [SHIPPED, f"{NAME}  3 cases; minimum bronze 3"])


def test_a_class_that_does_not_load_is_listed_with_its_problem_beside_the_others(
    bench: Path, capsys: Capture
) -> None:
    broken = copy_stub(bench.parent, "a-broken-class")
    appended("registration.py", "import os\n")(broken)
    (bench.parent / "b\x1b[2Jad").mkdir()
    locked = copy_stub(bench.parent, "c-without-cases")
    in_place_of("cases", lambda path: path.touch())(locked)

    code, lines = said(capsys, "list")

    assert code == 0
    assert lines.pop(3) == SHIPPED
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("a-broken-class  RegistrationInvalid: holds a Import statement")
    assert lines[1].startswith("b\ufffd[2Jad  TaskClassNotFound")
    assert lines[2].startswith("c-without-cases  BenchInvalid")
    assert lines[3] == f"{NAME}  3 cases; minimum bronze 3"


def test_a_class_in_two_roots_is_listed_once_with_its_problem(bench: Path, capsys: Capture) -> None:
    copy_stub(bench.parents[1] / "more")
    code, lines = said(capsys, "list", "--bench-root", "bench", "--bench-root", "more")
    assert code == 0
    assert lines[0] == SHIPPED
    assert len(lines) == 2
    assert "TaskClassAlreadyRegistered" in lines[1]


def test_a_root_without_classes_is_no_error(tmp_path: Path, capsys: Capture) -> None:
    assert said(capsys, "list", "--bench-root", str(tmp_path)) == (0, [SHIPPED])


def test_what_python_left_among_the_classes_is_none(bench: Path, capsys: Capture) -> None:
    (bench.parent / "__pycache__").mkdir()
    assert said(capsys, "list") == (0, [SHIPPED, f"{NAME}  3 cases; minimum bronze 3"])


def test_a_root_that_was_named_and_is_not_there_is_refused_and_the_default_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "list") == (0, [SHIPPED])
    assert said(capsys, "digest", "dependency-pin") == (0, ["12 current"])
    for arguments in (["list"], ["digest", "dependency-pin"]):
        assert said(capsys, *arguments, "--bench-root", "gone") == (2, [])


def test_a_class_of_ones_own_wins_over_a_shipped_one_and_that_is_said(bench: Path, capsys: Capture) -> None:
    own = bench.parent / "dependency-pin"
    shutil.copytree(ROOT / "bench" / "dependency-pin", own)
    assert run_command_line(["eval", "digest", "dependency-pin"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "12 current\n"
    assert (
        captured.err
        == f"codegenie: {own} is used, and not the task class of the same name that codegenie ships\n"
    )
    assert said(capsys, "list")[1][0] == "dependency-pin  12 cases; minimum bronze 8"


def test_the_checkout_does_not_hide_its_own_benches(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(ROOT)
    assert run_command_line(["eval", "list"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("dependency-pin  12 cases; minimum bronze 8\n", "")


@pytest.mark.parametrize("content", ["", "\n", "# to be written\n", "---\n", "{}\n", "[] # none\n"])
def test_digests_are_written_over_a_list_without_an_entry(bench: Path, content: str, capsys: Capture) -> None:
    (bench / "cases/digests.yaml").write_text(content, encoding="utf-8")
    assert said(capsys, "digest", NAME)[0] == 2
    code, lines = said(capsys, "digest", NAME, "--write")
    assert (code, lines[-1]) == (0, "3 missing; cases/digests.yaml is written")
    assert said(capsys, "digest", NAME) == (0, ["3 current"])


@pytest.mark.parametrize("content", ["one two\n", "- a\n", "[1]\n"])
def test_a_list_that_cannot_be_read_is_not_written_over(bench: Path, content: str, capsys: Capture) -> None:
    (bench / "cases/digests.yaml").write_text(content, encoding="utf-8")
    assert said(capsys, "digest", NAME, "--write") == (2, [])
    assert (bench / "cases/digests.yaml").read_text(encoding="utf-8") == content


def test_current_digests_are_current(bench: Path, capsys: Capture) -> None:
    assert bench.is_dir()
    code, document = asked(capsys, "digest", NAME)
    cases = document["cases"]
    assert code == 0
    assert document["schema"] == "codegenie.eval.digest/1"
    assert document["written"] is False
    assert [entry["case_id"] for entry in cases] == list(CASES)
    assert all(entry["status"] == "current" and entry["expected"] == entry["computed"] for entry in cases)
    assert said(capsys, "digest", NAME) == (0, ["3 current"])


def test_a_stale_digest_is_exit_3_and_a_missing_or_extra_one_exit_2(bench: Path, capsys: Capture) -> None:
    appended("cases/digests.yaml", f"gone: blake3:{'0' * 64}\n")(bench)
    code, lines = said(capsys, "digest", NAME)
    assert (code, lines[:2]) == (2, ["extra    gone", "3 current, 1 extra"])
    removed("cases/off_by_one")(bench)
    code, lines = said(capsys, "digest", NAME)
    assert (code, lines[:2]) == (2, ["extra    gone", "extra    off_by_one"])
    appended(f"cases/{CASE}/case.toml", "# changed\n")(bench)
    code, lines = said(capsys, "digest", NAME)
    assert (code, lines[0]) == (3, f"stale    {CASE}")
    assert lines[-1] == "look at what changed; if the change is intended, run this again with --write"


def test_digests_are_written_and_then_current(bench: Path, capsys: Capture) -> None:
    (case_of(bench) / "input/more.txt").touch()
    removed("cases/digests.yaml")(bench)
    code, document = asked(capsys, "digest", NAME, "--write")
    assert (code, document["written"]) == (0, True)
    assert said(capsys, "digest", NAME) == (0, ["3 current"])
    appended(f"cases/{CASE}/case.toml", "# changed\n")(bench)
    code, lines = said(capsys, "digest", NAME, "--write")
    assert (code, lines[-1]) == (0, "2 current, 1 stale; cases/digests.yaml is written")
    assert said(capsys, "digest", NAME) == (0, ["3 current"])


def test_digests_that_cannot_be_written_are_the_harnesss_failure_and_the_old_ones_stay(
    bench: Path, capsys: Capture
) -> None:
    before = (bench / "cases/digests.yaml").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        code, document = asked(capsys, "digest", NAME, "--write")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 4
    assert document["error"]["type"] == "HarnessFailure"
    assert "cannot write the digests" in document["error"]["message"]
    assert (bench / "cases/digests.yaml").read_bytes() == before
    assert sorted(path.name for path in (bench / "cases").iterdir()) == [
        *CASES[:1],
        "digests.yaml",
        *CASES[1:],
    ]


def test_an_entry_cannot_steer_the_terminal(bench: Path, capsys: Capture) -> None:
    appended("cases/digests.yaml", f'"\\e[2J\\u202e": blake3:{"0" * 64}\n')(bench)
    code, lines = said(capsys, "digest", NAME)
    assert code == 2
    assert lines[0] == r"extra    \x1b[2J\u202e"
    assert all(line.isprintable() for line in lines)
