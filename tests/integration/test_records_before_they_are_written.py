"""The writer of the log is its first reader: what `verify` would refuse is not written, nor followed."""

import asyncio
import datetime as dt
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval import aggregation
from codegenie.eval.errors import ChainTamperDetected, HarnessFailure, SettingsInvalid
from codegenie.eval.estimators.bounds import bca_lower
from codegenie.eval.log.chain import ChainVerifier, record_name
from codegenie.eval.log.disk import HEAD, AuditLog
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.records import LogRecord, StartedRecord
from codegenie.eval.models import BenchCase, RunOptions, RunPlan
from codegenie.eval.planning import case_set_digest
from codegenie.eval.runner import Runner
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import answered, call, environment, eval_argv, run_argv, write_agent
from tests.support.logs import forge, read_records, record_files, record_run, verified


class Agent:
    """Answers rightly, counts the questions and does something else on the way."""

    def __init__(self, deed: Callable[[], object] = lambda: None) -> None:
        self.asked = 0
        self._deed = deed

    async def __call__(self, case: Any) -> dict[str, Any]:  # noqa: ANN401 - a SutCase
        self.asked += 1
        self._deed()
        return await right_answer(case)


# --- nothing is written that does not hold ---------------------------------------------------------


def test_a_log_that_is_removed_during_a_run_takes_no_finish_without_a_start(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    with pytest.raises(ChainTamperDetected, match="disappeared while the log was in use"):
        record_run(root, log, Agent(lambda: shutil.rmtree(log)))
    assert record_files(log) == []
    record_run(root, log, Agent())
    assert [record["kind"] for record in read_records(log)] == ["run.started", "run.finished"]
    verified(log)


def test_a_log_that_is_removed_and_begun_anew_during_a_run_takes_no_finish_of_it(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"

    for _ in range(2):
        record_run(root, tmp_path / "other", Agent())

    def replace() -> None:
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "other", log)

    with pytest.raises(ChainTamperDetected):
        record_run(root, log, Agent(replace))
    assert len(record_files(log)) == 4
    verified(log)


def copied_plan(root: Path, log: Path, **changes: object) -> RunPlan:
    plan = Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=root,
        out_dir=log,
        options=RunOptions(isolation="subprocess"),
    )
    return plan.model_copy(update=changes)


@pytest.mark.parametrize("change", ["fewer cases", "a case twice"])
def test_a_copied_plan_that_contradicts_itself_is_refused_before_the_agent_is_asked(
    tmp_path: Path, change: str
) -> None:
    root, log = write_bench(tmp_path / "bench", cases=["one", "two"]), tmp_path / "runs"
    cases = copied_plan(root, log).cases
    plan = copied_plan(root, log, cases=cases[:1] if change == "fewer cases" else (cases[0], *cases))
    agent = Agent()
    with pytest.raises(HarnessFailure, match="a reader of the log would refuse") as caught:
        asyncio.run(Runner().execute(plan, system_under_test=agent))
    assert (caught.value.exit_code, agent.asked, record_files(log)) == (4, 0, [])
    asyncio.run(Runner().execute(copied_plan(root, log), system_under_test=agent))
    assert len(verified(log).hashes) == 2


class SteppingClock(SystemClock):
    """Steps by some days from its nth look on."""

    def __init__(self, looks: int, days: int) -> None:
        self._looks, self._days = looks, days

    def now(self) -> dt.datetime:
        self._looks -= 1
        return super().now() + dt.timedelta(days=self._days if self._looks < 0 else 0)


@pytest.mark.parametrize("days", [-3, 3])
@pytest.mark.parametrize("looks", [2, 4])
def test_a_clock_that_steps_by_days_costs_nothing_that_was_measured(
    tmp_path: Path, days: int, looks: int
) -> None:
    """After the look for the run's id, and after the one for the report."""
    root, log, cache = write_bench(tmp_path / "bench"), tmp_path / "runs", tmp_path / "cache"
    agent, runner = Agent(), Runner(clock=SteppingClock(looks, days))
    with pytest.raises(HarnessFailure, match="more than a day"):
        record_run(root, log, agent, runner=runner, cache_dir=cache)
    assert [record["kind"] for record in read_records(log)] == ["run.started"]
    verified(log)
    record_run(root, log, agent, cache_dir=cache)
    kinds = [record["kind"] for record in read_records(log)]
    assert (kinds, agent.asked) == (["run.started", "run.resumed", "run.finished"], 1)
    verified(log)


