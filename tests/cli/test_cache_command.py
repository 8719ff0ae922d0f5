"""`cache prune`, and the settings file that says where stores, logs, benches and policies lie."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from tests.support.logs import read_records, record_files, write_log
from tests.support.working_directory import UNITS, Desk


def test_pruning_removes_outcomes_by_age_and_the_next_run_measures_again(desk: Desk) -> None:
    young = desk.ask("cache", "prune", "--json").document
    assert (young["removed"], young["kept"]) == (0, 2 * UNITS)
    all_of_them = desk.ask("cache", "prune", "--older-than", "0", "--json").document
    assert (all_of_them["removed"], all_of_them["kept"]) == (2 * UNITS, 0)
    assert desk.ask("cache", "prune", "--older-than", "0").out == "removed 0 outcomes, kept 0\n"
    desk.run("right", "--sut-version", "1")
    finish = json.loads(record_files(desk.log)[-1].read_bytes())

    assert {trial["reused"] for trial in finish["body"]["trials"]} == {"none"}


def journal(desk: Desk, run_id: str, days: float = 0) -> Path:
    path = desk.log / "journal" / run_id
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


def test_pruning_names_journals_and_removes_those_that_no_open_run_needs(desk: Desk) -> None:
    last = json.loads(record_files(desk.log)[-1].read_bytes())["run_id"]
    records = read_records(desk.log)
    start = {**records[0], "run_id": "open-1"}
    write_log(desk.log, [*records, start])
    needed, young = journal(desk, "open-1", 100), journal(desk, "unknown-1")
    finished, running = journal(desk, last, 100), journal(desk, "unknown-2", 100)
    with running.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = desk.ask("cache", "prune", "--json").document
    assert said["journals"] == {"open-1": "open", "unknown-1": "young", last: "removed"}
    assert [path.exists() for path in (needed, young, finished, running)] == [True, True, False, True]
    assert (
        "journal open-1: kept, since its run has not finished; the same command resumes it"
        in desk.ask("cache", "prune").out
    )


def test_pruning_removes_nothing_beside_a_log_that_does_not_hold(desk: Desk) -> None:
    kept = journal(desk, "unknown-1", 100)
    path = record_files(desk.log)[0]
    path.write_bytes(path.read_bytes()[:-1])
    refused = desk.ask("cache", "prune", "--older-than", "0", "--json").refusal
    assert refused == (3, "ChainTamperDetected")
    assert kept.exists()
    assert any((desk.directory / ".codegenie/eval/cache").rglob("*.json"))


@pytest.mark.parametrize("days", ["nan", "inf", "-1", "soon"])
def test_an_age_that_is_no_number_of_days_removes_nothing(desk: Desk, days: str) -> None:
    assert desk.ask("cache", "prune", "--older-than", days, "--json").refusal == (2, "SettingsInvalid")
    assert desk.ask("cache", "prune", "--json").document["kept"] == 2 * UNITS


def test_the_settings_file_says_which_store_is_pruned_and_where_benches_and_logs_lie(desk: Desk) -> None:
    (desk.directory / ".codegenie" / "eval" / "cache").rename(desk.directory / "store")
    desk.log.rename(desk.directory / "records")
    (desk.directory / "bench").rename(desk.directory / "benches")
    (desk.directory / "trust-tiers.yaml").rename(desk.directory / "policy.yaml")
    (desk.directory / "pyproject.toml").write_text(
        '[tool.codegenie.eval]\ncache = "store"\nout = "records"\n'
        'bench_root = "benches"\ntiers = "policy.yaml"\n',
        encoding="utf-8",
    )

    assert desk.ask("cache", "prune", "--json").document["kept"] == 2 * UNITS
    assert desk.ask("verify", "--json").document["not_checked"] == []
    assert desk.verdict().code == 0


@pytest.mark.parametrize("setting", ["bench_root = [1]", "bench_root = true", "out = 3", "cache = ['x']"])
def test_a_setting_of_the_wrong_kind_is_refused(desk: Desk, setting: str) -> None:
    (desk.directory / "pyproject.toml").write_text(f"[tool.codegenie.eval]\n{setting}\n", encoding="utf-8")

    assert desk.ask("verify", "--json").refusal == (2, "SettingsInvalid")
