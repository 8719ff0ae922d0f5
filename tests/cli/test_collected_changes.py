"""An agent that works on the files of its copy and returns none of them is judged by what it changed."""

import json
import os
from base64 import b64decode
from pathlib import Path

import pytest
from blake3 import blake3

from tests.support.benches import TASK_CLASS
from tests.support.working_directory import Desk, Said

HEAD = "import os, sys\nfrom pathlib import Path\n\n\ndef solve(case):\n    here = Path(case.input_dir)\n"
EDIT = "(here / 'question.txt').write_text('what?')\n"
ADD = "(here / 'new.txt').write_text('new')\n"
# Passes if the question was replaced; what it was given comes back on stderr.
RUBRIC = """\
import json, sys
output = json.load(sys.stdin)["harness_output"]
files = output.get("files", {})
right = isinstance(files, dict) and files.get("question.txt") == "what?"
sys.stderr.write(json.dumps(output))
print(json.dumps({"passed": right, "score": float(right), "breakdown": {}, "failure_modes": []}))
"""
PATCH = [
    "diff --git a/question.txt b/question.txt",
    "--- a/question.txt",
    "+++ b/question.txt",
    "@@ -1 +1 @@",
    "-what is case-00?",
    "+what?",
    "\\ No newline at end of file",
]
COLLECTED = "  collected        what it changed in its files, by the harness; --diff shows it\n"


@pytest.fixture
def desk(fresh_desk: Desk) -> Desk:
    """Return a directory whose bench judges the files of an output."""
    (fresh_desk.directory / "bench" / TASK_CLASS / "rubric.py").write_text(RUBRIC, encoding="utf-8")
    return fresh_desk


def measured(desk: Desk, *body: str, flags: tuple[str, ...] = ()) -> Said:
    """Measure an agent that does this, line by line."""
    source = HEAD + "".join(f"    {line.strip()}\n" for line in body)
    (desk.directory / "worker.py").write_text(source, encoding="utf-8")
    return desk.ask("run", TASK_CLASS, "--sut", "python:worker:solve", "-q", "--json", *flags)


def passed(said: Said) -> int:
    count: int = said.document["report"]["passed_count"]
    return count


def judged(desk: Desk) -> dict[str, object]:
    """Return the output that the rubric got."""
    text = desk.ask("show", "latest", "case-00", "--rubric").out
    output: dict[str, object] = json.loads(text.split("rubric_stderr\n")[1])
    return output


RETURNED: dict[str, tuple[str, dict[str, object]]] = {
    "nothing": ("return None", {"exit_code": 0, "stdout_tail": ""}),
    "nothing, by an exit": ("sys.exit(0)", {"exit_code": 0, "stdout_tail": ""}),
    "nothing, by a sudden exit": (
        "print('bye', flush=True); os._exit(0)",
        {"exit_code": 0, "stdout_tail": "bye\n"},
    ),
    "an empty object": ("return {}", {}),
    "empty parts": ("return {'files': {}, 'diff': 'a lie', 'other': {'x': 1}}", {}),
    "words, and no files": ("return {'summary': 'all done'}", {"summary": "all done"}),
    "files that are no mapping of files": ("return {'files': None}", {}),
}


@pytest.mark.parametrize("how", RETURNED)
def test_what_it_changed_is_its_answer_whatever_it_said_beside(desk: Desk, how: str) -> None:
    end, words = RETURNED[how]
    said = measured(desk, EDIT, "os.symlink('/etc', here / 'x')", end)
    change = desk.ask("show", "latest", "case-00", "--diff")
    case = desk.ask("show", "latest", "case-00").out

    assert (said.code, passed(said)) == (0, 2)
    assert judged(desk) == {
        **words,
        "diff": "\n".join([*PATCH, ""]),
        "files": {"question.txt": "what?"},
        "other": {"x": {"kind": "symlink", "target": "/etc"}},
    }
    assert change.out.splitlines() == [
        "--- case-00#0 change, as the harness collected it",
        *PATCH,
        "--- case-00#0 what was collected",
        "1 files as text, 0 files that are gone, 1 other entries",
        "x: symlink (target /etc)",
    ]
    assert COLLECTED in case
    assert desk.ask("verify", "--rescore").code == 0