def test_no_run_starts_twice(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    writing = AuditLog(log, SystemClock())
    (started, _) = writing.records()
    assert isinstance(started, StartedRecord)
    with pytest.raises(HarnessFailure, match="starts twice"):
        writing.append(started.body, started.run_id)
    assert len(verified(log).hashes) == 2


class NaiveClock(SystemClock):
    def now(self) -> dt.datetime:
        return dt.datetime.now()  # noqa: DTZ005 - the mistake


class FarClock(SystemClock):
    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.timezone(dt.timedelta(hours=9)))


def test_a_clock_without_a_zone_is_a_typed_refusal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    agent = Agent()
    with pytest.raises(SettingsInvalid, match="without a zone"):
        record_run(root, log, agent, runner=Runner(clock=NaiveClock()))
    assert agent.asked == 0
    assert not log.exists()


def test_a_clock_of_another_zone_is_written_down_in_utc(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    report = record_run(root, log, Agent(), runner=Runner(clock=FarClock())).report
    assert all(record["recorded_at"].endswith("Z") for record in read_records(log))
    named = dt.datetime.strptime(report.run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    assert abs(named - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)
    verified(log)


# --- nothing is written behind what does not hold --------------------------------------------------


def improve(record: dict[str, Any]) -> None:
    record["body"]["report"]["passed_count"] = 7


def test_a_log_that_was_chained_anew_around_a_forged_report_stops_the_next_run(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    calls = write_agent(tmp_path)
    assert call(run_argv(), tmp_path).returncode == 0
    forge(tmp_path / ".codegenie/eval/runs", 1, improve)
    calls.unlink()
    done = call(run_argv("--json"), tmp_path)
    assert done.returncode == 3
    assert "passed_count is 7" in answered(done)["error"]["message"]
    assert not calls.exists(), "no agent is asked for what a broken log could not prove"


def test_a_log_that_is_broken_during_a_run_takes_no_finish(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    record_run(root, tmp_path / "copy", Agent())

    def break_it() -> None:
        shutil.copyfile(tmp_path / "copy" / record_name(0), log / record_name(3))

    with pytest.raises(ChainTamperDetected):
        record_run(root, log, Agent(break_it))
    assert [record["kind"] for record in read_records(log)][2:] == ["run.started", "run.started"]


def test_the_last_record_is_looked_at_again_before_another_follows_it(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"

    def exchange() -> None:
        path = log / record_name(0)
        path.write_bytes(path.read_bytes().replace(b'"trials":1', b'"trials":2'))

    with pytest.raises(ChainTamperDetected, match="not the record that HEAD names"):
        record_run(root, log, Agent(exchange))
    assert len(record_files(log)) == 1


@pytest.mark.parametrize("number", range(4))
def test_a_sync_that_fails_is_a_failure_of_the_run_and_not_a_record_that_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of the record, of its name, of the new HEAD and of its name."""
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    writing = AuditLog(log, SystemClock())
    (started, _) = writing.records()
    assert isinstance(started, StartedRecord)
    before = (log / HEAD).read_bytes()
    fsync, left = os.fsync, [number]

    def broken_disk(descriptor: int) -> None:
        if not left[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left[0] -= 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", broken_disk)
    with pytest.raises(HarnessFailure, match="cannot write the audit log: Input/output error"):
        writing.append(started.body, "another")
    monkeypatch.undo()
    assert ((log / HEAD).read_bytes() == before) == (number < 3)
    verified(log)


def test_a_start_that_names_a_case_twice_is_refused_though_its_digest_is_right(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())

    def double(record: dict[str, Any]) -> None:
        body = record["body"]
        body["cases"] *= 2
        cases = [BenchCase.model_validate_json(json.dumps(case)) for case in body["cases"]]
        body |= {"case_set_digest": case_set_digest(cases)}
        body["selection"]["available_cases"] = 2

    forge(log, 0, double)
    with pytest.raises(ChainTamperDetected, match="one stands twice"):
        verified(log)


# --- nothing twice ---------------------------------------------------------------------------------


def test_a_run_and_its_verdict_verify_each_record_once_and_resample_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    for _ in range(3):
        record_run(root, log, Agent())
    judged, resampled = Counter[str](), Counter[str]()
    judge, resample = ChainVerifier.judged, bca_lower

    def counted_judge(verifier: ChainVerifier, file: str, raw: bytes, *, bounds: bool = True) -> LogRecord:
        judged[file] += 1
        return judge(verifier, file, raw, bounds=bounds)

    def counted_resample(means: Any) -> Any:  # noqa: ANN401 - what it takes and gives
        resampled["bca"] += 1
        return resample(means)

    monkeypatch.setattr(ChainVerifier, "judged", counted_judge)
    monkeypatch.setattr(aggregation, "bca_lower", counted_resample)
    recorded = record_run(root, log, Agent())
    assert recorded.log is not None
    found = VerifiedLog.continued(recorded.log)
    assert found.finished(found.find(recorded.report.run_id)).report == recorded.report
    assert judged == {record_name(index): 1 for index in range(8)}
    assert resampled["bca"] == 2, "once for the report, once to verify it"
    found.finished(found.find(next(iter(found.history.runs))))
    assert resampled["bca"] == 3, "of a run that is asked for"


@pytest.mark.parametrize("name", ["lower_bound_95", "certified_lower_95", "gaffke_lower_95"])
def test_a_forged_bound_is_found_by_whoever_asks_about_the_run(tmp_path: Path, name: str) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    forge(log, 1, lambda record: record["body"]["report"].update({name: 0.9}))
    with pytest.raises(ChainTamperDetected, match=name):
        verified(log)
    found = verify_log(log, SystemClock())
    with pytest.raises(ChainTamperDetected, match=name):
        found.finished(found.find("latest"))


# --- readers hold nobody up ------------------------------------------------------------------------

READS_FOR_EVER = """\
import sys
from pathlib import Path
from codegenie.eval.inspection import verify_log
from codegenie.eval.system.clock import SystemClock

print("reading", flush=True)
while True:
    verify_log(Path(sys.argv[1]), SystemClock())
"""


def test_a_reader_that_is_stopped_wherever_it_is_stops_no_writer(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    argv = [sys.executable, "-c", READS_FOR_EVER, str(log)]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            reader.stdout.readline()
            for step in range(10):
                time.sleep(0.01 + step * 0.003)
                reader.send_signal(signal.SIGSTOP)
                locks = Path("/proc/locks").read_text(encoding="ascii")
                held = [line for line in locks.splitlines() if line.split()[4] == str(reader.pid)]
                assert held == []
                reader.send_signal(signal.SIGCONT)
        finally:
            reader.kill()


def test_a_stranger_who_may_only_read_the_directory_cannot_lock_a_writer_out(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    descriptor = os.open(log, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        record_run(root, log, Agent())
    finally:
        os.close(descriptor)
    assert (log / ".lock").stat().st_mode & 0o777 == 0o600
    assert len(verified(log).hashes) == 4


def test_a_record_that_is_being_written_is_not_taken_for_one_that_a_crash_left(tmp_path: Path) -> None:
    root, log = write_bench(tmp_path / "bench"), tmp_path / "runs"
    record_run(root, log, Agent())
    new = (log / HEAD).read_bytes()
    first = AuditLog(log, SystemClock())
    next(first.records())
    (log / HEAD).write_bytes(first.link.encode())
    follow = ["sh", "-c", 'sleep 0.1; printf %s "$1" > "$2.new"; mv "$2.new" "$2"', "sh"]
    with subprocess.Popen([*follow, new.decode(), str(log / HEAD)]):
        found = verify_log(log, SystemClock())
    assert found.notes == []
    assert len(found.hashes) == 1, "what HEAD named when the log was listed"
    assert call(eval_argv("verify", "--out", "runs"), tmp_path).returncode == 0
