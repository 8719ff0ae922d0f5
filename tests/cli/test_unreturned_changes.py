"""An agent that works on the files of its copy and returns none of them is told so, wherever one looks."""

import json

import pytest

from codegenie.eval.evidence import UNRETURNED, UNRETURNED_WORDS
from tests.support.benches import TASK_CLASS
from tests.support.working_directory import Desk, Said

HEAD = "import os, sys\nfrom pathlib import Path\n\n\ndef solve(case):\n    here = Path(case.input_dir)\n"
EDIT = "(here / 'question.txt').write_text('what?')\n"
ADD = "(here / 'new.txt').write_text('new')\n"


def measured(desk: Desk, *body: str, flags: tuple[str, ...] = ()) -> Said:
    """Measure an agent that does this, line by line."""
    source = HEAD + "".join(f"    {line.strip()}\n" for line in body)
    (desk.directory / "worker.py").write_text(source, encoding="utf-8")
    return desk.ask("run", TASK_CLASS, "--sut", "python:worker:solve", "-q", *flags)


NOTHING = {
    "an empty object": "return {}",
    "empty parts": "return {'files': {}, 'diff': '', 'exit_code': 0, 'stdout_tail': None}",
    "words, and no files": "return {'summary': 'all done'}",
}


@pytest.mark.parametrize("how", NOTHING)
def test_it_is_told_at_the_end_of_the_run_in_the_record_and_of_the_case(fresh_desk: Desk, how: str) -> None:
    said = measured(fresh_desk, EDIT, ADD, "(here / 'x').symlink_to('/')", NOTHING[how])
    again = measured(fresh_desk, EDIT, NOTHING[how], flags=("--json",))
    case = fresh_desk.ask("show", "latest", "case-00").out
    change = fresh_desk.ask("show", "latest", "case-01", "--diff").out

    assert said.code == 0
    assert f"note: case-00, case-01: {UNRETURNED_WORDS}" in said.out
    assert f"case-00, case-01: {UNRETURNED_WORDS}" in again.document["notes"]
    assert f"  not returned     {UNRETURNED_WORDS}\n" in case
    assert UNRETURNED in case
    assert change.endswith(f"--- case-01#0 {UNRETURNED_WORDS}\nquestion.txt\n")


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("return None", "NothingReturned: returned None"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("os._exit(0)", "ended"),
    ],
)
def test_a_failure_for_want_of_a_result_tells_it_too(fresh_desk: Desk, end: str, kind: str) -> None:
    said = measured(fresh_desk, EDIT, end)
    case = fresh_desk.ask("show", "latest", "case-00").out

    assert f"sut.exception: {kind}" in case
    assert "files of its copy were changed and none was returned" in case
    assert f"note: case-00, case-01: {UNRETURNED_WORDS}" in said.out


QUIET = {
    "files are returned": (EDIT, "return {'files': {'question.txt': 'what?'}}"),
    "nothing was changed": ("return {}",),
    "the same was written": (
        "(here / 'question.txt').write_text(f'what is {case.case_id}?' + chr(10))",
        "return {}",
    ),
    "a tool left a file beside an answer": (ADD, "return {'answer': f'it is {case.case_id}'}"),
    "an exception": (EDIT, "raise ValueError('no')"),
    "an exit with a number": (EDIT, "sys.exit(3)"),
}


@pytest.mark.parametrize("how", QUIET)
def test_others_are_not_told(fresh_desk: Desk, how: str) -> None:
    said = measured(fresh_desk, *QUIET[how])

    assert said.code == 0, said.err
    assert "of its copy" not in said.out + fresh_desk.ask("show", "latest", "case-00").out


def test_a_new_file_and_nothing_else_is_told(fresh_desk: Desk) -> None:
    assert UNRETURNED_WORDS in measured(fresh_desk, ADD, "return {}").out


@pytest.mark.parametrize(
    "deed",
    [
        "os.unlink(here / 'question.txt')",
        "os.rename(here, here.with_name('moved'))",
        "import shutil; shutil.rmtree(here); here.symlink_to('/etc')",
        "os.unlink(here / 'question.txt'); os.mkfifo(here / 'question.txt')",
        "os.truncate(here / 'question.txt', 1 << 40)",
    ],
)
def test_whatever_it_made_of_its_copy_is_a_change_and_no_more(fresh_desk: Desk, deed: str) -> None:
    said = measured(fresh_desk, deed, "return {}")

    assert said.code == 0, said.err
    assert UNRETURNED_WORDS in said.out


def test_a_run_that_reuses_the_output_tells_it_again(fresh_desk: Desk) -> None:
    flags = ("--sut-version", "1", "--tiers", "no-policy.yaml")
    first = measured(fresh_desk, EDIT, "return {}", flags=flags)
    again = measured(fresh_desk, EDIT, "return {}", flags=flags)

    assert "from the store" in again.out
    assert UNRETURNED_WORDS in first.out
    assert UNRETURNED_WORDS in again.out
    assert fresh_desk.ask("verify").code == 0


def test_names_of_files_show_no_secret_and_steer_nothing(
    fresh_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "correct-horse-battery")
    measured(
        fresh_desk,
        "(here / 'correct-horse-battery').touch()",
        "(here / 'a\\x1b[2J\\nb').touch()",
        "return {}",
    )
    kept = [path.read_text() for path in (fresh_desk.log / "artifacts").rglob("*") if path.is_file()]

    assert any("[redacted]" in text for text in kept)
    assert not [text for text in kept if "correct-horse" in text or "\x1b" in text]
    assert json.loads(fresh_desk.ask("verify", "--json").out)["ok"]
