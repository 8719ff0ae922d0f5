"""Runner: plan, execute, record, run_eval. Puts the stages of the line together."""

import datetime as dt
import os
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Required, TypedDict, Unpack

from codegenie.eval.aggregation import TrialKey, build_report, planned_trials, score_cases
from codegenie.eval.errors import HarnessFailure, SettingsInvalid, SutSpecInvalid
from codegenie.eval.evidence import TrialEvidence, boundary_problem, reused_outputs
from codegenie.eval.fanout import fan_out
from codegenie.eval.isolation.launcher import rubric_runner
from codegenie.eval.limits import LIMITS
from codegenie.eval.loader import BenchRoot, load_cases, load_task_class
from codegenie.eval.memory import Explain
from codegenie.eval.models import BenchCase, BenchRunReport, RunOptions, RunPlan, Selection, TrialScore
from codegenie.eval.planning import (
    DEFAULT_OUT_DIR,
    CaseFilter,
    answer_room,
    build_plan,
    check_filter,
    describe_filter,
    wanted_cases,
)
from codegenie.eval.ports import CaseStore, Clock, Progress, SutRunner, SystemUnderTest
from codegenie.eval.recording import RecordedRun, RunParts, RunRecord, begin_run
from codegenie.eval.sanitising import Redactor
from codegenie.eval.settling import settled
from codegenie.eval.snapshot import CaseSnapshots, run_directory
from codegenie.eval.suts.in_process import ForeignSut, InProcessSut
from codegenie.eval.suts.specs import OWN_RUNNERS
from codegenie.eval.trial import Budget, Stop, TrialParts, cancelled_evidence, run_trial


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

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
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

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        progress: Progress | None = None,
        explain: Explain | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._progress = progress or SilentProgress()
        self._explain = explain

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
        # Resolved once: a link that is turned meanwhile must not take the finish to another log.
        place = resolved(Path(out_dir or DEFAULT_OUT_DIR)).absolute()
        for kept in (place, None if options is None else options.cache_dir):
            _check_outside_benches(kept)
        task_class = load_task_class(task_class_name, bench_root=bench_root)
        cases, available = load_cases(task_class, wanted_cases(case_filter))
        check_filter(case_filter, [case.case_id for case in cases])
        selection = Selection(
            kind="all" if case_filter is None else "partial",
            case_filter=describe_filter(case_filter),
            available_cases=available,
        )
        return build_plan(task_class, cases, selection, options or RunOptions(), place)

    async def execute(
        self,
        plan: RunPlan,
        *,
        system_under_test: SystemUnderTest | SutRunner,
        stop: Stop | None = None,
    ) -> BenchRunReport:
        """Run every planned trial and return the report; every planned case is in it."""
        recorded = await self.record(plan, system_under_test=system_under_test, stop=stop)
        return recorded.report

    async def record(
        self,
        plan: RunPlan,
        *,
        system_under_test: SystemUnderTest | SutRunner,
        stop: Stop | None = None,
    ) -> RecordedRun:
        """Like `execute`, and also say where in the log the run stands."""
        sut = _as_runner(system_under_test)
        stop = stop or Stop()
        async with AsyncExitStack() as held:
            directory = held.enter_context(run_directory())
            held.push_async_callback(sut.close)
            options = plan.options
            rubrics = await rubric_runner(options.isolation, options.spawn, directory, options.concurrency)
            held.push_async_callback(rubrics.close)
            await stop.unless_agents_stop(sut.prepare())
            store = held.enter_context(closing(CaseSnapshots(plan.task_class, directory)))
            return await self._recorded(RunParts(plan, sut, rubrics, stop), store)

    async def run_eval(
        self, *, system_under_test: SystemUnderTest | SutRunner, **what: Unpack[PlanArguments]
    ) -> BenchRunReport:
        """Plan and execute; takes what `plan` takes."""
        return await self.execute(self.plan(**what), system_under_test=system_under_test)

    async def _recorded(self, run: RunParts, store: CaseStore) -> RecordedRun:
        """Write the start, run the trials, write the finish; what ends early stays open in the log."""
        plan, start = run.plan, run.start()
        _check_clock(self._clock.now())
        resume = plan.options.cache_dir is not None and not plan.options.fresh
        record = begin_run(start, plan.out_dir, self._clock, resume=resume)
        record.shared_by(plan.options.concurrency)
        memory = run.memory(start, record.run_id, self._explain)
        memory.artifacts.count(evidence.artifacts for evidence in record.known.values())
        trial_parts = TrialParts(
            task_class=plan.task_class,
            store=store,
            sut=run.sut,
            rubrics=run.rubrics,
            memory=memory,
            record=record,
            redactor=Redactor(os.environ),
            clock=self._clock,
            stop=run.stop,
            budget=Budget(plan.options.max_cost_usd, run.stop),
            timeout_seconds=plan.options.timeout_seconds,
            answer_bytes=answer_room(len(plan.cases), plan.options.trials),
        )
        head = None
        try:
            per_case = score_cases(plan, await self._outcomes(plan, trial_parts, record))
            report = build_report(
                plan, per_case, run.header(start, record.run_id, (record.started_at, self._clock.now()))
            )
            head = record.finish(report, planned_trials(plan)) if report.complete else None
        finally:
            if head is None:
                record.leave()
        notes = (*run.rubrics.notes, *record.notes, *memory.warnings)
        return RecordedRun(report, head, notes, record.reused, record.log)

    async def _outcomes(
        self, plan: RunPlan, parts: TrialParts, record: RunRecord
    ) -> dict[TrialKey, TrialScore]:
        """Run every planned trial that a dead run had not finished; what does not start is cancelled."""
        outcomes: dict[TrialKey, TrialScore] = {}

        def count(evidence: TrialEvidence, score: TrialScore) -> None:
            outcomes[evidence.case_id, evidence.trial] = score
            self._progress.finished(evidence, score)

        # What a dead run had spent counts: resuming it does not start a new budget.
        for evidence in record.known.values():
            parts.budget.charge(None if reused_outputs([evidence]) else evidence.cost_usd)
            count(evidence, settled(evidence))

        async def work(item: tuple[BenchCase, int]) -> None:
            case, trial = item
            if parts.stop.requested or (case.case_id, trial) in outcomes:
                return
            evidence = await run_trial(parts, case, trial)
            # Settled first: what has no score must not stand in the journal, which would be read again.
            score = settled(evidence)
            record.keep(evidence)
            count(evidence, score)

        items = ((case, trial) for case in plan.cases for trial in range(plan.options.trials))
        await fan_out(items, work, plan.options.concurrency)
        for key in planned_trials(plan):
            if key not in outcomes:
                outcomes[key] = settled(cancelled_evidence(*key, parts.stop.reason))
        return outcomes


