"""`runs` and `cases`: what a log holds, found without reading every report."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.logs import forge, read_records
from tests.support.working_directory import UNITS, Desk

RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
codes = request["harness_output"]["codes"]
severities = {"answer.wrong": "block", "answer.sloppy": "warn"}
modes = [{"code": code, "severity": severities[code], "detail": None} for code in codes]
passed = "answer.wrong" not in codes
answer = {"passed": passed, "score": float(passed), "breakdown": {}, "failure_modes": modes}
json.dump(answer, sys.stdout)
"""
AGENT = """\
from codegenie.eval import SutResult

CODES = {"easy-1": ["answer.sloppy"], "hard-1": ["answer.sloppy", "answer.wrong"]}


def solve(case):
    if case.case_id == "hard-2":
        raise ValueError("I give up")
    return SutResult(harness_output={"codes": CODES.get(case.case_id, [])}, cost_usd=0.05)
"""
CASES = [
    CaseFiles("easy-1", fields={"family": "first", "difficulty": "easy"}),
    CaseFiles("easy-2", fields={"family": "first", "difficulty": "easy"}),
    CaseFiles("hard-1", fields={"family": "second", "difficulty": "hard"}),
    CaseFiles("hard-2", fields={"family": "third", "difficulty": "hard"}),
]


@pytest.fixture
def varied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """Measure an agent that passes, is sloppy, is wrong and fails."""
    write_bench(tmp_path / "bench", RUBRIC, CASES)
    (tmp_path / "varied.py").write_text(AGENT, encoding="utf-8")
    desk = Desk(tmp_path, capsys)
    assert desk.ask("run", TASK_CLASS, "--sut", "python:varied:solve", "-q").code == 0
    return desk


def shown(desk: Desk, *filters: str) -> list[str]:
    said = desk.ask("cases", "--json", *filters)
    assert said.code == 0, said.out
    return [row["case_id"] for row in said.document["cases"]]


# Runs.


def test_runs_are_listed_from_the_newest_with_what_came_of_them(desk: Desk) -> None:
    desk.run("mostly", "--cases", "case-0[01]")
    newest = desk.run_id
    document = desk.ask("runs", "--json").document
    text = desk.ask("runs").out.splitlines()

    assert [run["run"] for run in document["runs"]] == [newest, desk.first_run]
    assert document["runs"][0] | {"started_at": ""} == {
        "run": newest,
        "task_class": TASK_CLASS,
        "agent": "python:agents:mostly",
        "state": "finished",
        "units_passed": 1,
        "units": 2,
        "partial": True,
        "started_at": "",
        "because": None,
    }
    assert text[0].startswith(f"{newest}  finished   1 of 2 units  ")
    assert text[1] == f"  {TASK_CLASS} · python:agents:mostly · PARTIAL"
    assert f"{UNITS} of {UNITS} units" in text[2]
    assert max(map(len, text)) <= 80
    assert desk.ask("runs", TASK_CLASS, "--json").document == document


def test_a_log_without_runs_lists_none(fresh_desk: Desk) -> None:
    said = fresh_desk.ask("runs")

    assert (said.code, said.out) == (0, ".codegenie/eval/runs holds no run\n")
    assert fresh_desk.ask("runs", "--json").document["runs"] == []


def test_a_class_without_runs_is_refused_and_the_others_are_named(desk: Desk) -> None:
    said = desk.ask("runs", "another-class", "--json")

    assert said.refusal == (2, "SettingsInvalid")
    assert said.document["error"]["hint"] == f"it has runs of {TASK_CLASS}"
    assert desk.ask("runs", TASK_CLASS, "--out", "nowhere", "--json").refusal == (2, "SettingsInvalid")


def test_the_runs_of_a_bundle_are_listed_and_those_of_a_broken_log_are_not(desk: Desk) -> None:
    assert desk.ask("export", "latest", "-o", "run.zip").code == 0
    assert desk.ask("runs", "--out", "run.zip").out == desk.ask("runs").out
    assert desk.ask("cases", "--out", "run.zip").out == desk.ask("cases").out
    record = desk.log / "00000000.json"
    record.write_bytes(record.read_bytes().replace(b"case-00", b"case-99", 1))
    assert desk.ask("runs", "--json").refusal == (3, "ChainTamperDetected")
    assert desk.ask("cases", "--json").refusal == (3, "ChainTamperDetected")


