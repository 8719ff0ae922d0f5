"""Cost caps, cancellations and odd callers: everything finished is kept, and nothing is left behind."""

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from codegenie.eval.errors import BenchCaseDigestMismatch
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.models import BenchRunReport, RunOptions, RunPlan, TrialScore
from codegenie.eval.ports import SutCase, SutResult, SystemUnderTest
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from codegenie.eval.suts.python import PythonSut
from tests.support.benches import (
    TASK_CLASS,
    CaseFiles,
    canonical_score,
    outcome,
    right_answer,
    run_bench,
    write_bench,
)

CASES = [f"c{n:02}" for n in range(12)]
SLOW_RUBRIC = "import sys, time\nsys.stdin.read()\ntime.sleep(60)\n"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the run a temporary directory of its own."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def children() -> set[int]:
    """Return the processes below this one, zombies included."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                found.add(int(name))
    return found


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def _nothing_is_left(temporary: Path) -> Iterator[None]:
    before = children(), descriptors()
    yield
    assert (children(), descriptors()) == before
    assert list(temporary.iterdir()) == []


def plan_of(root: Path, **options: Any) -> RunPlan:  # noqa: ANN401 - any field of RunOptions
    return Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=root,
        options=RunOptions(**{"isolation": "subprocess", **options}),
    )


# --- cost -----------------------------------------------------------------------------------------


def spending(amount: float) -> SystemUnderTest:
    async def system(case: SutCase) -> SutResult:
        return SutResult(await right_answer(case), cost_usd=amount)

    return system


@pytest.mark.usefixtures("_nothing_is_left")
def test_a_cost_cap_keeps_what_is_finished_and_cancels_the_rest(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=CASES)
    report = run_bench(root, spending(0.5), concurrency=1, max_cost_usd=1.6)

    scores = dict(report.per_case)
    assert [case_id for case_id in CASES if scores[case_id].passed] == CASES[:4]
    assert all(
        outcome(report, case_id) == ("sut.cancelled", "cost cap of 1.6 USD reached") for case_id in CASES[4:]
    )
    assert not report.complete
    assert (report.scored_count, report.infrastructure_fault_count) == (4, 8)
    assert report.mean_score == round(4 / 12, 6)
    assert report.total_cost_usd is None


def test_a_cap_that_is_reached_exactly_starts_nothing_more(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=CASES[:4])

    assert run_bench(root, spending(0.5), concurrency=1, max_cost_usd=1.0).passed_count == 2
    complete = run_bench(root, spending(0.5), concurrency=1, max_cost_usd=2.0)
    assert (complete.passed_count, complete.complete) == (4, True)


def test_a_cap_of_nothing_lets_what_costs_nothing_finish(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=CASES[:3])

    assert run_bench(root, spending(0.0), max_cost_usd=0).complete


@pytest.mark.usefixtures("_nothing_is_left")
def test_a_cost_cap_cancels_an_agent_that_is_under_way_and_lets_a_paid_for_output_be_judged(
    tmp_path: Path,
) -> None:
    rubric = (
        "import time\ntime.sleep(0.3)\n"
        'print(\'{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []}\')'
    )
    root = write_bench(tmp_path / "bench", rubric, ["b-dear", "c-slow", "d-never"])
    begun, cancelled = threading.Event(), threading.Event()

    async def system(case: SutCase) -> SutResult:
        if case.case_id == "c-slow":
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()
        begun.wait(40)
        return SutResult({}, cost_usd=5.0)

    started = time.monotonic()
    report = run_bench(root, system, concurrency=2, max_cost_usd=1.0)

    assert time.monotonic() - started < 45
    assert cancelled.wait(40)
    assert [case_id for case_id, score in report.per_case if score.passed] == ["b-dear"]
    assert outcome(report, "c-slow")[0] == outcome(report, "d-never")[0] == "sut.cancelled"


# --- cancellation from outside ----------------------------------------------------------------------


class Watching:
    """Progress that lets a test wait for the first finished case."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Hear of it."""
        assert evidence.trial == 0
        assert 0 <= score.score <= 1
        self.seen.append(evidence.case_id)


async def until(condition: Any) -> None:  # noqa: ANN401 - a function without arguments
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("what the test waits for never happened")


@pytest.mark.usefixtures("_nothing_is_left")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("phase", ["sut", "rubric", "python"])
def test_a_run_that_is_cancelled_from_outside_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path, phase: str, times: int
) -> None:
    (tmp_path / "slow_agent.py").write_text(
        "import os, subprocess, time\n\n\ndef solve(case):\n"
        "    subprocess.Popen(['sleep', '60'], start_new_session=True)\n    time.sleep(60)\n"
    )
    monkeypatch.chdir(tmp_path)
    slow = SLOW_RUBRIC if phase == "rubric" else "print(1)"
    root = write_bench(tmp_path / "bench", slow, CASES)
    suts: dict[str, Any] = {
        "sut": lambda _case: asyncio.sleep(3600),
        "rubric": right_answer,
        "python": PythonSut("slow_agent:solve"),
    }
    marks = {"sut": "sut-", "rubric": "rubric-", "python": "sut-"}

    async def run() -> None:
        running = asyncio.ensure_future(
            Runner().execute(plan_of(root, concurrency=3), system_under_test=suts[phase])
        )
        await until(lambda: len(list(temporary.glob(f"*/*{marks[phase]}*"))) >= 3)
        await asyncio.sleep(0.3)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0.002)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 45
    assert _sleepers(tmp_path) == []