def _check_clock(now: dt.datetime) -> None:
    """Refuse a clock that is absurdly ahead: evidence from 2099 would be newer than any other until then."""
    if now.year > LIMITS.latest_year:
        raise HarnessFailure(
            f"the clock of this machine says {now:%Y-%m-%d}", hint="set the clock, then run again"
        )


def resolved(path: Path) -> Path:
    """Return where a path leads now, through every link in it; one without a link stays as it was given."""
    try:
        real = path.resolve()
        if path.is_symlink() and not real.exists():
            raise HarnessFailure(
                "the link leads nowhere", where=str(path), hint="make the directory that it names"
            )
        return path if real == path.absolute() else real
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or "its links go in a circle"
        raise SettingsInvalid(f"the path cannot be followed: {problem}", where=str(path)) from None


def _as_runner(system: SystemUnderTest | SutRunner) -> SutRunner:
    """Return a runner whose word on where the system runs can be taken."""
    claimed = system if isinstance(system, SutRunner) else InProcessSut(system)
    sut = claimed if type(claimed) in OWN_RUNNERS else ForeignSut(claimed)
    for runner in (claimed, sut):
        problem = boundary_problem(runner.identity, runner.boundary)
        if problem:
            raise SutSpecInvalid(f"the system under test contradicts itself: {problem}")
    return sut


def _check_outside_benches(kept: Path | None) -> None:
    """Refuse to write into a task class: it would never load again."""
    places = () if kept is None else (kept.resolve(), *kept.resolve().parents)
    bench = next((place for place in places if (place / "registration.py").is_file()), None)
    if bench is not None:
        raise SettingsInvalid(
            f"{kept} lies in the task class {bench.name!r}",
            hint="name another directory with --out or --cache",
        )