# Cases.


def test_every_planned_trial_is_listed_with_outcome_score_cost_and_code(varied: Desk) -> None:
    document = varied.ask("cases", "--json").document
    rows = {row["case_id"]: row for row in document["cases"]}
    sloppy = rows["easy-1"]

    assert (document["run"], document["state"], document["planned"]) == (varied.run_id, "finished", 4)
    assert (document["task_class"], document["agent"]) == (TASK_CLASS, "python:varied:solve")
    assert {case_id: row["outcome"] for case_id, row in rows.items()} == {
        "easy-1": "passed",
        "easy-2": "passed",
        "hard-1": "failed",
        "hard-2": "sut-fault",
    }
    assert (sloppy["family"], sloppy["difficulty"], sloppy["trial"]) == ("first", "easy", 0)
    assert (sloppy["score"], sloppy["cost_usd"], sloppy["cost_source"]) == (1.0, 0.05, None)
    assert (sloppy["input_tokens"], sloppy["failure_codes"]) == (None, ["answer.sloppy"])
    assert rows["hard-1"]["failure_codes"] == ["answer.wrong", "answer.sloppy"]
    assert rows["hard-2"]["failure_codes"] == ["sut.exception"]
    assert rows["hard-2"]["wall_clock_ms"] >= 0


def test_the_table_fits_a_terminal_and_has_no_empty_column(varied: Desk) -> None:
    text = varied.ask("cases").out.splitlines()

    assert text[0].endswith(f"run {varied.run_id} · complete")
    assert text[1].split() == ["case", "outcome", "score", "took", "cost", "in", "USD", "failure"]
    assert text[2].startswith("easy-1  passed     1.000  ")
    assert text[2].endswith("  0.0500       answer.sloppy")
    assert text[4].endswith("  0.0500       answer.wrong, answer.sloppy")
    assert text[-1] == "4 of 4 trials: 2 passed, 1 failed, 1 sut-fault"
    assert max(map(len, text[1:])) <= 80


def test_tokens_and_who_counted_the_cost_are_in_the_table(varied: Desk) -> None:
    def account(record: dict[str, Any]) -> None:
        usage = {"counted_by": "broker", "input_tokens": 12_300, "output_tokens": 1_100, "requests": 4}
        usage |= {"cached_tokens": None, "models": ["model-1"]}
        for trial in record["body"]["trials"][:3]:
            trial |= {"usage": usage, "cost_source": "broker"}

    forge(varied.log, 1, account)
    text = varied.ask("cases").out.splitlines()
    (row, *_) = varied.ask("cases", "--json").document["cases"]

    assert "0.0500 broker  12.3k/1.1k" in text[2]
    # What does not fit into 80 columns stands in the next line.
    assert text[5] == "    answer.wrong, answer.sloppy"
    assert max(map(len, text[1:])) <= 80
    assert (row["cost_source"], row["input_tokens"], row["output_tokens"]) == ("broker", 12_300, 1_100)
    assert row["cached_tokens"] is None


def test_every_trial_of_a_case_has_a_row(varied: Desk) -> None:
    varied.ask("run", TASK_CLASS, "--sut", "null", "--trials", "2", "--cases", "easy-1", "-q")
    rows = varied.ask("cases", "--json").document["cases"]

    assert [(row["case_id"], row["trial"]) for row in rows] == [("easy-1", 0), ("easy-1", 1)]
    assert {row["outcome"] for row in rows} == {"bench-fault"}
    assert "\neasy-1#1  bench-fault  " in varied.ask("cases").out
    assert shown(varied, "--outcome", "bench-fault") == ["easy-1", "easy-1"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("--outcome passed", ["easy-1", "easy-2"]),
        ("--outcome failed --outcome sut-fault", ["hard-1", "hard-2"]),
        ("--family first", ["easy-1", "easy-2"]),
        ("--family second --family third", ["hard-1", "hard-2"]),
        ("--difficulty hard", ["hard-1", "hard-2"]),
        ("--difficulty medium", []),
        ("--code answer.sloppy", ["easy-1", "hard-1"]),
        ("--code answer.wrong --code sut.exception", ["hard-1", "hard-2"]),
        ("--code answer.sloppy --outcome passed", ["easy-1"]),
        ("--family first --difficulty hard", []),
        ("--code sut.timeout", []),
        ("--outcome open", []),
    ],
)
def test_a_filter_keeps_any_of_its_values_and_several_keep_all_of_them(
    varied: Desk, filters: str, found: list[str]
) -> None:
    assert shown(varied, *filters.split()) == found
    if not found:
        assert "\nno trial matches\n0 of 4 trials\n" in varied.ask("cases", *filters.split()).out


