"""`show`: a failure understood in one command, and nothing in it that steers a terminal."""

import shutil
from typing import Any

import pytest

from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.models import SutIdentity
from codegenie.eval.suts.identity import identity_digest
from tests.support.benches import TASK_CLASS
from tests.support.logs import forge
from tests.support.working_directory import STEERING_CHARACTERS, UNITS, Desk

RUDE_RUBRIC = r"""
import json, sys
steering = "a\x1b[2J\x1b]0;title\x07b\x9b31mc\u202ed\u2066e\u200bf\x7fg\rh\u2028i"
print(steering, file=sys.stderr)
mode = {"code": "answer.wrong", "severity": "block", "detail": steering}
sys.stdout.write("\r\n\t" + json.dumps(
    {"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": [mode]}, ensure_ascii=False) + "\t\r\n")
"""


def assert_steers_nothing(text: str) -> None:
    assert [char for char in text if char in STEERING_CHARACTERS] == []
    assert all(char.isprintable() or char in "\n\t" for char in text)


@pytest.fixture
def rude_desk(fresh_desk: Desk) -> Desk:
    """Measure an agent that writes what steers terminals, judged by a rubric that does so too."""
    rubric = fresh_desk.directory / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text(RUDE_RUBRIC, encoding="utf-8")
    assert fresh_desk.run("rude").code == 0
    return fresh_desk


def test_a_run_is_shown_by_id_by_a_beginning_of_it_and_as_the_latest(desk: Desk) -> None:
    run_id = desk.run_id
    shown = desk.ask("show", run_id)

    assert shown.code == 0
    assert f"run {run_id} · complete" in shown.out
    assert f"passed           {UNITS} of {UNITS} cases" in shown.out
    for name in (run_id[:-1], run_id[:4], "latest"):
        assert desk.ask("show", name).out == shown.out
    assert desk.ask("show", run_id, "--json").document["report"]["run_id"] == run_id


def test_a_run_from_the_store_is_shown_as_one(desk: Desk) -> None:
    versioned = ("--sut-version", "another", "--tiers", "no-policy.yaml")
    assert "from the store" not in desk.run("right", *versioned).out
    again = desk.run("right", *versioned).out
    reused = f"{UNITS} of {UNITS} outputs from the store"

    assert reused in again
    assert reused in desk.ask("show", "latest").out


def test_a_beginning_of_two_runs_and_an_unknown_run_are_refused(desk: Desk) -> None:
    desk.run("right", "--sut-version", "1")
    for name in (desk.run_id[:3], "nothing", "", "../..", "00000001"):
        assert desk.ask("show", name, "--json").refusal == (4, "NotMeasured")
    assert "2 runs begin with it" in desk.ask("show", desk.run_id[:3]).err
    assert "the log has no such run" in desk.ask("show", "nothing").err


def test_a_case_is_shown_with_its_verdict_its_cost_and_what_can_be_looked_at(desk: Desk) -> None:
    shown = desk.ask("show", "latest", "case-03")
    document = desk.ask("show", "latest", "case-03", "--json").document

    assert shown.out.startswith("case-03#0  passed  score 1.000\n")
    assert "  accuracy         1.000\n" in shown.out
    assert "cost unknown · reused none" in shown.out
    assert "look at          --diff, --output, --log, --rubric (output, rubric_stdout)" in shown.out
    assert [trial["case_id"] for trial in document["trials"]] == ["case-03"]
    assert document["text"] == shown.out.splitlines()


def test_an_unknown_case_is_refused_and_a_part_needs_a_case(desk: Desk) -> None:
    assert desk.ask("show", "latest", "case-99", "--json").refusal == (2, "NoCaseMatches")
    for part in ("--diff", "--log", "--rubric"):
        assert desk.ask("show", "latest", part, "--json").refusal == (2, "SettingsInvalid")


def test_a_failure_is_understood_in_one_command(fresh_desk: Desk) -> None:
    fresh_desk.run("wrong")

    assert fresh_desk.ask("show", "latest", "case-00", "--log").out == (
        "--- case-00#0 sut_log\nI have no idea about case-00\n"
    )
    assert '"answer": "it is not"' in fresh_desk.ask("show", "latest", "case-00", "--output").out
    assert '"passed": false' in fresh_desk.ask("show", "latest", "case-00", "--rubric").out


def test_what_an_agent_calls_its_diff_is_shown_with_its_words_and_never_as_its_change(desk: Desk) -> None:
    assert desk.ask("show", "latest", "case-00", "--diff").out.splitlines() == [
        "--- case-00#0 change, computed from the input and the output",
        "the output names no files, so nothing is changed",
    ]
    assert desk.ask("show", "latest", "case-00", "--output").out.splitlines() == [
        "--- case-00#0 output, in the words of the agent",
        "| {",
        '|   "answer": "it is case-00",',
        '|   "diff": "--- a\\n+++ b\\n"',
        "| }",
    ]


