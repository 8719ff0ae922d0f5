"""Many writers, crashes, full and read-only disks, stepping clocks: what is in the log stays, and holds."""

import datetime as dt
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from codegenie.eval.errors import ChainTamperDetected
from codegenie.eval.log.chain import Link, record_hash, record_name
from codegenie.eval.log.disk import HEAD, AuditLog
from codegenie.eval.log.records import ExamFinished
from codegenie.eval.runner import Runner
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import asked, call, environment, eval_argv, run_argv, write_agent
from tests.support.logs import read_records, record_files, record_run, verified
from tests.support.sampling import sampled

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXAM = ExamFinished(task_class=TASK_CLASS, case_set_digest="0" * 64, rubric_digest="1" * 64, passed=True)

WRITER = """\
import sys
from pathlib import Path
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.records import ExamFinished
from codegenie.eval.system.clock import SystemClock

log = AuditLog(Path(sys.argv[1]), SystemClock())
exam = ExamFinished(task_class="c", case_set_digest="0" * 64, rubric_digest="1" * 64, passed=True)
for number in range(int(sys.argv[3])):
    log.append(exam, f"{sys.argv[2]}-{number}")
"""


def writer(log: Path, name: str, records: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(log), name, str(records)], env=environment())


def append(log: Path, run_id: str = "exam-1") -> list[str]:
    """Append a record and return what the writer noted."""
    writing = AuditLog(log, SystemClock())
    writing.append(EXAM, run_id)
    return writing.notes


# --- many writers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("records", sampled([40, 200], (40).__eq__))
def test_eight_processes_append_many_records_each_and_none_is_lost(tmp_path: Path, records: int) -> None:
    writers = [writer(tmp_path / "runs", f"w{number}", records) for number in range(8)]
    assert [one.wait(120) for one in writers] == [0] * 8
    assert len(verified(tmp_path / "runs").hashes) == 8 * records
    written = [record["run_id"] for record in read_records(tmp_path / "runs")]
    assert sorted(written) == sorted(f"w{name}-{number}" for name in range(8) for number in range(records))
    for name in range(8):
        own = [run_id for run_id in written if run_id.startswith(f"w{name}-")]
        assert own == [f"w{name}-{number}" for number in range(records)]


