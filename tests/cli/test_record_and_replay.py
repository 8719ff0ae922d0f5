"""`run --record DIR` and `run --sut replay:DIR`, as a user meets them."""

import json
import re
from pathlib import Path

import pytest

from tests.support.benches import TASK_CLASS
from tests.support.sampling import one_worker
from tests.support.working_directory import Desk, Said, copied, furnish

pytestmark = one_worker(__name__)


@pytest.fixture(scope="module")
def recorded_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recorded")
    furnish(directory)
    return directory


@pytest.fixture
def recorded(recorded_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """Return a desk where a perfect agent was recorded, once for all tests."""
    if not (recorded_directory / "recording").exists():
        said = Desk(recorded_directory, capsys).run("right", "--record", "recording", "--json")
        assert said.code == 0, said.err
        assert said.document["verdict"]["verdict"] == "sufficient"
        assert "recorded 5 trials: --sut replay:" in said.document["notes"][-1]
    return Desk(copied(recorded_directory, tmp_path / "desk"), capsys)


def replay(desk: Desk, *arguments: str) -> Said:
    return desk.ask("run", TASK_CLASS, "--sut", "replay:recording", "-q", *arguments)


def test_a_replay_is_scored_and_shown_and_is_never_evidence_for_a_tier(recorded: Desk) -> None:
    said = replay(recorded, "--json")
    report, verdict = said.document["report"], said.document["verdict"]

    assert (said.code, report["passed_count"], report["total_cost_usd"]) == (0, 5, 0.0)
    assert re.fullmatch(r"replay:[0-9a-f]{16} of python:agents:right", report["sut"]["spec"])
    # Its original was sufficient, so this is the only thing against it.
    assert verdict["verdict"] == "insufficient"
    assert [text.partition(":")[0] for text in verdict["reasons"]] == ["no_agent"]
    assert said.document["notes"][0].startswith("replay of python:agents:right, recorded by run ")
    asked = recorded.verdict("--sut", report["sut"]["spec"])
    assert asked.document["reasons"] == verdict["reasons"]
    assert (
        f"replay:{report['sut']['digest'][:16]} of python:agents:right" in recorded.ask("show", "latest").out
    )
    rescored = recorded.ask("verify", "--rescore", "--json")
    assert (rescored.code, rescored.document["rescored"]) == (0, 10)


def test_a_replay_does_not_count_for_or_against_the_agent_that_was_recorded(recorded: Desk) -> None:
    before = recorded.verdict("--run", recorded.first_run).document
    replay(recorded)
    after = recorded.verdict("--run", recorded.first_run).document

    assert before["verdict"] == "sufficient"
    for name in ("verdict", "reasons", "looks", "candidates_tried", "runs_elsewhere"):
        assert before[name] == after[name], name


def test_a_replay_takes_the_cases_of_an_earlier_run(recorded: Desk) -> None:
    answer = recorded.directory / "bench" / TASK_CLASS / "cases" / "case-03" / "expected" / "answer.txt"
    answer.write_text("it is something else", encoding="utf-8")
    recorded.ask("digest", TASK_CLASS, "--write")
    first = replay(recorded)
    said = replay(recorded, "--cases-from", "latest", "--failed", "--trials", "1", "--json")

    assert "note: changed since they were recorded, apart from their inputs: 1 case" in first.out
    assert [case_id for case_id, _ in said.document["report"]["per_case"]] == ["case-03"]


def test_a_recording_is_refused_where_it_cannot_be_what_it_says(recorded: Desk) -> None:
    index = recorded.directory / "recording" / "recording.json"
    refused = replay(recorded, "--trials", "2", "--json")
    index.write_bytes(index.read_bytes().replace(b"agents:right", b"agents:wrong"))
    edited = replay(recorded, "--json")

    assert refused.refusal == (2, "SutSpecInvalid")
    assert edited.refusal == (2, "SutSpecInvalid")
    assert edited.document["error"]["where"] == str(index)
    assert len([*recorded.log.glob("*.json")]) == 2


def test_a_second_run_does_not_record_over_the_first(recorded: Desk) -> None:
    before = (recorded.directory / "recording" / "recording.json").read_bytes()
    said = recorded.run("wrong", "--record", "recording", "--json")

    assert said.refusal == (2, "SettingsInvalid")
    assert said.document["error"]["hint"] == "name an empty or a new directory"
    assert (recorded.directory / "recording" / "recording.json").read_bytes() == before
    assert len([*recorded.log.glob("*.json")]) == 2


def test_what_is_recorded_can_be_read_without_codegenie(recorded: Desk) -> None:
    index = json.loads((recorded.directory / "recording" / "recording.json").read_bytes())["recording"]
    digest = index["outputs"]["case-03/0"]
    trial = json.loads((recorded.directory / "recording" / "outputs" / f"{digest}.json").read_bytes())

    assert index["sut"]["spec"] == "python:agents:right"
    assert json.loads(trial["output"])["answer"] == "it is case-03"