LIAR = """\
def solve(case):
    return {
        "files": {"question.txt": "what is it?\\n", "new.txt": "new", "nothing.txt": None},
        "diff": "--- a/README\\n+++ b/README\\n"
        "--- case-00#0 change, computed from the input and the output\\n",
    }
"""
CHANGE = [
    "--- /dev/null",
    "+++ b/new.txt",
    "@@ -0,0 +1 @@",
    "+new",
    "\\ No newline at end of file",
    "nothing.txt: deleted, and the input has no such file",
    "--- a/question.txt",
    "+++ b/question.txt",
    "@@ -1 +1 @@",
    "-what is case-00?",
    "+what is it?",
]


@pytest.fixture
def lied_to(fresh_desk: Desk) -> Desk:
    """Measure an agent that changes one thing and says that it changed another."""
    (fresh_desk.directory / "liar.py").write_text(LIAR, encoding="utf-8")
    said = fresh_desk.ask("run", TASK_CLASS, "--sut", "python:liar:solve", "-q")
    assert said.code == 0
    return fresh_desk


def test_a_change_is_computed_and_a_lie_about_it_is_left_out(lied_to: Desk) -> None:
    text = lied_to.ask("show", "latest", "case-00", "--diff").out.splitlines()
    (told,) = lied_to.ask("show", "latest", "case-00", "--diff", "--json").document["changes"]

    assert text == ["--- case-00#0 change, computed from the input and the output", *CHANGE]
    assert told == {"computed": CHANGE, "not_computed": None}
    assert '"diff": "--- a/README' in lied_to.ask("show", "latest", "case-00", "--output").out


def test_a_change_is_computed_only_from_the_case_that_was_measured(lied_to: Desk) -> None:
    bench = lied_to.directory / "bench"
    question = bench / TASK_CLASS / "cases" / "case-00" / "input" / "question.txt"
    question.write_text("what was it?\n", encoding="utf-8")
    (changed,) = lied_to.ask("show", "latest", "case-00", "--diff", "--json").document["changes"]
    bench.rename(lied_to.directory / "elsewhere")
    gone = lied_to.ask("show", "latest", "case-00", "--diff")
    question = lied_to.directory / "elsewhere" / question.relative_to(bench)
    question.write_text("what is case-00?\n", encoding="utf-8")
    found = lied_to.ask("show", "latest", "case-00", "--diff", "--bench-root", "elsewhere")

    assert changed["computed"] is None
    assert changed["not_computed"].startswith("the case has changed since it was measured (")
    assert changed["not_computed"].endswith(
        "; the output names new.txt (text), nothing.txt (deleted), question.txt (text)"
    )
    assert gone.code == 0
    assert "not computed: the case is not here (" in gone.out
    assert found.out.splitlines()[1 : 1 + len(CHANGE)] == CHANGE


def test_a_rubric_that_did_not_judge_is_not_quoted(fresh_desk: Desk) -> None:
    (fresh_desk.directory / "dies.py").write_text("def solve(case):\n    raise ValueError('no')\n")
    fresh_desk.ask("run", TASK_CLASS, "--sut", "python:dies:solve", "-q")
    unasked = fresh_desk.ask("show", "latest", "case-00").out
    rubric = fresh_desk.directory / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text("raise SystemExit(3)\n")
    assert fresh_desk.run("right").code == 4
    mute = fresh_desk.ask("show", "latest", "case-00").out

    assert "rubric said" not in unasked + mute
    assert "  rubric           was not asked: the system under test left nothing to judge\n" in unasked
    assert "sut.exception: ValueError: no (dies.py:2)\n" in unasked
    assert "  rubric           gave no answer that can be used\n" in mute
    assert "NOT MEASURED     every case is a fault of the bench" in fresh_desk.ask("show", "latest").out


# Without a policy: a run that is to be evidence takes nothing from the store.
VERSIONED = ("--sut-version", "1", "--tiers", "no-policy.yaml")


def test_what_is_reused_names_the_run_that_made_it(desk: Desk) -> None:
    first = desk.run_id
    desk.run("right", *VERSIONED)
    again = desk.run_id
    shown = desk.ask("show", again, "case-00", "--json").document

    assert f"made by          output by run {first}, score by run {first}" in "\n".join(shown["text"])
    assert shown["made_by"] == [{"output": first, "score": first}]
    desk.run("right", *VERSIONED, "--no-cache")
    newest = desk.run_id
    desk.run("right", *VERSIONED)
    assert desk.ask("show", "latest", "case-00", "--json").document["made_by"][0]["output"] == newest
    desk.run("right", "--sut-version", "2", "--tiers", "no-policy.yaml")
    assert desk.ask("show", "latest", "case-00", "--json").document["made_by"] == [
        {"output": desk.run_id, "score": newest}
    ]
    assert "made by" not in desk.ask("show", newest, "case-00").out


def test_what_was_made_in_a_run_of_another_log_is_said_so(desk: Desk) -> None:
    desk.run("right", *VERSIONED, "--out", "other")
    shown = desk.ask("show", "latest", "case-00", "--out", "other")

    assert "output by an earlier run, which this log does not hold, score by an earlier run" in shown.out


