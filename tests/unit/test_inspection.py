"""A verified log and what may be asked of it: the bytes that were verified, and no others."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import ChainTamperDetected
from codegenie.eval.log import reading
from codegenie.eval.log.chain import record_name
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import write_bench
from tests.support.logs import build_log, forge, read_records, record_files, record_run, verified, write_log

Question = Callable[[VerifiedLog, RunEntry], object]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_log(tmp_path_factory.mktemp("log"))


@pytest.mark.parametrize(
    ("question", "index"),
    [
        (VerifiedLog.started, 0),
        (VerifiedLog.finished, 1),
        (lambda log, _entry: log.raw(0), 0),
    ],
)
@pytest.mark.parametrize("exchange", [Path.unlink, lambda path: path.write_bytes(b"{}")])
def test_a_record_that_changes_after_it_was_verified_is_not_used(
    tmp_path: Path, question: Question, index: int, exchange: Callable[[Path], object]
) -> None:
    record_run(write_bench(tmp_path / "bench"), tmp_path / "runs")
    found = verified(tmp_path / "runs")
    entry = found.find("latest")
    question(found, entry)
    exchange(tmp_path / "runs" / record_name(index))

    with pytest.raises(ChainTamperDetected, match="changed after it was verified"):
        question(found, entry)


def test_a_valid_record_in_the_place_of_another_is_not_used(log: Path, tmp_path: Path) -> None:
    found = verified(log)
    entry = found.find("latest")
    moved = VerifiedLog(tmp_path, found.link, found.history, hashes=found.hashes)
    for path in record_files(log):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    first = next(iter(found.history.runs.values()))
    assert first.finished_index is not None
    assert entry.finished_index is not None
    other = (tmp_path / record_name(first.finished_index)).read_bytes()
    assert moved.finished(entry).report.run_id == entry.run_id
    (tmp_path / record_name(entry.finished_index)).write_bytes(other)

    with pytest.raises(ChainTamperDetected):
        moved.finished(entry)


def test_a_log_that_does_not_hold_says_how_far_it_does(log: Path, tmp_path: Path) -> None:
    for path in record_files(log):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "HEAD").write_bytes((log / "HEAD").read_bytes())
    whole = verified(tmp_path)
    (tmp_path / record_name(3)).write_bytes(b"{}")
    broken = VerifiedLog(tmp_path)

    with pytest.raises(ChainTamperDetected):
        broken.verify(SystemClock())
    assert broken.link is None
    assert broken.hashes == whole.hashes[:3]


def test_artefacts_are_checked_whatever_can_be_remembered(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembering = verify_log(log, SystemClock())
    monkeypatch.setattr(reading, "_REMEMBERED", 1)
    forgetful = verify_log(log, SystemClock())

    assert 0 < remembering.artifacts_checked < forgetful.artifacts_checked
    assert remembering.artifacts_missing == forgetful.artifacts_missing == 0
    assert verify_log(log, SystemClock(), artifacts=False).artifacts_checked == 0


def test_the_history_knows_starts_ends_and_resumptions(log: Path) -> None:
    runs = list(verified(log).history.runs.values())
    kinds = [record["kind"] for record in read_records(log)]

    assert [run.resumed for run in runs] == [0, 1, 0]
    assert [run.started_index for run in runs] == [n for n, kind in enumerate(kinds) if kind == "run.started"]
    assert [run.finished_index for run in runs] == [
        n for n, kind in enumerate(kinds) if kind == "run.finished"
    ]
    assert all(run.whole for run in runs)


def test_trials_that_get_lost_between_resumptions_add_up_over_the_looks_at_a_candidate(
    tmp_path: Path,
) -> None:
    root = write_bench(tmp_path / "bench", cases=["one", "two"])
    for _ in range(2):
        record_run(root, tmp_path / "runs", trials=4)
    start, finish, *second = read_records(tmp_path / "runs")

    def resumed(known: int) -> dict[str, Any]:
        return {**start, "kind": "run.resumed", "body": {"finished_trials": known}}

    write_log(tmp_path / "runs", [start, *map(resumed, (3, 3, 5, 2, 4, 1)), finish, *second])
    log = verified(tmp_path / "runs")
    first, latest = log.history.runs.values()

    assert (first.resumed, first.lost_trials, latest.lost_trials) == (6, 3 + 3, 0)
    assert log.history.lost_trials(first) == log.history.lost_trials(latest) == 6
    assert log.notes == [f"run {first.run_id} was resumed without 6 trials that it had measured"]


def test_a_clock_that_goes_back_is_noted_with_the_first_record_and_the_count(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    for _ in range(2):
        record_run(root, tmp_path / "runs")
    assert verified(tmp_path / "runs").notes == []
    early = dt.datetime(2001, 1, 1, tzinfo=dt.UTC).isoformat().replace("+00:00", "Z")

    def go_back(record: dict[str, Any]) -> None:
        record["recorded_at"] = early
        if record["kind"] == "run.finished":
            record["body"]["report"]["ended_at"] = early

    for index in (1, 2):
        forge(tmp_path / "runs", index, go_back)

    assert verified(tmp_path / "runs").notes == [
        "the clock went back: 2 records from 00000001.json on with a date before that of an earlier record"
    ]