def test_a_new_file_beside_an_answer_is_collected_and_the_answer_stays(desk: Desk) -> None:
    measured(desk, ADD, "return {'answer': 42}")
    output = desk.ask("show", "latest", "case-00", "--output").out

    assert output.startswith(
        '--- case-00#0 output, with what the harness collected\n| {\n|   "answer": 42,\n'
    )
    assert judged(desk)["answer"] == 42
    assert judged(desk)["files"] == {"new.txt": "new"}


FAILED = {
    "raise ValueError('no')": "sut.exception: ValueError: no",
    "sys.exit(3)": "sut.exception: SystemExit: 3",
    "os.kill(os.getpid(), 9)": "sut.exception: signal:",
    "import time; time.sleep(600)": "sut.timeout: no result within 1 s",
    "return 7": "sut.exception: ",
}


@pytest.mark.parametrize("end", FAILED)
def test_the_work_of_an_agent_that_failed_is_kept_and_shown_and_scores_nothing(desk: Desk, end: str) -> None:
    flags = ("--timeout", "1") if "sleep" in end else ()
    said = measured(desk, EDIT, end, flags=flags)
    case = desk.ask("show", "latest", "case-00").out

    assert (said.code, passed(said)) == (0, 0)
    assert FAILED[end] in case
    assert "was not asked: the system under test left nothing to judge" in case
    assert desk.ask("show", "latest", "case-00", "--diff").out.splitlines()[1:8] == PATCH


OWN_WORD = {
    "files are returned": (EDIT, "return {'files': {'question.txt': 'what?'}}"),
    "nothing was changed": ("return {'answer': 1}",),
    "the same was written": (
        "(here / 'question.txt').write_text(f'what is {case.case_id}?' + chr(10))",
        "return {}",
    ),
    "something was written beside the copy": ("Path('notes.txt').write_text('x')", "return {}"),
}


@pytest.mark.parametrize("how", OWN_WORD)
def test_an_agent_that_changed_nothing_or_returned_files_is_taken_at_its_word(desk: Desk, how: str) -> None:
    said = measured(desk, *OWN_WORD[how])
    shown = desk.ask("show", "latest", "case-00").out
    change = desk.ask("show", "latest", "case-00", "--diff").out

    assert passed(said) == (2 if how == "files are returned" else 0)
    assert "collected" not in shown
    assert "--- case-00#0 change, computed from the input and the output\n" in change


def test_an_agent_that_returned_nothing_and_changed_nothing_has_failed(desk: Desk) -> None:
    measured(desk, "return None")

    assert "sut.exception: NothingReturned: returned None" in desk.ask("show", "latest", "case-00").out


GONE = {
    "os.unlink(here / 'question.txt')": {},
    "os.rename(here, here.with_name('moved'))": {},
    "import shutil; shutil.rmtree(here); here.symlink_to('/etc')": {},
    "os.unlink(here / 'question.txt'); os.mkfifo(here / 'question.txt')": {"question.txt": {"kind": "fifo"}},
    "os.truncate(here / 'question.txt', 1 << 40)": {"question.txt": {"kind": "too_large", "size": 1 << 40}},
}


@pytest.mark.parametrize("deed", GONE)
def test_whatever_it_made_of_its_copy_is_a_change_and_no_more(desk: Desk, deed: str) -> None:
    said = measured(desk, deed, "return {}")

    assert (said.code, passed(said)) == (0, 0)
    assert judged(desk)["files"] == {"question.txt": None}
    assert judged(desk)["other"] == GONE[deed]


def test_a_mode_that_changed_alone_is_a_change(desk: Desk) -> None:
    measured(desk, "(here / 'question.txt').chmod(0o755)", "return {}")
    change = desk.ask("show", "latest", "case-00", "--diff").out

    assert "old mode 100644\nnew mode 100755\n" in change
    assert judged(desk)["files"] == {"question.txt": "what is case-00?\n"}