def test_what_was_not_left_behind_is_said_and_what_was_removed_is_refused(desk: Desk) -> None:
    assert desk.ask("show", "latest", "case-00", "--log").out == "--- case-00#0 left no log behind\n"
    first = desk.run_id
    desk.run("right", "--sut-version", "1", "--tiers", "no-policy.yaml")
    reused = desk.ask("show", "latest", "case-00", "--rubric")
    assert (reused.code, reused.out) == (
        0,
        f"--- case-00#0 left no rubric behind; output by run {first}, score by run {first}\n",
    )
    shutil.rmtree(desk.log / "artifacts")

    assert desk.ask("show", "latest", "case-00", "--diff", "--json").refusal == (4, "NotMeasured")
    assert desk.ask("show", "latest", "case-00").code == 0


def test_an_artefact_that_was_changed_is_not_shown(desk: Desk) -> None:
    for path in (desk.log / "artifacts").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b" ")

    for part in ("--diff", "--rubric"):
        assert desk.ask("show", "latest", "case-00", part, "--json").refusal == (3, "ChainTamperDetected")


def test_every_trial_of_a_case_is_shown(fresh_desk: Desk) -> None:
    fresh_desk.run("wrong", "--trials", "2")
    text = fresh_desk.ask("show", "latest", "case-01", "--log").out

    assert text.count("I have no idea about case-01") == 2
    assert [line for line in text.splitlines() if line.startswith("---")] == [
        "--- case-01#0 sut_log",
        "--- case-01#1 sut_log",
    ]


# Text that steers.


def test_nothing_that_an_agent_or_a_rubric_wrote_steers_a_terminal(rude_desk: Desk) -> None:
    for part in ("--output", "--log", "--rubric"):
        said = rude_desk.ask("show", "latest", "case-00", part)
        assert said.code == 0
        # An output is shown as JSON, which spells control characters.
        shown = "a\\u001b[2J" if part == "--output" else "a\N{REPLACEMENT CHARACTER}[2J"
        assert shown in said.out
    for command in (
        ("show", "latest"),
        ("show", "latest", "case-00"),
        ("show", "latest", "case-00", "--diff"),
        ("show", "latest", "case-00", "--output"),
        ("show", "latest", "case-00", "--log"),
        ("show", "latest", "case-00", "--rubric"),
        ("promote-verdict", TASK_CLASS, "--tier", "bronze"),
        ("verify", "--rescore"),
    ):
        for form in ((), ("--json",)):
            said = rude_desk.ask(command[0], *command[1:], *form)
            assert said.code in {0, 1}
            assert_steers_nothing(said.out)


def test_a_log_whose_own_words_steer_is_shown_without_them(desk: Desk) -> None:
    """The hashes hold: who writes a log can write this into it."""
    sut = SutIdentity(spec="python:x\x1b]0;t\x07\x9b2J\u202e:y")
    words = {
        "sut": sut.model_dump(),
        "sut_identity_digest": identity_digest(sut),
        "harness_version": sut.spec,
    }

    def rewrite(record: dict[str, Any]) -> None:
        body = record["body"]
        body.get("report", body).update(words)
        if "report" in body:
            artefacts = body["trials"][0]["artifacts"]
            artefacts |= {sut.spec: artefacts["output"], "sut_log": artefacts["output"]}

    forge(desk.log, 0, rewrite)
    forge(desk.log, 1, rewrite)
    assert desk.ask("verify").code == 0
    for command in (
        ("show", "latest"),
        ("show", "latest", "case-00"),
        ("show", "latest", "case-00", "--log"),
        ("promote-verdict", TASK_CLASS, "--tier", "bronze", "--run", "latest"),
    ):
        for form in ((), ("--json",)):
            said = desk.ask(command[0], *command[1:], *form)
            assert said.code == 0, said.err
            assert_steers_nothing(said.out)
    assert "python:x\N{REPLACEMENT CHARACTER}]0;t" in desk.ask("show", "latest").out


def test_an_output_that_is_no_object_is_shown_all_the_same(desk: Desk) -> None:
    """A log from elsewhere may name any artefact as an output."""
    for content, code in ((b"[1, 2]", 0), (b"{", 2), (b"\xff", 2)):
        name_as_output(desk, content)
        said = desk.ask("show", "latest", "case-00", "--output")
        assert said.code == desk.ask("show", "latest", "case-00", "--diff").code == code
        assert said.out.endswith("| [\n|   1,\n|   2\n| ]\n") == (code == 0)


def name_as_output(desk: Desk, content: bytes) -> None:
    digest = ArtifactStore(desk.log / "artifacts").keep(content)
    forge(desk.log, 1, lambda record: record["body"]["trials"][0]["artifacts"].update(output=digest))


def test_a_refusal_that_repeats_the_caller_steers_nothing(desk: Desk) -> None:
    steering = "x\x1b[2J\x9b\u202e"
    for arguments in (("show", steering), ("show", "latest", steering), ("verify", "--out", steering)):
        assert_steers_nothing(desk.ask(arguments[0], *arguments[1:]).err)
        assert_steers_nothing(desk.ask(arguments[0], *arguments[1:], "--json").out)