def test_two_logs_of_one_process_do_not_overwrite_each_other(tmp_path: Path) -> None:
    def write(name: str) -> None:
        log = AuditLog(tmp_path, SystemClock())
        for number in range(50):
            log.append(EXAM, f"{name}-{number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(verified(tmp_path).hashes) == 150


def test_a_log_can_be_verified_while_it_is_written(tmp_path: Path) -> None:
    writing = writer(tmp_path, "w", 200)
    seen = []
    while writing.poll() is None:
        seen.append(len(verified(tmp_path).hashes))
    assert writing.wait(60) == 0
    assert seen == sorted(seen)
    assert len(verified(tmp_path).hashes) == 200


def test_two_concurrent_runs_of_one_class_finish(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", cases=["one", "two", "three"])
    calls = write_agent(tmp_path, seconds=0.2)
    runs = [
        subprocess.Popen(run_argv("--json"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    documents = [json.loads(run.communicate(timeout=240)[0]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert documents[0]["report"]["run_id"] != documents[1]["report"]["run_id"]
    records = read_records(tmp_path / ".codegenie/eval/runs")
    assert sorted(record["kind"] for record in records) == ["run.finished"] * 2 + ["run.started"] * 2
    assert sorted(asked(calls)) == sorted(["one", "two", "three"] * 2)
    assert call(eval_argv("verify"), tmp_path).returncode == 0


# --- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_crash_between_record_and_head_is_noted_and_the_next_writer_moves_head(
    tmp_path: Path, before: int
) -> None:
    for number in range(before):
        append(tmp_path, f"exam-{number}")
    old = (tmp_path / HEAD).read_bytes() if before else Link().encode()
    append(tmp_path, "crashed")
    (tmp_path / HEAD).write_bytes(old)
    assert any("one record behind" in note for note in verified(tmp_path).notes)
    notes = append(tmp_path, "next")
    assert notes == [f"HEAD was one record behind after a crash; it now covers {record_name(before)}"]
    assert [record["run_id"] for record in read_records(tmp_path)][before:] == ["crashed", "next"]
    assert verified(tmp_path).notes == []


CRASHES_BEHIND_THE_LINK = """\
import os

link = os.link
os.link = lambda *paths: (link(*paths), os._exit(9))
"""


@pytest.mark.parametrize("before", [0, 2])
def test_a_process_that_dies_between_record_and_head_loses_nothing(tmp_path: Path, before: int) -> None:
    """The very first record, too: HEAD lies there before it, so nobody takes it for removed."""
    for number in range(before):
        append(tmp_path, f"exam-{number}")
    argv = [sys.executable, "-c", CRASHES_BEHIND_THE_LINK + WRITER, str(tmp_path), "crashed", "1"]
    assert call(argv, tmp_path).returncode == 9
    assert [record["run_id"] for record in read_records(tmp_path)][before:] == ["crashed-0"]
    assert len(verified(tmp_path).notes) == 1
    append(tmp_path, "next")
    assert len(verified(tmp_path).hashes) == before + 2
    assert verified(tmp_path).notes == []


def test_a_record_is_on_the_disk_before_head_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the disk holds a beginning of this list."""
    append(tmp_path)
    steps: list[str] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def noted_fsync(descriptor: int) -> None:
        steps.append(f"sync {kind_of(Path(os.readlink(f'/proc/self/fd/{descriptor}')), tmp_path)}")
        fsync(descriptor)

    def noted_link(source: Path, target: Path) -> None:
        steps.append(f"link {target.name}")
        link(source, target)

    def noted_replace(source: Path, target: Path) -> None:
        steps.append(f"replace {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "replace", noted_replace)
    append(tmp_path)
    assert steps == [
        "sync new record",
        f"link {record_name(1)}",
        "sync directory",
        "sync new HEAD",
        "replace HEAD",
        "sync directory",
    ]


def kind_of(path: Path, log: Path) -> str:
    if path == log:
        return "directory"
    return "new HEAD" if path.name.startswith(f".{HEAD}.") else "new record"


def test_a_run_says_that_head_was_moved(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    log = tmp_path / "runs"
    record_run(root, log, right_answer)
    old = (log / HEAD).read_bytes()
    append(log)
    (log / HEAD).write_bytes(old)
    recorded = record_run(root, log, right_answer)
    assert any("now covers 00000002.json" in note for note in recorded.notes)
    assert len(verified(log).hashes) == 5


def test_a_head_two_records_behind_is_refused(tmp_path: Path) -> None:
    append(tmp_path)
    old = (tmp_path / HEAD).read_bytes()
    append(tmp_path)
    append(tmp_path)
    (tmp_path / HEAD).write_bytes(old)
    with pytest.raises(ChainTamperDetected, match="HEAD fails verification: it names 1 records"):
        append(tmp_path)
    assert len(record_files(tmp_path)) == 3


@pytest.mark.parametrize("forged", ["previous", "index", "nothing"])
def test_head_moves_only_over_a_record_that_follows_it(tmp_path: Path, forged: str) -> None:
    append(tmp_path)
    old = (tmp_path / HEAD).read_bytes()
    append(tmp_path)
    (tmp_path / HEAD).write_bytes(old)
    path = tmp_path / record_name(1)
    record = json.loads(path.read_bytes())
    record |= {"previous": {"previous": "a" * 64}, "index": {"index": 5}, "nothing": {}}[forged]
    path.write_text(json.dumps(record, sort_keys=True, separators=(",", ":")))
    if forged == "nothing":
        append(tmp_path)
        return
    with pytest.raises(ChainTamperDetected) as caught:
        append(tmp_path)
    assert caught.value.where == record_name(1)
    assert (tmp_path / HEAD).read_bytes() == old


def test_nothing_is_written_behind_a_record_that_head_does_not_name(tmp_path: Path) -> None:
    append(tmp_path)
    append(tmp_path)
    path = tmp_path / record_name(1)
    path.write_bytes(path.read_bytes().replace(b"exam-1", b"exam-2"))
    with pytest.raises(ChainTamperDetected) as caught:
        append(tmp_path)
    assert caught.value.where == HEAD
    path.unlink()
    with pytest.raises(ChainTamperDetected):
        append(tmp_path)
    assert len(record_files(tmp_path)) == 1


def test_a_missing_head_beside_records_is_refused(tmp_path: Path) -> None:
    append(tmp_path)
    (tmp_path / HEAD).unlink()
    with pytest.raises(ChainTamperDetected) as caught:
        append(tmp_path)
    assert caught.value.where == HEAD


def test_writers_that_are_killed_leave_a_log_that_holds(tmp_path: Path) -> None:
    chance = random.Random(20261115)  # noqa: S311 - moments, not secrets
    for number in range(8):
        before = len(record_files(tmp_path))
        writing = writer(tmp_path, f"killed{number}", 100_000)
        wait_for_records(tmp_path, before + 1)
        time.sleep(chance.uniform(0, 0.02))
        writing.kill()
        writing.wait(60)
        assert len(verified(tmp_path).hashes) > before
        append(tmp_path, f"after{number}")
    written = [record["run_id"] for record in read_records(tmp_path)]
    assert len(set(written)) == len(written) == len(verified(tmp_path).hashes)
    assert {f"{name}{number}" for name in ("after", "killed") for number in range(8)} == {
        run_id.partition("-")[0] for run_id in written
    }


def wait_for_records(log: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(record_files(log)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_ctrl_c_on_a_writer_is_no_crash_of_the_log(tmp_path: Path) -> None:
    writing = writer(tmp_path, "w", 100_000)
    wait_for_records(tmp_path, 5)
    writing.send_signal(signal.SIGTERM)
    writing.wait(60)
    append(tmp_path)
    verified(tmp_path)


def test_what_a_crash_left_behind_is_not_in_the_way(tmp_path: Path) -> None:
    append(tmp_path)
    for name in (record_name(1), HEAD):
        (tmp_path / f".{name}.{os.getpid()}.tmp").write_text("torn")
        (tmp_path / f".{name}.0123456789abcdef.tmp").symlink_to(tmp_path / record_name(0))
    append(tmp_path)
    assert len(verified(tmp_path).hashes) == 2


def test_a_record_that_goes_away_while_the_log_is_read_is_missed(tmp_path: Path) -> None:
    append(tmp_path)
    append(tmp_path)
    reading = AuditLog(tmp_path, SystemClock()).records()
    next(reading)
    (tmp_path / record_name(1)).unlink()
    with pytest.raises(ChainTamperDetected, match="disappeared"):
        next(reading)


# --- clocks ----------------------------------------------------------------------------------------


class ClockThatRunsBackwards(SystemClock):
    """Every look at the wall clock is a day before the last one."""

    def __init__(self) -> None:
        self._days = 0

    def now(self) -> dt.datetime:
        self._days += 1
        return super().now() - dt.timedelta(days=self._days)


def test_a_clock_that_steps_backwards_changes_no_order(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    clock = ClockThatRunsBackwards()
    heads = [
        record_run(root, tmp_path / "runs", right_answer, runner=Runner(clock=clock)).chain_head
        for _ in range(3)
    ]
    records = read_records(tmp_path / "runs")
    times = [record["recorded_at"] for record in records]
    assert times == sorted(times, reverse=True)
    assert [record["index"] for record in records] == list(range(6))
    assert verified(tmp_path / "runs").hashes[1::2] == heads


# --- earlier schemas -------------------------------------------------------------------------------


def test_a_log_of_the_first_schema_is_still_read(tmp_path: Path) -> None:
    log = Path(shutil.copytree(FIXTURES / "log-v1", tmp_path / "runs"))
    assert {record["schema"] for record in read_records(log)} == {"codegenie.eval.record/1"}
    found = verified(log)
    assert [record["kind"] for record in read_records(log)] == [
        "run.started",
        "run.finished",
        "run.started",
        "run.resumed",
        "run.finished",
        "run.started",
        "exam.finished",
    ]
    assert (found.artifacts_checked, found.artifacts_missing) == (6, 0)
    append(log)
    assert len(verified(log).hashes) == 8


def test_a_record_of_a_later_schema_is_refused_and_named(tmp_path: Path) -> None:
    log = Path(shutil.copytree(FIXTURES / "log-v1", tmp_path / "runs"))
    path = log / record_name(6)
    path.write_bytes(path.read_bytes().replace(b"record/1", b"record/3"))
    (log / HEAD).write_bytes(Link(7, record_hash(path.read_bytes())).encode())
    with pytest.raises(ChainTamperDetected, match="schema"):
        verified(log)
