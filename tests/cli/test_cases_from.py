"""`run --cases-from RUN [--failed]`: a new, partial run of the cases of an earlier one."""

import json
from pathlib import Path

import pytest

from tests.support.benches import TASK_CLASS
from tests.support.dead_runs import Place
from tests.support.working_directory import Desk, Said, furnish

SOME_FAIL = """\
def solve(case):
    if case.case_id == "case-01":
        raise ValueError("no")
    return {"answer": "it is not" if case.case_id == "case-00" else f"it is {case.case_id}"}


def costly(case):
    from codegenie.eval import SutResult
    return SutResult(harness_output={}, cost_usd=9.0)
"""


@pytest.fixture
def failing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """Measure an agent that passes one of three cases; the bench has four."""
    furnish(tmp_path, units=4)
    (tmp_path / "some.py").write_text(SOME_FAIL, encoding="utf-8")
    desk = Desk(tmp_path, capsys)
    said = desk.ask("run", TASK_CLASS, "--sut", "python:some:solve", "-q", "--cases", "case-0[012]")
    assert said.code == 0, said.err
    return desk


def again(desk: Desk, *arguments: str) -> Said:
    return desk.run("right", *arguments)


def measured(said: Said) -> list[str]:
    assert said.code == 0, said.out
    return [case_id for case_id, _ in said.document["report"]["per_case"]]


def test_the_cases_that_failed_are_measured_again_in_a_partial_run(failing: Desk) -> None:
    first = failing.run_id
    said = again(failing, "--cases-from", first, "--failed", "--json")

    assert measured(said) == ["case-00", "case-01"]
    assert said.document["report"]["run_id"] != first
    assert said.document["report"]["selection"] == {
        "kind": "partial",
        "case_filter": "case-00,case-01",
        "available_cases": 4,
    }
    assert said.document["verdict"]["verdict"] != "sufficient"
    assert "PARTIAL (2 of 4 cases)" in failing.ask("show", "latest").out


def test_without_failed_exactly_the_cases_of_the_run_are_measured(failing: Desk) -> None:
    cases = ["case-00", "case-01", "case-02"]

    assert measured(again(failing, "--cases-from", "latest", "--json")) == cases
    assert measured(again(failing, "--cases-from", failing.first_run[:-2], "--json")) == cases


def test_all_cases_of_a_whole_run_are_still_a_partial_selection(fresh_desk: Desk) -> None:
    fresh_desk.run("right")
    report = again(fresh_desk, "--cases-from", "latest", "--json").document["report"]

    assert (report["selection"]["kind"], len(report["per_case"])) == ("partial", 2)


def test_globs_choose_among_the_cases_of_the_run(failing: Desk) -> None:
    chosen = ("--cases-from", failing.first_run, "--failed", "--json")

    assert measured(again(failing, *chosen, "--cases", "*-01")) == ["case-01"]
    assert measured(again(failing, *chosen, "--cases", "*-01", "--cases", "*-00")) == ["case-00", "case-01"]
    # The case exists, and passed: a glob that chooses nothing of the run is refused, as without a run.
    for globs in (("--cases", "*-02"), ("--cases", "*-01", "--cases", "*-02")):
        assert again(failing, *chosen, *globs).refusal == (2, "NoCaseMatches")


def test_a_run_in_which_nothing_failed_is_refused_with_a_hint(failing: Desk) -> None:
    again(failing, "--cases-from", "latest")
    said = again(failing, "--cases-from", "latest", "--failed", "--json")

    assert said.refusal == (2, "NoCaseMatches")
    assert "without --failed" in said.document["error"]["hint"]


def test_failed_needs_a_run_and_the_run_must_be_in_the_log(failing: Desk) -> None:
    assert again(failing, "--failed", "--json").refusal == (2, "SettingsInvalid")
    assert again(failing, "--cases-from", "", "--json").refusal == (2, "SettingsInvalid")
    assert again(failing, "--cases-from", "nothing", "--json").refusal == (4, "NotMeasured")
    elsewhere = ("--cases-from", failing.run_id, "--out", "elsewhere", "--json")
    assert again(failing, *elsewhere).refusal == (4, "NotMeasured")


def test_a_run_of_another_task_class_is_refused(failing: Desk) -> None:
    said = failing.ask("run", "dependency-pin", "--sut", "null", "-q", "--cases-from", "latest", "--json")

    assert said.refusal == (2, "SettingsInvalid")
    assert f"is one of '{TASK_CLASS}', not of 'dependency-pin'" in said.document["error"]["message"]
    assert said.document["error"]["hint"].startswith("`codegenie eval runs dependency-pin`")


def test_a_case_that_the_bench_no_longer_has_is_refused(failing: Desk) -> None:
    bench = failing.directory / "bench" / TASK_CLASS
    (bench / "cases" / "case-00").rename(failing.directory / "gone")
    failing.ask("digest", TASK_CLASS, "--write")
    said = again(failing, "--cases-from", "latest", "--failed", "--json")

    assert said.refusal == (2, "NoCaseMatches")
    assert said.document["error"]["message"] == "there is no case 'case-00'"


def test_a_log_that_fails_verification_names_no_cases(failing: Desk) -> None:
    record = failing.log / "00000001.json"
    record.write_bytes(record.read_bytes().replace(b"case-00", b"case-02", 1))

    assert again(failing, "--cases-from", "latest", "--failed", "--json").refusal == (
        3,
        "ChainTamperDetected",
    )


def test_of_an_open_run_only_what_was_measured_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    desk = Desk(tmp_path, capsys)
    flags = ("--cases-from", place.journal.name, "--out", "runs", "--json", "-q")
    failed = desk.ask("run", TASK_CLASS, "--sut", "null", *flags, "--failed")
    every = desk.ask("run", TASK_CLASS, "--sut", "null", *flags)

    # The echoing rubric has nothing to say about `null`.
    assert [case_id for case_id, _ in failed.document["report"]["per_case"]] == ["blocked"]
    assert len(every.document["report"]["per_case"]) == 3


def test_the_command_that_resumes_names_the_run_in_full(failing: Desk) -> None:
    first = failing.run_id
    costly = (
        "run",
        TASK_CLASS,
        "--sut",
        "python:some:costly",
        "-q",
        "--max-cost-usd",
        "1",
        "--concurrency",
        "1",
    )
    ended = failing.ask(*costly, "--cases-from", "latest", "--failed")
    named = failing.ask(*costly, "--no-cache", "--cases-from", first, "--failed")

    assert ended.code == 4
    assert f"with a higher --max-cost-usd and with --cases-from {first} resumes it" in ended.out
    assert "--cases-from" not in named.out
    resumed = (*costly[:-3], "90", "--cases-from", first, "--failed", "--json")
    assert failing.ask(*resumed).code == 0
    kinds = [json.loads(path.read_bytes())["kind"] for path in sorted(failing.log.glob("*.json"))]
    assert kinds.count("run.resumed") == 1
