"""Runner: plan, execute, run_eval. Wires the line and decides nothing."""

import datetime as dt
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Required, TypedDict, Unpack

from codegenie import __version__
from codegenie.eval.aggregation import TrialKey, build_report
from codegenie.eval.canonical import digest_json
from codegenie.eval.fanout import fan_out
from codegenie.eval.isolation.launcher import rubric_runner
from codegenie.eval.loader import BenchRoot, load_cases, load_task_class
from codegenie.eval.models import (
    BenchCase,
    BenchRunReport,
    RunHeader,
    RunOptions,
    RunPlan,
    Selection,
    TrialScore,
)
from codegenie.eval.planning import CaseFilter, build_plan, check_filter, describe_filter, wanted_cases
from codegenie.eval.ports import Clock, Progress, RubricRunner, SutRunner, SystemUnderTest
from codegenie.eval.sanitising import Redactor
from codegenie.eval.snapshot import CaseSnapshots, run_directory
from codegenie.eval.suts.in_process import InProcessSut
from codegenie.eval.trial import Budget, Stop, TrialParts, cancelled_score, run_trial


class SystemClock:
    """The machine's clocks."""

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        """Return seconds that never step."""
        return time.monotonic()


class SilentProgress:
    """Says nothing."""

    def finished(self, case_id: str, trial: int, score: TrialScore) -> None:
        """Hear that a trial has its score."""


class PlanArguments(TypedDict, total=False):
    """The arguments of `Runner.plan`."""

    task_class_name: Required[str]
    bench_root: BenchRoot
    out_dir: str | Path | None
    case_filter: CaseFilter
    options: RunOptions | None


class Runner:
    """Runs a task class against a system under test, with the default parts unless others are given."""

    def __init__(self, *, clock: Clock | None = None, progress: Progress | None = None) -> None:
        self._clock = clock or SystemClock()
        self._progress = progress or SilentProgress()

    def plan(
        self,
        *,
        task_class_name: str,
        bench_root: BenchRoot = "bench",
        out_dir: str | Path | None = None,
        case_filter: CaseFilter = None,
        options: RunOptions | None = None,
    ) -> RunPlan:
        """Load and check everything that will be run. Raises before any system under test is asked."""
        task_class = load_task_class(task_class_name, bench_root=bench_root)
        cases, available = load_cases(task_class, wanted_cases(case_filter))
        check_filter(case_filter, [case.case_id for case in cases])
        selection = Selection(
            kind="all" if case_filter is None else "partial",
            case_filter=describe_filter(case_filter),
            available_cases=available,
        )
        plan = build_plan(task_class, cases, selection, options)
        return plan if out_dir is None else plan.model_copy(update={"out_dir": Path(out_dir)})

    async def execute(
        self,
        plan: RunPlan,
        *,
        system_under_test: SystemUnderTest | SutRunner,
        stop: Stop | None = None,
    ) -> BenchRunReport:
        """Run every planned trial and return the report; every planned case is in it."""
        stop = stop or Stop()
        sut = (
            system_under_test if isinstance(system_under_test, SutRunner) else InProcessSut(system_under_test)
        )
        started = self._clock.now()
        async with AsyncExitStack() as held:
            directory = held.enter_context(run_directory())
            held.push_async_callback(sut.close)
            rubrics = rubric_runner(plan.options.isolation, directory)
            held.push_async_callback(rubrics.close)
            parts = TrialParts(
                task_class=plan.task_class,
                store=CaseSnapshots(plan.task_class, directory),
                sut=sut,
                rubrics=rubrics,
                redactor=Redactor(os.environ),
                clock=self._clock,
                stop=stop,
                budget=Budget(plan.options.max_cost_usd, stop),
                timeout_seconds=plan.options.timeout_seconds,
            )
            await stop.unless_agents_stop(sut.prepare())
            outcomes = await self._run_trials(plan, parts)
        for case, trial in _planned(plan):
            outcomes.setdefault((case.case_id, trial), cancelled_score(stop.reason))
        return build_report(plan, outcomes, _header(plan, sut, rubrics, (started, self._clock.now())))

    async def run_eval(
        self, *, system_under_test: SystemUnderTest | SutRunner, **what: Unpack[PlanArguments]
    ) -> BenchRunReport:
        """Plan and execute; takes what `plan` takes."""
        return await self.execute(self.plan(**what), system_under_test=system_under_test)

    async def _run_trials(self, plan: RunPlan, parts: TrialParts) -> dict[TrialKey, TrialScore]:
        outcomes: dict[TrialKey, TrialScore] = {}

        async def work(item: tuple[BenchCase, int]) -> None:
            if parts.stop.requested:
                return
            case, trial = item
            score = await run_trial(parts, case, trial)
            outcomes[case.case_id, trial] = score
            self._progress.finished(case.case_id, trial, score)

        await fan_out(_planned(plan), work, plan.options.concurrency)
        return outcomes


def _planned(plan: RunPlan) -> Iterator[tuple[BenchCase, int]]:
    return ((case, trial) for case in plan.cases for trial in range(plan.options.trials))


def _header(
    plan: RunPlan, sut: SutRunner, rubrics: RubricRunner, span: tuple[dt.datetime, dt.datetime]
) -> RunHeader:
    started, ended = span
    return RunHeader(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}",
        task_class=plan.task_class.name,
        harness_version=__version__,
        sut=sut.identity,
        sut_identity_digest=digest_json("sut-identity.v1", sut.identity.model_dump(mode="json")),
        rubric_digest=plan.task_class.rubric_digest,
        taxonomy_digest=plan.task_class.taxonomy_digest,
        case_set_digest=plan.case_set_digest,
        sut_boundary=sut.boundary,
        isolation_class=rubrics.isolation_class,
        selection=plan.selection,
        trials=plan.options.trials,
        started_at=started,
        ended_at=ended,
    )
