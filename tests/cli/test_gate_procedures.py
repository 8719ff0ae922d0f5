"""Procedures that end in a false `sufficient`, each played through the command line as it was described."""

import json
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.models import RunOptions
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import ShiftedClock
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import eval_argv, start
from tests.support.logs import forge, record_files, record_run, wait_for_head
from tests.support.working_directory import POLICY, UNITS, Desk, Said

RIGHT = "python:agents:right"


def codes(said: Said) -> list[str]:
    return [reason.partition(":")[0] for reason in said.document["reasons"]]


def write_agent(desk: Desk, body: str) -> None:
    (desk.directory / "agents.py").write_text(f"def right(case):\n    {body}\n", encoding="utf-8")


def killed_run(desk: Desk) -> str:
    """Start an agent that hangs, kill the harness, and return the run that it leaves behind."""
    before = len(record_files(desk.log))
    write_agent(desk, "import time; time.sleep(60)")
    argv = eval_argv("run", TASK_CLASS, "--sut", RIGHT, "-q")
    process = start(argv, desk.directory)
    wait_for_head(desk.log, before + 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return desk.run_id


# Whose verdict.


def test_the_run_of_another_system_does_not_speak_for_an_agent(desk: Desk) -> None:
    desk.ask("run", TASK_CLASS, "--sut", "oracle", "-q")
    said = desk.verdict()

    assert said.refusal == (2, "SettingsInvalid")
    assert "oracle, python:agents:right" in said.document["error"]["message"]
    assert desk.verdict("--sut", RIGHT).document["sut"] == RIGHT
    assert codes(desk.verdict("--sut", "oracle"))[0] == "no_agent"
    assert desk.verdict("--sut", "python:agents:nobody").refusal == (4, "NotMeasured")


def test_a_verdict_names_whom_it_is_about(desk: Desk) -> None:
    said = desk.verdict("--sut", RIGHT).document
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out

    assert (said["sut"], said["sut_version"], said["run_id"]) == (RIGHT, "1", desk.run_id)
    assert f"  agent {RIGHT}, version 1, identity {said['sut_identity_digest'][:12]}\n" in text


def test_an_agent_whose_newest_run_was_killed_has_no_verdict(desk: Desk) -> None:
    agents = (desk.directory / "agents.py").read_bytes()
    killed_run(desk)
    (desk.directory / "agents.py").write_bytes(agents)
    said = desk.verdict()

    assert said.refusal == (4, "NotMeasured")
    assert "codegenie eval abandon" in said.document["error"]["hint"]


@pytest.mark.parametrize("source", [None, "def right(case:\n", "import nowhere_to_be_found\n", "x = 1\n"])
def test_an_agent_that_is_not_the_measured_one_has_no_verdict_unless_the_run_is_named(
    desk: Desk, source: str | None
) -> None:
    agents = desk.directory / "agents.py"
    if source is None:
        agents.unlink()
    else:
        agents.write_text(source, encoding="utf-8")

    assert desk.verdict().refusal == (4, "NotMeasured")
    assert desk.verdict("--run", desk.run_id).code == 0


def test_an_agent_that_no_longer_imports_has_no_verdict(desk: Desk) -> None:
    (desk.directory / "helper.py").write_text("", encoding="utf-8")
    write_agent(desk, "import helper; return {'answer': f'it is {case.case_id}'}")
    top = (desk.directory / "agents.py").read_text(encoding="utf-8").replace("import helper; ", "")
    (desk.directory / "agents.py").write_text("import helper\n" + top, encoding="utf-8")
    desk.run()
    assert desk.verdict().code == 0
    (desk.directory / "helper.py").unlink()

    assert desk.verdict().refusal == (4, "NotMeasured")


def test_another_value_of_a_variable_is_not_the_agent_that_was_measured(desk: Desk) -> None:
    write_agent(desk, "import os; return {'answer': os.environ['WORD'] + case.case_id}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORD", "it is ")
        desk.run("right", "--sut-env", "WORD")
        assert desk.verdict().code == 0
        patch.setenv("WORD", "it was ")
        assert desk.verdict().refusal == (4, "NotMeasured")
        patch.delenv("WORD")
        assert desk.verdict().refusal == (4, "NotMeasured")
        assert desk.verdict("--run", desk.run_id).code == 0


def test_a_run_of_another_agent_than_the_named_one_is_a_mistake(desk: Desk) -> None:
    assert desk.verdict("--run", desk.run_id, "--sut", "python:agents:wrong").refusal == (
        2,
        "SettingsInvalid",
    )


# Free tries.


def test_a_comment_for_every_try_is_no_new_candidate(desk: Desk) -> None:
    word = desk.directory / "word"
    for number, text in enumerate(("it was ", "it is ")):
        word.write_text(text, encoding="utf-8")
        write_agent(desk, f"return {{'answer': open({str(word)!r}).read() + case.case_id}}  # try {number}")
        with (desk.directory / "agents.py").open("a", encoding="utf-8") as file:
            file.write(f'\n\n"""Try {number}."""\n')
        desk.run()
    said = desk.verdict()

    assert (codes(said), said.document["looks"]) == (["other_look"], 2)
    assert said.document["candidates_tried"] == 2


def test_an_agent_has_one_name_and_not_one_for_every_call_of_a_call(desk: Desk) -> None:
    for attribute in ("right.__call__", "right.__call__.__call__", "__dict__"):
        said = desk.run(attribute, "--json")
        assert said.refusal == (2, "SutSpecInvalid")


def test_every_try_on_these_cases_is_counted_and_then_no_rate_is_claimed(desk: Desk) -> None:
    alone = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out
    for number in range(3):
        write_agent(desk, f"return {{'answer': f'it is {{case.case_id}}', 'try': {number}}}")
        desk.run()
    said = desk.verdict().document
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out

    assert "passed it at most 5 % of the time" in alone
    assert "other candidates tried on these cases: 0\n" in alone
    assert (said["verdict"], said["looks"]) == ("sufficient", 1)
    assert (said["candidates_tried"], said["runs_elsewhere"]) == (4, 3)
    assert "other candidates tried on these cases: 3" in text
    assert "5 %" not in text


def test_a_changed_case_does_not_make_the_tries_on_the_others_forgotten(desk: Desk) -> None:
    case = desk.directory / "bench" / TASK_CLASS / "cases" / "case-00" / "case.toml"
    case.write_text(case.read_text(encoding="utf-8") + "# reviewed\n", encoding="utf-8")
    desk.ask("digest", TASK_CLASS, "--write")
    desk.run("right", "--no-cache")
    said = desk.verdict().document

    assert (said["verdict"], said["looks"], said["runs_elsewhere"]) == ("sufficient", 1, 1)


def test_a_variable_leaves_a_long_fingerprint_that_only_its_own_log_can_make(desk: Desk) -> None:
    write_agent(desk, "return {'answer': f'it is {case.case_id}'}")
    specs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORD", "a small secret")
        for out in ("one", "one", "two"):
            ran = desk.run("right", "--sut-env", "WORD", "--out", out, "--json").document
            specs.append(ran["report"]["sut"]["spec"])
    salt = desk.directory / "one" / "salt"

    assert specs[0] == specs[1] != specs[2]
    assert len(specs[0].rpartition(":")[2]) == 32
    assert (len(salt.read_bytes()), salt.stat().st_mode & 0o777) == (32, 0o600)
    assert desk.ask("verify", "--out", "one").code == 0
    desk.ask("export", "latest", "--out", "one", "-o", "run.zip")
    assert "salt" not in zipfile.ZipFile(desk.directory / "run.zip").namelist()
    assert desk.ask("verify", "--out", "run.zip").code == 0


def test_more_variables_than_a_name_holds_are_refused(desk: Desk) -> None:
    names = [f"V{number}" for number in range(151)]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setenv(name, "x")
        flags = [word for name in names for word in ("--sut-env", name)]
        assert desk.run("right", *flags, "--json").refusal == (2, "SutSpecInvalid")


# Units.


def cloned(desk: Desk, clones: int) -> Desk:
    """Write a bench of one case under so many family names."""
    same = {"input/question.txt": "what is it?\n", "expected/answer.txt": "it is that"}
    cases = [CaseFiles(f"case-{number:02}", same) for number in range(clones)]
    write_bench(desk.directory / "cloned", cases=cases)
    write_agent(desk, "return {'answer': 'it is that'}")
    return desk


def test_clones_of_one_case_under_many_family_names_are_one_unit(desk: Desk) -> None:
    where = ("--bench-root", "cloned", "--out", "clones")
    ran = cloned(desk, UNITS).run("right", *where, "--json").document["report"]
    said = desk.verdict(*where)

    assert (ran["units"], ran["units_passed"]) == (1, 1)
    assert (said.code, said.document["units"]) == (1, 1)
    assert codes(said)[0] == "too_few_units"
    assert desk.ask("verify", *where).code == 0


def test_a_log_from_before_that_still_verifies_and_its_clones_are_one_unit_to_the_gate(desk: Desk) -> None:
    where = ("--bench-root", "cloned", "--out", "clones")
    cloned(desk, UNITS).run("right", *where)
    log = desk.directory / "clones"
    perfect = 0.05 ** (1 / UNITS)

    def older_start(record: dict[str, Any]) -> None:
        del record["body"]["unit_rule"]

    def older_finish(record: dict[str, Any]) -> None:
        report = record["body"]["report"]
        bounds = dict.fromkeys(("lower_bound_95", "certified_lower_95", "gaffke_lower_95"), perfect)
        report.update(bounds, units=UNITS, units_passed=UNITS, lower_bound_95_status="degenerate")

    forge(log, 0, older_start)
    forge(log, 1, older_finish)
    said = desk.verdict(*where)

    assert desk.ask("verify", *where).code == 0
    assert (said.code, said.document["units"]) == (1, 1)
    assert codes(said)[0] == "too_few_units"


def test_a_large_family_that_fails_beside_many_small_ones_is_said_in_words(desk: Desk) -> None:
    large = [CaseFiles(f"big-{number:02}", fields={"family": "big"}) for number in range(20)]
    write_bench(desk.directory / "uneven", cases=[*large, *(f"small-{number}" for number in range(10))])
    write_agent(desk, "return {'answer': f'it is {case.case_id}' if case.case_id[0] == 's' else 'no'}")
    where = ("--bench-root", "uneven", "--out", "lopsided")
    ran = desk.run("right", *where)
    shown = desk.ask("show", "latest", "--out", "lopsided", "--json").document
    said = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", *where)

    assert shown["report"]["mean_score"] == pytest.approx(10 / 30, abs=1e-6)
    assert shown["mean_over_units"] == pytest.approx(10 / 11, abs=1e-6)
    assert "mean             0.333 ± 0.479\nmean over units  0.909\n" in ran.out
    words = "the mean over cases (0.333) is lower than over units (0.909): large families came out worse"
    assert words in ran.out
    assert words in said.out


# Runs that do not come back.


def test_a_run_that_was_given_up_stays_as_a_failed_look(desk: Desk) -> None:
    run = killed_run(desk)
    for journal in (desk.log / "journal").iterdir():
        journal.unlink()
    said = desk.ask("abandon", run, "--because", "the disk was lost", "--json")
    found = desk.ask("verify", "--json").document

    assert (said.code, said.document["run"]) == (0, run)
    assert said.document["chain_head"] == found["chain_head"]
    assert (found["ok"], found["unfinished_runs"]) == (True, [])
    assert found["abandoned_runs"] == {run: "the disk was lost"}
    assert f"abandoned     {run} counts as failed: the disk was lost\n" in desk.ask("verify").out
    assert "\nabandoned        the disk was lost\n" in desk.ask("show", run).out
    assert desk.verdict().refusal == (4, "NotMeasured")


def test_an_agent_is_not_barred_by_a_run_that_was_given_up_and_waived(desk: Desk) -> None:
    """The agent hangs while a file is there: the same code, and so the same candidate, before and after."""
    stuck = desk.directory / "stuck"
    stuck.touch()
    write_agent(
        desk,
        f"import os, time; time.sleep(60 * os.path.exists({str(stuck)!r}));"
        " return {'answer': f'it is {case.case_id}'}",
    )
    argv = eval_argv("run", TASK_CLASS, "--sut", RIGHT, "-q", "--no-cache")
    process = start(argv, desk.directory)
    wait_for_head(desk.log, 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = desk.run_id
    stuck.unlink()
    desk.run("right", "--no-cache")
    assert codes(desk.verdict()) == ["unfinished_runs"]
    assert desk.ask("abandon", run, "--because", "the machine was taken away").code == 0
    said = desk.verdict()
    assert (codes(said), said.document["looks"]) == (["abandoned_run"], 2)
    waiver = f"{{refund: {run}, by: J. Doe, on: 2026-11-16, because: the machine was ours}}"
    (desk.directory / "trust-tiers.yaml").write_text(f"{POLICY}waivers: [{waiver}]\n", encoding="utf-8")
    said = desk.verdict()

    assert (said.code, said.document["looks"]) == (0, 2)
    assert [used["refund"] for used in said.document["waivers"]] == [run]
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze").out
    assert f"  waived for run {run} by J. Doe on 2026-11-16: the machine was ours\n" in text


def test_only_a_run_that_is_open_and_dead_is_given_up(desk: Desk) -> None:
    done = desk.run_id
    assert desk.ask("abandon", done, "--because", "bad luck", "--json").refusal == (2, "SettingsInvalid")
    assert desk.ask("abandon", "nothing", "--because", "x", "--json").refusal == (4, "NotMeasured")
    for because in ("", "  ", "a\nb", "x" * 201):
        assert desk.ask("abandon", done, "--because", because, "--json").refusal == (2, "SettingsInvalid")
    write_agent(desk, "import time; time.sleep(60)")
    argv = eval_argv("run", TASK_CLASS, "--sut", RIGHT, "-q")
    process = start(argv, desk.directory)
    try:
        wait_for_head(desk.log, 3)
        assert desk.ask("abandon", "latest", "--because", "x", "--json").refusal == (4, "HarnessFailure")
    finally:
        process.kill()
        process.wait()
    assert desk.ask("abandon", "latest", "--because", "x").code == 0
    assert desk.ask("abandon", "latest", "--because", "x", "--json").refusal == (2, "SettingsInvalid")
    assert list((desk.log / "journal").iterdir()) == []
    assert desk.ask("verify").code == 0


# Clocks and links.


def test_a_clock_that_is_absurdly_ahead_starts_no_run(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    with pytest.raises(HarnessFailure, match="the clock is wrong: it says 2100-"):
        record_run(root, tmp_path / "runs", runner=Runner(clock=ShiftedClock(74 * 365)))
    assert not (tmp_path / "runs").exists()


def test_a_run_by_a_clock_that_was_ahead_does_not_bar_until_then(desk: Desk) -> None:
    def ahead(record: dict[str, Any]) -> None:
        record["recorded_at"] = "2040-01-01T00:00:00Z"
        if "report" in record["body"]:
            record["body"]["report"]["started_at"] = record["body"]["report"]["ended_at"] = record[
                "recorded_at"
            ]

    forge(desk.log, 1, ahead)
    forge(desk.log, 0, ahead)
    assert codes(desk.verdict()) == ["future"]
    desk.run("right", "--no-cache")

    assert desk.verdict().code == 0


def test_a_link_in_place_of_the_log_is_followed_once(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = desk.directory / "log"
    link.symlink_to(tmp_path / "there")
    plan = Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=desk.directory / "bench",
        out_dir=link,
        options=RunOptions(isolation="subprocess"),
    )

    assert plan.out_dir == (tmp_path / "there").resolve()
    assert desk.run("right", "--out", "log").code == 0
    assert len(record_files(tmp_path / "there")) == 2
    assert desk.ask("verify", "--out", "log").code == 0
    link.unlink()
    link.symlink_to("log")
    assert desk.run("right", "--out", "log", "--json").refusal == (2, "SettingsInvalid")


# Roundings and partial runs.


def test_a_partial_run_under_a_policy_is_told_that_it_is_partial_and_nothing_else_of_the_bench(
    desk: Desk,
) -> None:
    ran = desk.run("right", "--sut-version", "1", "--cases", "case-0[0-3]", "--json").document
    reasons = [reason.partition(":")[0] for reason in ran["verdict"]["reasons"]]

    assert reasons[0] == "partial"
    assert "bench_changed" not in reasons


def test_what_was_asked_twice_has_not_passed_unless_a_human_waives_it(desk: Desk) -> None:
    def asked_twice(record: dict[str, Any]) -> None:
        record["body"]["trials"][0]["interrupted"] = 1

    forge(desk.log, 1, asked_twice)
    said = desk.verdict()
    run = desk.run_id

    assert desk.ask("verify").code == 0
    assert (said.code, codes(said)) == (1, ["certified_bound"])
    assert said.document["interrupted_units"] == {run: 1}
    waiver = f"{{refund: {run}, by: J. Doe, on: 2026-11-16, because: the power failed}}"
    (desk.directory / "trust-tiers.yaml").write_text(f"{POLICY}waivers: [{waiver}]\n", encoding="utf-8")
    assert desk.verdict().code == 0
    assert json.dumps(desk.verdict().document["waivers"]) == json.dumps(
        [{"refund": run, "by": "J. Doe", "on": "2026-11-16", "because": "the power failed"}]
    )