@pytest.mark.parametrize(
    ("flag", "known"),
    [
        ("--outcome", "bench-fault, failed, not-measured, open, passed, sut-fault"),
        ("--family", "first, second, third"),
        ("--difficulty", "easy, hard, medium"),
        ("--code", "answer.noted, answer.sloppy, answer.wrong, rubric.malformed_output"),
    ],
)
def test_an_unknown_value_of_a_filter_is_refused_and_the_known_ones_are_named(
    varied: Desk, flag: str, known: str
) -> None:
    for value in ("first-one", "", "\x1b[2J"):
        said = varied.ask("cases", flag, value, "--json")
        assert said.refusal == (2, "SettingsInvalid")
        assert said.document["error"]["hint"].startswith(f"it has {known}")


def test_the_cases_of_an_unknown_run_are_refused(desk: Desk) -> None:
    for name in ("nothing", "", "../.."):
        assert desk.ask("cases", name, "--json").refusal == (4, "NotMeasured")
    assert desk.ask("cases", "--out", "nowhere", "--json").refusal == (4, "NotMeasured")
    assert desk.ask("cases", desk.run_id[:6]).code == 0


# What all trials used.


def test_a_run_and_what_is_shown_of_it_say_what_its_trials_used_together(varied: Desk) -> None:
    ran = varied.ask("run", TASK_CLASS, "--sut", "null", "-q", "--json").document
    shown_again = varied.ask("show", "latest", "--json").document

    assert ran["steadiness"] is shown_again["steadiness"] is None
    assert ran["usage"] == shown_again["usage"]
    assert ran["usage"]["input_tokens"] is None
    assert ran["durations"] == shown_again["durations"]
    assert ran["durations"]["sum_ms"] >= ran["durations"]["longest_ms"] >= 0


def test_tokens_attempts_and_steadiness_are_in_the_report(varied: Desk) -> None:
    varied.ask("run", TASK_CLASS, "--sut", "python:varied:solve", "--trials", "2", "-q")

    def account(record: dict[str, Any]) -> None:
        void = {"n": 1, "cause": "box: no space left", "wall_ms": 1, "provider_wait_ms": 7, "left": 0}
        good = {"n": 2, "cause": None, "wall_ms": 1, "provider_wait_ms": 0, "left": 0}
        rest = {"usage": None, "cost_usd": None, "log": None}
        usage = {"counted_by": "broker", "input_tokens": 1_000, "output_tokens": 10, "requests": 1}
        for trial in record["body"]["trials"]:
            trial["usage"] = {**usage, "cached_tokens": 0, "models": ["model-1"]}
            trial["attempts"] = [{**good, **rest, "n": 1}]
        record["body"]["trials"][2]["attempts"] = [{**void, **rest}, {**good, **rest}]

    forge(varied.log, len(read_records(varied.log)) - 1, account)
    text = varied.ask("show", "latest").out
    document = varied.ask("show", "latest", "--json").document
    usage = document["usage"]

    assert "\npass^2           0.50 · per-case spread 0.00\n" in text
    assert document["steadiness"] == {"trials": 2, "share_passing_all": 0.5, "spread": 0.0}
    assert "\ntokens           8,000 in · 80 out · 8 requests · model-1 (counted by the broker)\n" in text
    assert "\nattempts         9 for 8 trials: easy-2#0 void (box: no space left)\n" in text
    assert usage == {
        "input_tokens": 8_000,
        "cached_tokens": 0,
        "output_tokens": 80,
        "requests": 8,
        "models": ["model-1"],
        "provider_wait_ms": 7,
        "attempts": 9,
        "void_attempts": 1,
    }