def _sleepers(directory: Path) -> list[str]:
    """Return the processes anywhere on the machine that work below `directory`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"TMPDIR={directory}".encode() in environment:
                found.append(name)
    return found


@pytest.mark.usefixtures("_nothing_is_left")
def test_stopping_everything_ends_rubrics_too_and_keeps_what_is_finished(tmp_path: Path) -> None:
    rubric = (
        "import json, sys, time\nrequest = json.load(sys.stdin)\n"
        "if request['case']['case_id'] != 'a-quick':\n    time.sleep(60)\n"
        'print(\'{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []}\')\n'
    )
    root = write_bench(tmp_path / "bench", rubric, ["a-quick", "b-slow", "c-never"])

    async def run() -> BenchRunReport:
        stop, watching = Stop(), Watching()
        running = asyncio.ensure_future(
            Runner(progress=watching).execute(plan_of(root), system_under_test=right_answer, stop=stop)
        )
        await until(lambda: watching.seen)
        stop.everything("ended by a test")
        return await running

    started = time.monotonic()
    report = asyncio.run(run())

    assert time.monotonic() - started < 45
    assert dict(report.per_case)["a-quick"].passed
    assert outcome(report, "b-slow") == outcome(report, "c-never") == ("sut.cancelled", "ended by a test")


@pytest.mark.usefixtures("_nothing_is_left")
def test_a_case_that_changes_under_the_run_ends_it_with_everything_cleaned_up(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=CASES)
    plan = plan_of(root)
    (root / TASK_CLASS / "cases" / "c05" / "expected" / "answer.txt").write_text("edited")

    with pytest.raises(BenchCaseDigestMismatch):
        asyncio.run(Runner().execute(plan, system_under_test=right_answer))


# --- odd callers ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_nothing_is_left")
def test_two_runs_in_one_process_do_not_know_of_each_other(tmp_path: Path) -> None:
    one, other = (write_bench(tmp_path / name, cases=CASES[:4]) for name in ("one", "other"))

    async def both() -> list[BenchRunReport]:
        runs = [Runner().execute(plan_of(root), system_under_test=right_answer) for root in (one, other)]
        return list(await asyncio.gather(*runs))

    first, second = asyncio.run(both())
    assert first.passed_count == second.passed_count == 4
    assert first.run_id != second.run_id
    assert [canonical_score(score) for _, score in first.per_case] == [
        canonical_score(score) for _, score in second.per_case
    ]


@pytest.mark.usefixtures("_nothing_is_left")
def test_a_runner_works_on_a_thread_that_gets_no_signals(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=CASES[:3])
    reports: list[BenchRunReport] = []
    thread = threading.Thread(target=lambda: reports.append(run_bench(root)))
    thread.start()
    thread.join(30)

    assert [report.passed_count for report in reports] == [3]


def test_no_more_trials_are_under_way_than_allowed(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=CASES)
    lock, under_way, most = threading.Lock(), 0, 0

    async def system(case: SutCase) -> Mapping[str, Any]:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        await asyncio.sleep(0.05)
        with lock:
            under_way -= 1
        return await right_answer(case)

    report = run_bench(root, system, concurrency=3, trials=2)

    assert report.passed_count == 12
    assert most == 3


def test_trials_are_numbered_and_a_case_passes_if_all_of_them_do(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=["a", "b"])

    def system(case: SutCase) -> Mapping[str, Any]:
        wrong = case.case_id == "b" and case.trial == 1
        return {"answer": "wrong" if wrong else f"it is {case.case_id}"}

    report = run_bench(root, cast("SystemUnderTest", system), trials=3)
    scores = dict(report.per_case)

    assert (report.trials, report.units, report.passed_count) == (3, 2, 1)
    assert [trial.score for trial in scores["b"].trials] == [1.0, 0.0, 1.0]
    assert (scores["b"].passed, scores["b"].score) == (False, round(2 / 3, 6))


def test_a_timeout_lowers_the_deadline_of_a_case_and_never_raises_it(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=[CaseFiles("a", fields={"sut_wall_clock_seconds": 1}), "b"])
    waiting = cast("SystemUnderTest", lambda _case: threading.Event().wait())

    lowered = run_bench(root, waiting, timeout_seconds=0.2)
    assert outcome(lowered, "a") == outcome(lowered, "b") == ("sut.timeout", "no result within 0.2 s")
    kept = run_bench(root, waiting, timeout_seconds=3600, only=["a"])
    assert outcome(kept, "a") == ("sut.timeout", "no result within 1 s")