def test_contents_that_are_no_text_are_kept_by_their_hash(desk: Desk) -> None:
    content = b"\x89PNG\0"
    measured(desk, f"(here / 'a.png').write_bytes({content!r})", "return {}")
    (trial,) = desk.ask("show", "latest", "case-00", "--json").document["trials"]
    digest = blake3(content).hexdigest()
    kept = artefact(desk, trial["artifacts"]["binaries"])

    assert judged(desk)["other"] == {"a.png": {"kind": "binary", "size": 5, "blake3": digest}}
    assert {name: b64decode(text) for name, text in json.loads(kept).items()} == {digest: content}


def artefact(desk: Desk, digest: str) -> bytes:
    return (desk.log / "artifacts" / digest[:2] / digest).read_bytes()


def test_a_run_that_reuses_the_output_shows_the_same_change(desk: Desk) -> None:
    flags = ("--sut-version", "1", "--tiers", "no-policy.yaml")
    body = (EDIT, "(here / 'b').write_bytes(bytes(3))", "return {}")
    first = measured(desk, *body, flags=flags)
    shown = desk.ask("show", "latest", "case-00", "--diff").out
    (kept,) = desk.ask("show", "latest", "case-00", "--json").document["trials"]
    again = measured(desk, *body, flags=flags)
    (reused,) = desk.ask("show", "latest", "case-00", "--json").document["trials"]

    assert (passed(first), passed(again), reused["reused"]) == (2, 2, "both")
    assert desk.ask("show", "latest", "case-00", "--diff").out == shown
    work = ("collected", "patch", "binaries", "output")
    assert {name: reused["artifacts"][name] for name in work} == {
        name: kept["artifacts"][name] for name in work
    }
    assert desk.ask("verify").code == 0


SECRET = "correct-horse-battery"
LEAKS = {
    "in a text": f"(here / 'new.txt').write_text('{SECRET}')",
    "in a name": f"(here / '{SECRET}').touch()",
    "in a link": f"(here / 'x').symlink_to('/{SECRET}')",
    "in what is no text": f"(here / 'x').write_bytes(b'\\0{SECRET}')",
    "in what was printed": f"(here / 'x').touch(); print('{SECRET}'); sys.exit(0)",
}


@pytest.mark.parametrize("where", LEAKS)
def test_a_secret_of_the_harness_is_written_nowhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    (desk.directory / "bench" / TASK_CLASS / "rubric.py").write_text(
        'print(\'{"passed": false, "score": 0.0, "breakdown": {}, "failure_modes": []}\')\n', encoding="utf-8"
    )
    measured(desk, LEAKS[where], "return {}")
    places = [
        file for place in (".codegenie", desk.log.name) for file in desk.directory.rglob(f"{place}/**/*")
    ]
    written = [file for file in places if file.is_file()]
    shown = desk.ask("show", "latest", "case-00", "--diff").out

    assert len(written) > 5
    assert not [file for file in written if holds(file, SECRET.encode())]
    assert "left no diff" not in shown
    assert SECRET not in shown


def holds(file: Path, secret: bytes) -> bool:
    content = file.read_bytes()
    if content.startswith(b'{"') and b'": "' in content:
        values = [value for value in json.loads(content).values() if isinstance(value, str)]
        content += b"".join(
            b64decode(value + "==") for value in values if len(value) % 4 == 0 and value.isascii()
        )
    return secret in content


def test_names_steer_nothing(desk: Desk) -> None:
    measured(desk, "(here / 'a\\x1b[2J\\nb').touch()", "(here / 'x').symlink_to('\\x1b[2J\\nb')", "return {}")
    change = desk.ask("show", "latest", "case-00", "--diff").out

    assert '"a\\033[2J\\nb": odd_name' in change
    assert "\x1b" not in change
    assert os.linesep + "b" not in change
