"""`promote-verdict` and the end of `run`: exit codes, which run is judged, and what no hurry helps."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import eval_argv, start
from tests.support.logs import forge, record_files, wait_for_head
from tests.support.working_directory import UNITS, Desk, Said

WHOLE = ("right", "--sut-version", "1")


def codes(said: Said) -> list[str]:
    return [reason.partition(":")[0] for reason in said.document["reasons"]]


def write_policy(desk: Desk, text: str) -> None:
    (desk.directory / "trust-tiers.yaml").write_text(text, encoding="utf-8")


# Exit codes.


def test_a_whole_and_good_run_is_sufficient_and_says_what_that_means(desk: Desk) -> None:
    said = desk.verdict()
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze")

    assert (said.code, text.code) == (0, 0)
    assert said.document["schema"] == "codegenie.eval.verdict/1"
    assert (said.document["verdict"], said.document["reasons"]) == ("sufficient", [])
    assert (said.document["units"], said.document["units_needed"]) == (UNITS, UNITS)
    assert said.document["certified_lower"] == pytest.approx(0.05 ** (1 / UNITS))
    assert "if the true share of units passed were below 0.5, this gate would have" in text.out
    assert "passed it at most 5 % of the time; a human promotes" in text.out


def test_a_weak_run_is_insufficient_and_every_reason_has_its_line(desk: Desk) -> None:
    desk.run("wrong")
    said = desk.verdict("--sut", "python:agents:wrong")
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", "--sut", "python:agents:wrong")

    assert (said.code, said.document["verdict"]) == (1, "insufficient")
    assert codes(said) == ["min_cases", "certified_bound", "bca_bound", "mean_score"]
    assert text.out.splitlines()[1:5] == [f"  {reason}" for reason in said.document["reasons"]]


def test_a_reason_is_given_as_a_sentence_and_as_a_record_with_its_numbers(desk: Desk) -> None:
    desk.run("wrong")
    document = desk.verdict("--sut", "python:agents:wrong").document

    records = document["reason_records"]
    assert document["reasons"] == [f"{record['code']}: {record['text']}" for record in records]
    numbers = {record["code"]: record["numbers"] for record in records}
    assert numbers["min_cases"]["passed"] < numbers["min_cases"]["minimum"]
    assert numbers["certified_bound"] == {"certified_lower": document["certified_lower"], "threshold": 0.5}


def test_too_few_units_are_inconclusive(fresh_desk: Desk) -> None:
    fresh_desk.run()
    said = fresh_desk.verdict()

    assert (said.code, said.document["verdict"]) == (1, "inconclusive")
    assert codes(said) == ["too_few_units", "certified_bound", "bca_bound"]


def test_a_tier_without_threshold_or_minimum_is_insufficient(desk: Desk) -> None:
    for tier, code in (("iron", "unknown_tier"), ("silver", "tier_not_declared")):
        said = desk.ask("promote-verdict", TASK_CLASS, "--tier", tier, "--json")
        assert said.code == 1
        assert code in codes(said)


@pytest.mark.parametrize(
    "policy", ["", "thresholds: {bronze: .nan}\n", "thresholds: {bronze: 0.8}\nalpha: 1\n"]
)
def test_a_wrong_policy_or_none_is_a_mistake_of_the_caller(desk: Desk, policy: str) -> None:
    write_policy(desk, policy)
    assert desk.verdict().refusal == (2, "TierConfigInvalid")
    (desk.directory / "trust-tiers.yaml").unlink()
    assert desk.verdict().refusal == (2, "TierConfigInvalid")
    assert desk.ask("promote-verdict", TASK_CLASS, "--json").refusal == (2, "SettingsInvalid")


def test_without_a_run_to_judge_nothing_is_decided(desk: Desk) -> None:
    assert desk.verdict("--out", "empty").refusal == (4, "NotMeasured")
    assert desk.verdict("--run", "nothing").refusal == (4, "NotMeasured")
    assert desk.verdict("--out", "nowhere").refusal == (4, "NotMeasured")
    for name in ("other-class", "../x", ""):
        said = desk.ask("promote-verdict", name, "--tier", "bronze", "--json")
        assert said.refusal == (4, "NotMeasured")
        said = desk.ask("promote-verdict", name, "--tier", "bronze", "--run", "latest", "--json")
        assert said.refusal == (4, "NotMeasured")


# Which run.


def test_the_newest_whole_run_is_judged_although_a_partial_one_is_newer(desk: Desk) -> None:
    whole = desk.run_id
    partial = desk.run(*WHOLE, "--cases", "case-0[0-3]", "--json").document["report"]["run_id"]
    said = desk.verdict()

    assert (said.code, said.document["run_id"]) == (0, whole)
    assert said.document["runs_elsewhere"] == 1
    judged = desk.verdict("--run", partial)
    assert judged.code == 1
    assert codes(judged)[0] == "partial"


def test_only_partial_runs_are_no_run_to_judge(fresh_desk: Desk) -> None:
    fresh_desk.run("right", "--cases", "case-00")

    assert fresh_desk.verdict().refusal == (4, "NotMeasured")


def test_a_run_is_chosen_by_its_id_or_the_beginning_of_it(desk: Desk) -> None:
    first = desk.run_id
    other = desk.run("mostly", "--json").document["report"]["run_id"]

    assert desk.verdict("--sut", "python:agents:mostly").document["run_id"] == other
    assert desk.verdict("--run", first).document["run_id"] == first
    assert desk.verdict("--run", "latest").document["run_id"] == other
    assert desk.verdict("--run", other[:-2]).document["run_id"] == other
    assert desk.verdict("--run", "2").refusal == (4, "NotMeasured")
    assert desk.verdict("--run", first).code == 0


# What no hurry helps.


def test_a_lucky_run_again_does_not_help(desk: Desk) -> None:
    """The agent is its code, whatever it does and is called: the first look failed and stays."""
    word = desk.directory / "word"
    agents = desk.directory / "agents.py"
    flaky = f"def right(case):\n    return {{'answer': open({str(word)!r}).read() + case.case_id}}\n"
    agents.write_text(flaky, encoding="utf-8")
    for version, text in (("9.1", "it was "), ("9.2", "it is ")):
        word.write_text(text, encoding="utf-8")
        ran = desk.run("right", "--sut-version", version, "--no-cache", "--json")
        assert ran.document["verdict"]["verdict"] == "insufficient"
    said = desk.verdict()

    assert codes(said) == ["other_look"]
    assert said.document["looks"] == 2
    assert (
        "measured 2 times on these cases; every look counts"
        in desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out
    )


def test_picking_lucky_outputs_one_by_one_and_running_over_the_store_does_not_help(desk: Desk) -> None:
    desk.log.rename(desk.directory / "first")
    for half in ("case-0[012]", "case-0[34]"):
        desk.run(*WHOLE, "--no-cache", "--cases", half)
    warm = desk.run(*WHOLE, "--json").document

    assert warm["report"]["units_passed"] == UNITS
    trials = json.loads(record_files(desk.log)[-1].read_bytes())["body"]["trials"]
    assert {trial["reused"] for trial in trials} == {"none"}, (
        "the agent and the rubric were asked for all of it"
    )
    assert desk.verdict().code == 0
    assert desk.verdict().document["runs_elsewhere"] == 2
    forge(desk.log, len(record_files(desk.log)) - 1, taken_from_the_store)
    assert codes(desk.verdict()) == ["reused"]


def taken_from_the_store(finish: dict[str, Any]) -> None:
    """Let a run say what those of earlier versions could: that nobody was asked."""
    for trial in finish["body"]["trials"]:
        trial["reused"] = "both"


def test_a_run_from_the_store_does_not_make_an_old_measurement_young(desk: Desk) -> None:
    def age(record: dict[str, Any]) -> None:
        record["body"]["report"]["started_at"] = "2020-01-01T00:00:00Z"
        record["body"]["report"]["ended_at"] = record["recorded_at"] = "2020-01-01T00:01:00Z"

    forge(desk.log, 1, age)
    forge(desk.log, 0, lambda record: record.update(recorded_at="2020-01-01T00:00:00Z"))
    assert codes(desk.verdict()) == ["too_old"]
    desk.run(*WHOLE)
    forge(desk.log, 3, taken_from_the_store)

    assert codes(desk.verdict()) == ["too_old"]


def test_a_run_that_was_begun_long_ago_is_not_young_because_it_was_resumed(desk: Desk) -> None:
    """The trials before the crash are as old as the start, whenever the last one was measured."""
    forge(desk.log, 0, lambda record: record.update(recorded_at="2020-01-01T00:00:00Z"))

    assert codes(desk.verdict()) == ["too_old"]


def test_another_model_by_a_variable_is_another_agent_and_is_told(desk: Desk) -> None:
    agents = desk.directory / "agents.py"
    source = "import os\n\n\ndef right(case):\n    return {'answer': os.environ['WORD'] + case.case_id}\n"
    agents.write_text(source, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for word in ("it was ", "it is "):
            patch.setenv("WORD", word)
            desk.run("right", "--sut-version", "9", "--sut-env", "WORD")
        said = desk.verdict()
        text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out

    assert said.document["verdict"] == "sufficient"
    assert (said.document["looks"], said.document["runs_elsewhere"]) == (1, 2)
    assert said.document["candidates_tried"] == 3
    assert "other candidates tried on these cases: 2" in text
    assert "5 %" not in text


def test_a_run_from_the_future_is_no_evidence(desk: Desk) -> None:
    def postdate(record: dict[str, Any]) -> None:
        record["recorded_at"] = record["body"]["report"]["ended_at"] = "2999-01-01T00:00:00Z"

    forge(desk.log, 1, postdate)

    assert desk.ask("verify").code == 0
    assert codes(desk.verdict()) == ["future"]


def test_a_policy_that_was_edited_after_the_run_does_not_judge_it(desk: Desk) -> None:
    write_policy(desk, "thresholds: {bronze: 0.4}\n")
    assert codes(desk.verdict()) == ["policy_changed"]
    write_policy(desk, "thresholds: {bronze: 0.5, silver: 0.9}\ncurrent_tiers: {built-class: bronze}\n")
    assert desk.verdict().code == 0


def test_a_run_without_a_policy_is_no_evidence_and_run_says_nothing_of_tiers(desk: Desk) -> None:
    ran = desk.run("right", "--sut-version", "2", "--tiers", "nowhere.yaml", "--json").document
    said = desk.verdict()

    assert ran["verdict"] is None
    assert (said.code, codes(said)) == (1, ["no_policy"])


def test_a_bench_that_changed_since_is_told_apart_from_one_that_is_broken(desk: Desk) -> None:
    rubric = desk.directory / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text(rubric.read_text(encoding="utf-8") + "# and more\n", encoding="utf-8")
    assert codes(desk.verdict()) == ["bench_changed"]
    registration = desk.directory / "bench" / TASK_CLASS / "registration.py"
    registration.write_text(
        registration.read_text(encoding="utf-8").replace('"bronze": 1', '"bronze": 2'), encoding="utf-8"
    )
    assert codes(desk.verdict()) == ["bench_changed"]


def test_a_bench_that_now_asks_for_more_cases_is_a_changed_bench(desk: Desk) -> None:
    registration = desk.directory / "bench" / TASK_CLASS / "registration.py"
    text = registration.read_text(encoding="utf-8")
    registration.write_text(text.replace('"bronze": 1', f'"bronze": {UNITS}'), encoding="utf-8")

    assert codes(desk.verdict()) == ["bench_changed"]


def test_a_start_that_was_killed_counts_until_the_same_command_finishes_it(desk: Desk) -> None:
    slow = "import time\n\n\ndef right(case):\n    time.sleep(60)\n"
    (desk.directory / "agents.py").write_text(slow, encoding="utf-8")
    argv = eval_argv("run", TASK_CLASS, "--sut", "python:agents:right", "--sut-version", "9", "-q")
    process = start(argv, desk.directory)
    wait_for_head(desk.log, 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    started = json.loads(record_files(desk.log)[2].read_bytes())["run_id"]

    assert desk.verdict("--run", started).refusal == (4, "NotMeasured")
    assert desk.ask("verify", "--json").document["unfinished_runs"] == [started]
    assert "has not finished; it counts as failed" in desk.ask("verify").out
    # The newest start decides; another agent's dead start is not held against the first.
    assert desk.verdict().refusal == (4, "NotMeasured")
    assert desk.verdict("--run", desk.first_run).code == 0


def test_a_run_that_ended_early_says_which_command_takes_it_up(desk: Desk) -> None:
    costly = (
        "from codegenie.eval.ports import SutResult\n\n\ndef right(case):\n    return SutResult({}, 1.0)\n"
    )
    (desk.directory / "agents.py").write_text(costly, encoding="utf-8")
    known = desk.ask("verify", "--json").document["runs"]

    ended = desk.run("right", "--no-cache", "--max-cost-usd", "1")
    assert ended.code == 4
    ending = (
        "the run is not finished, since it has reached its cost cap: the same command without --no-cache and"
        " with a higher --max-cost-usd resumes it where it stopped"
    )
    assert ending in ended.out
    assert "cost at least 1.00 USD" in ended.out
    more = desk.run("right", "--max-cost-usd", "2").out
    assert "the same command with a higher --max-cost-usd resumes it where it stopped" in more
    assert "cost at least 2.00 USD" in more
    assert desk.run("right").code == 0
    found = desk.ask("verify", "--json").document
    assert (found["runs"] - known, found["unfinished_runs"]) == (1, [])


def test_another_version_with_the_same_outputs_is_judged_anew_although_its_scores_are_known(
    desk: Desk,
) -> None:
    desk.run("right", "--sut-version", "2")
    finish = json.loads(record_files(desk.log)[-1].read_bytes())

    assert {trial["reused"] for trial in finish["body"]["trials"]} == {"none"}
    assert desk.verdict().code == 0


# The end of `run`.


def test_run_ends_with_the_verdict_for_the_next_tier_and_the_head_of_its_own_finish(desk: Desk) -> None:
    ran = desk.run(*WHOLE, "--json").document
    finish = record_files(desk.log)[-1]

    assert ran["verdict"] == {
        name: value for name, value in desk.verdict().document.items() if name != "schema"
    }
    assert ran["verdict"]["tier"] == "bronze"
    assert desk.ask("verify", "--expect-head", ran["chain_head"]).code == 0
    assert json.loads(finish.read_bytes())["body"]["report"] == ran["report"]


def test_run_says_how_many_units_are_missing_and_which_cases_block(desk: Desk) -> None:
    cases = [CaseFiles(f"c{number:02}") for number in range(12)]
    rubric = (
        "import json\n"
        'mode = {"code": "answer.wrong", "severity": "block", "detail": "no"}\n'
        'print(json.dumps({"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": [mode]}))\n'
    )
    write_bench(desk.directory / "other", rubric, cases)
    write_policy(desk, "thresholds: {bronze: 0.8}\n")
    text = desk.run("wrong", "--bench-root", "other").out

    assert "next tier\nbronze           insufficient for built-class · python:agents:wrong · run " in text
    assert "  no result can certify 0.8 without 2 more units\n" in text
    assert "  12 blocked cases: c00, c01, c02, c03, c04, c05, c06, c07, c08, c09 and 2 more\n" in text


def test_run_asks_for_the_tier_above_the_current_one_and_for_none_above_the_last(desk: Desk) -> None:
    write_policy(desk, "thresholds: {bronze: 0.5, silver: 0.9}\ncurrent_tiers: {built-class: bronze}\n")
    above = desk.run(*WHOLE, "--json").document["verdict"]
    write_policy(desk, "thresholds: {bronze: 0.5, silver: 0.9}\ncurrent_tiers: {built-class: silver}\n")
    top = desk.run(*WHOLE, "--json").document["verdict"]

    assert above["tier"] == "silver"
    assert "tier_not_declared" in {reason.partition(":")[0] for reason in above["reasons"]}
    assert top is None


def test_the_harness_own_agents_are_told_apart_from_agents(tmp_path: Path, desk: Desk) -> None:
    solved = [
        CaseFiles(f"c{n:02}", {"solution/harness_output.json": f'{{"answer": "it is c{n:02}"}}'})
        for n in range(UNITS)
    ]
    write_bench(tmp_path / "solved", cases=solved)
    out = ("--bench-root", str(tmp_path / "solved"), "--out", str(tmp_path / "log"))
    desk.ask("run", TASK_CLASS, "--sut", "oracle", "-q", *out)
    said = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", *out)

    assert said.code == 1
    assert "  no_agent: oracle is part of the harness: its runs test the bench, not an agent\n" in said.out
