"""Stored outcomes that end a run, the lock of the log, and files that are removed or hashed without end."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codegenie.eval.bench import loading
from codegenie.eval.canonical import canonical_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.log import artifacts, disk
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.models import BenchRunReport
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import ForeignAgent, judged, refused, rubric_that, written
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.logs import record_run
from tests.support.stores import tagged

CASES = ("one", "two")


def measure(room: Path) -> BenchRunReport:
    """Measure the right agent on two cases, with a store."""
    return measured(room).report


def measured(room: Path) -> RecordedRun:
    if not (room / "bench").exists():
        write_bench(room / "bench", cases=CASES)
    return record_run(room / "bench", room / "runs", ForeignAgent(), cache_dir=room / "cache")


def entry(room: Path, kind: str) -> Path:
    (file,) = (room / "cache" / kind / TASK_CLASS / "one").iterdir()
    return file


def poison(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the value of an entry, with a right tag behind it."""
    value = json.loads(file.read_bytes()[:-65])
    edit(value["value"])
    file.write_bytes(tagged(file.parents[3], canonical_json(value)))


def passed(report: BenchRunReport) -> str:
    return f"{report.passed_count} of 2 passed"


@twin("cost_beyond_every_record")
@twin("stored_cancellation")
@twin("directory_in_place_of_an_entry")
def honest_store(room: Path) -> Outcome:
    measure(room)
    return Outcome(passed(measure(room)))


@attack("cost_beyond_every_record")
def cost_beyond_every_record(room: Path) -> Outcome:
    measure(room)
    poison(entry(room, "outputs"), lambda value: value.update(cost_usd=1e300))
    try:
        again = measured(room)
    except Exception as error:  # noqa: BLE001 - whatever ends the run is the harm
        return Outcome("ended", f"the run ends in a {type(error).__name__}")
    return Outcome("measured again" if again.notes else passed(again.report))


@attack("stored_cancellation")
def stored_cancellation(room: Path) -> Outcome:
    measure(room)
    cancelled = [{"code": "sut.cancelled", "severity": "block", "detail": None}]
    poison(
        entry(room, "scores"),
        lambda value: value.update(passed=False, score=0.0, failure_modes=cancelled),
    )
    report = measure(room)
    return Outcome(passed(report), None if report.complete else "no run is ever complete")


@attack("directory_in_place_of_an_entry")
def directory_in_place_of_an_entry(room: Path) -> Outcome:
    measure(room)
    file = entry(room, "outputs")
    file.unlink()
    file.mkdir()
    reports: list[BenchRunReport] = []
    met = refused(lambda: reports.append(measure(room)))
    if not reports:
        return Outcome(met, "the run ends after its agent was paid")
    return Outcome(passed(reports[0]))


@contextmanager
def smaller(module: Any, **limits: float) -> Iterator[None]:  # noqa: ANN401 - a module of the harness
    """Let a module have smaller limits, so that the attack need not be as large as the real ones."""
    module.LIMITS = replace(LIMITS, **limits)  # type: ignore[arg-type]
    try:
        yield
    finally:
        module.LIMITS = LIMITS


def measured_beside(room: Path, lock: int | None) -> Outcome:
    (room / "runs").mkdir()
    descriptor = os.open(room / "runs" / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if lock is not None:
            fcntl.flock(descriptor, lock)
        with smaller(disk, lock_seconds=0.2):
            return Outcome(refused(lambda: measure(room)))
    finally:
        os.close(descriptor)


@attack("log_locked_by_a_stranger")
def log_locked_by_a_stranger(room: Path) -> Outcome:
    return measured_beside(room, fcntl.LOCK_EX)


@twin("log_locked_by_a_stranger")
def log_open_elsewhere(room: Path) -> Outcome:
    return measured_beside(room, None)


_LEAVES = """\
import os
os.mkdir("left")
for number in range({count}):
    open(f"left/{{number}}", "w").close()
sys.stdout.buffer.write({answer!r})
"""
_LOOKS = """\
import os
beside = [name for name in os.listdir("..") if os.path.isdir(f"../{{name}}/left")]
with open({witness!r}, "w") as file:
    file.write(" ".join(beside))
"""


def left_behind(room: Path, count: int) -> Outcome:
    """Leave files behind in the first two cases, and let the third look whether it had to wait."""
    look = _LOOKS.format(witness=str(room / "witness"))
    later = f"if request['case']['case_id'] == 'next':\n{_indented(look)}\n"
    leaves = f"else:\n{_indented(_LEAVES.format(count=count, answer=written()))}\n"
    answer = f"sys.stdout.buffer.write({written()!r})\n"
    rubric = rubric_that(later + leaves + "if request['case']['case_id'] == 'next':\n    " + answer)
    write_bench(room / "bench", rubric, ("honest", "hostile", "next"))
    runner = Runner()
    report = run_planned(runner, room)
    gone = (room / "witness").read_text(encoding="utf-8") == ""
    harm = "the next case began when all of it was gone" if gone and count > LIMITS.removed_at_once else None
    return judged(report, lambda _report: harm)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def run_planned(runner: Runner, room: Path) -> BenchRunReport:
    return record_run(room / "bench", room / "runs", right_answer, runner=runner, concurrency=1).report


@attack("ten_thousand_files_left_behind")
def ten_thousand_files_left_behind(room: Path) -> Outcome:
    return left_behind(room, 20_000)


@twin("ten_thousand_files_left_behind")
def ten_files_left_behind(room: Path) -> Outcome:
    return left_behind(room, 10)


def planned(room: Path, size: int) -> Outcome:
    files = {"input/large": "x" * size}
    write_bench(room / "bench", cases=[CaseFiles("one", files), CaseFiles("two", files)])
    with smaller(loading, bench_bytes=100_000):
        met = refused(lambda: Runner().plan(task_class_name=TASK_CLASS, bench_root=room / "bench"))
    return Outcome(met, "it is hashed as a whole" if met == "accepted" and size > 50_000 else None)


@attack("bench_of_sparse_files")
def bench_of_sparse_files(room: Path) -> Outcome:
    return planned(room, 60_000)


@twin("bench_of_sparse_files")
def bench_of_small_files(room: Path) -> Outcome:
    return planned(room, 40_000)


_TALKS = """\
import json, os, sys
request = json.load(sys.stdin)
sys.stderr.write((request["case"]["case_id"] + " ") * {words})
answer = {{"passed": True, "score": 1.0, "breakdown": {{}}, "failure_modes": []}}
json.dump(answer, sys.stdout)
"""


def left_on_the_disk(room: Path, words: int) -> Outcome:
    """Measure six cases whose rubric says so many words, where a run may keep 100 kB."""
    write_bench(room / "bench", _TALKS.format(words=words), [f"case-{number}" for number in range(6)])
    with smaller(artifacts, run_artifact_bytes=100_000, run_log_bytes=50_000):
        recorded = record_run(room / "bench", room / "runs", right_answer)
    kept = sum(file.stat().st_size for file in (room / "runs" / "artifacts").rglob("*") if file.is_file())
    passed_count = recorded.report.passed_count
    return Outcome(f"{passed_count} of 6 passed", "the disk fills" if kept > 100_000 else None)


@attack("artefacts_without_end")
def artefacts_without_end(room: Path) -> Outcome:
    return left_on_the_disk(room, 5_000)


@twin("artefacts_without_end")
def artefacts_of_a_few_words(room: Path) -> Outcome:
    return left_on_the_disk(room, 5)
