"""The runner: `plan`, `execute`, `record` and `run_eval` connect the stages of a run."""

import asyncio
import datetime as dt
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Required, TypedDict, Unpack

from codegenie import __version__
from codegenie.eval.aggregation import UNIT_RULE, TrialKey, build_report, planned_trials, score_cases
from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.bench.loading import BenchRoot, load_cases, load_task_class
from codegenie.eval.bench.step_files import check_step_files
from codegenie.eval.boxes.headroom import check_box_headroom
from codegenie.eval.collection.in_place import CopyCollector
from codegenie.eval.engines.local import LocalEngine
from codegenie.eval.errors import HarnessFailure, NotMeasured, SettingsInvalid
from codegenie.eval.evidence import Promised, TrialEvidence, WorkItem, reused_outputs, score_of
from codegenie.eval.execution.opening import executor_of
from codegenie.eval.execution_ports import Executor
from codegenie.eval.isolation.rubric_runner import rubric_runner
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.artifacts import ArtifactStore, RunArtifacts
from codegenie.eval.log.open_run import RecordedRun, RunRecord, begin_run
from codegenie.eval.log.recorder import Recorder, recorder_of
from codegenie.eval.log.records import RunStarted
from codegenie.eval.models import BenchRunReport, RunOptions, RunPlan, Selection, TrialScore
from codegenie.eval.planning import (
    DEFAULT_OUT_DIR,
    CaseFilter,
    CaseSelection,
    answer_room,
    build_plan,
    plan_digest,
)
from codegenie.eval.ports import (
    BoxedRunner,
    CaseStore,
    Clock,
    Explain,
    MakeEngine,
    Progress,
    RubricRunner,
    SutRunner,
    SystemUnderTest,
    Watcher,
)
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import Budget, Stop
from codegenie.eval.store.outcomes import OutcomeStore
from codegenie.eval.store.reuse import ReusePolicy, StoredMemory
from codegenie.eval.suts.identity import identity_digest
from codegenie.eval.suts.spec import trusted_runner
from codegenie.eval.system.clock import SystemClock as SystemClock  # noqa: PLC0414 - its documented path
from codegenie.eval.system.folders import resolved
from codegenie.eval.system.run_directory import run_directory
from codegenie.eval.trial import TrialParts, cancelled_evidence, run_trial

_LOOK_SECONDS = 1.0


class SilentProgress:
    """Reports nothing."""

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Ignore that a trial has its score."""


class PlanArguments(TypedDict, total=False):
    """The arguments of `Runner.plan`."""

    task_class_name: Required[str]
    bench_root: BenchRoot
    out_dir: str | Path | None
    case_filter: CaseFilter
    options: RunOptions | None


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of one run, and how they describe it in its start record."""

    plan: RunPlan
    sut: SutRunner
    rubrics: RubricRunner
    stop: Stop
    executor: Executor | None = None

    def start(self) -> RunStarted:
        """Return the body of the start record."""
        task_class = self.plan.task_class
        return RunStarted(
            plan_digest=plan_digest(self.plan),
            task_class=task_class.name,
            harness_version=__version__,
            sut=self.sut.identity,
            sut_identity_digest=identity_digest(self.sut.identity),
            sut_boundary=self.sut.boundary,
            sut_isolation=self.sut.proof,
            sut_network=self.sut.network,
            sut_upstream=self.sut.upstream,
            rubric_digest=task_class.rubric_digest,
            taxonomy_digest=task_class.taxonomy_digest,
            case_set_digest=self.plan.case_set_digest,
            policy_digest=self.plan.options.policy_digest,
            isolation=self.rubrics.proof,
            selection=self.plan.selection,
            trials=self.plan.options.trials,
            cases=self.plan.cases,
            breakdown_keys=task_class.breakdown_keys,
            severities={code: spec.severity for code, spec in task_class.taxonomy.items()},
            min_cases_for_promotion=dict(task_class.min_cases_for_promotion),
            unit_rule=UNIT_RULE,
        )

    def memory(self, start: RunStarted, run_id: str, explain: Explain | None) -> StoredMemory:
        """Return the memory that the trials of the run use."""
        options = self.plan.options
        return StoredMemory(
            start=start,
            run_id=run_id,
            timeout_seconds=options.timeout_seconds,
            artifacts=RunArtifacts(ArtifactStore(self.plan.out_dir / "artifacts")),
            store=None if options.cache_dir is None else OutcomeStore(options.cache_dir),
            reads=self.sut.reads,
            policy=ReusePolicy.of_run(start, options),
            explain=explain,
        )


class Runner:
    """Runs a task class against a system under test, with the default parts or with given ones."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        progress: Progress | None = None,
        explain: Explain | None = None,
        engine: MakeEngine | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._engine = engine or LocalEngine
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
        """Load and check everything that will be run, before any system under test is asked.

        Raises BadInputError if the bench, the selection or a setting is wrong, and IntegrityError if a
        case does not match its digest. Raises HarnessFailure if the machine cannot read them.
        """
        # Resolved only once: if a link is changed during the run, the finish must not go to another log.
        place = resolved(Path(out_dir or DEFAULT_OUT_DIR)).absolute()
        for kept in (place, *(() if options is None else (options.cache_dir, options.record_dir))):
            _check_outside_benches(kept)
        task_class = load_task_class(task_class_name, bench_root=bench_root)
        wanted = CaseSelection.by(case_filter)
        cases, available = load_cases(task_class, wanted.wants)
        wanted.check([case.case_id for case in cases])
        check_step_files(task_class, cases)
        selection = Selection(
            kind="all" if case_filter is None else "partial",
            case_filter=wanted.describe(),
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
        """Run every planned trial and return the report, which contains every planned case.

        Raises SutSpecInvalid if the system under test cannot be used, NotMeasured if the harness or its
        isolation fails, and IntegrityError if a case, the log or the agent's code was changed.
        """
        recorded = await self.record(plan, system_under_test=system_under_test, stop=stop)
        return recorded.report

    async def record(
        self,
        plan: RunPlan,
        *,
        system_under_test: SystemUnderTest | SutRunner,
        stop: Stop | None = None,
    ) -> RecordedRun:
        """Do the same as `execute`, and also return where the run is in the log."""
        sut = trusted_runner(system_under_test)
        stop = stop or Stop()
        async with AsyncExitStack() as held:
            directory = held.enter_context(run_directory())
            held.push_async_callback(sut.close)
            options = plan.options
            rubrics = await rubric_runner(options.isolation, options.spawn, directory, options.concurrency)
            held.push_async_callback(rubrics.close)
            if isinstance(sut, BoxedRunner):
                check_box_headroom(options.concurrency)
            if not await stop.unless_agents_stop(_prepared(sut)) and isinstance(sut, BoxedRunner):
                # Before it is prepared, what would be measured is not known, so there is no start to record.
                raise NotMeasured(f"the run was ended before its first case: {stop.reason}")
            store = held.enter_context(closing(CaseSnapshots(plan.task_class, directory)))
            executor = await held.enter_async_context(executor_of(plan, rubrics.isolation_class, store))
            run = RunParts(plan, sut, rubrics, stop, executor)
            records = options.record_dir is not None
            recorder = held.enter_context(recorder_of(plan, run.start())) if records else None
            return await self._recorded(run, store, recorder)

    async def run_eval(
        self, *, system_under_test: SystemUnderTest | SutRunner, **what: Unpack[PlanArguments]
    ) -> BenchRunReport:
        """Plan and execute. Takes the arguments of `plan`."""
        return await self.execute(self.plan(**what), system_under_test=system_under_test)

    async def _recorded(self, run: RunParts, store: CaseStore, recorder: Recorder | None) -> RecordedRun:
        """Write the start, run the trials, write the finish. A run that ends early stays open in the log."""
        plan, start = run.plan, run.start()
        _check_clock(self._clock.now())
        resume, slots = plan.options.resumes, plan.options.concurrency
        record = begin_run(start, plan.out_dir, self._clock, resume=resume, slots=slots)
        memory = run.memory(start, record.run_id, self._explain)
        memory.artifacts.count(evidence.artifacts for evidence in record.known.values())
        # An agent that reaches a model, or the whole network, costs something.
        calls_a_model = run.sut.network in {"broker", "host"}
        budget = Budget(plan.options.max_cost_usd, run.stop, must_be_known=calls_a_model)
        redactor = Redactor({**os.environ, **run.sut.secrets})
        trial_parts = TrialParts(
            task_class=plan.task_class,
            store=store,
            collector=CopyCollector(store, redactor),
            sut=run.sut,
            rubrics=run.rubrics,
            memory=memory,
            notices=_Notices(record, budget),
            redactor=redactor,
            clock=self._clock,
            stop=run.stop,
            timeout_seconds=plan.options.timeout_seconds,
            answer_bytes=answer_room(len(plan.cases), plan.options.trials),
            executor=run.executor,
        )
        head = None
        try:
            if recorder is not None:
                recorder.begin(record.run_id)
            tally = _Tally(record, self._progress, recorder)
            per_case = score_cases(plan, await self._outcomes(plan, trial_parts, tally, budget))
            report = build_report(plan, per_case, record.header(self._clock.now()))
            if report.complete:
                await run.sut.settle()
            if recorder is not None:
                # Before the finish: if it cannot be written, the run stays open and can be resumed.
                recorder.save()
            head = record.finish(report, planned_trials(plan)) if report.complete else None
            if recorder is not None and head is not None:
                recorder.save(finished=True)
        finally:
            if head is None:
                record.leave()
        notes = (*run.rubrics.notes, *run.sut.notes, *record.notes, *memory.warnings)
        notes += () if recorder is None else recorder.notes
        return RecordedRun(report, head, notes, record.reused, record.log, record.totals)

    async def _outcomes(
        self, plan: RunPlan, parts: TrialParts, tally: "_Tally", budget: Budget
    ) -> dict[TrialKey, TrialScore]:
        """Measure every planned trial that a dead run left open. Trials that do not start are cancelled."""
        # The cost of a dead run counts: resuming it does not start a new budget.
        for evidence in tally.record.known.values():
            budget.charge(0.0 if reused_outputs([evidence]) else evidence.cost_usd)
            tally.count(evidence, score_of(evidence))
        engine = self._engine(partial(run_trial, parts), plan.options.concurrency)
        watching = asyncio.ensure_future(_watch(parts.sut, self._progress))
        try:
            await engine.measure(tally.items(plan, parts.stop), tally.keep)
        finally:
            watching.cancel()
        for key in planned_trials(plan):
            if key not in tally.outcomes:
                tally.outcomes[key] = score_of(cancelled_evidence(*key, parts.stop.reason))
        return tally.outcomes


@dataclass(frozen=True, slots=True)
class _Tally:
    """Hands out the trials of a run, and keeps and counts the evidence that an engine gives back."""

    record: RunRecord
    progress: Progress
    recorder: Recorder | None
    outcomes: dict[TrialKey, TrialScore] = field(default_factory=dict)
    handed_out: set[TrialKey] = field(default_factory=set)

    def items(self, plan: RunPlan, stop: Stop) -> Iterator[WorkItem]:
        """Yield every trial without an outcome, until the run is to stop."""
        for case, trial in product(plan.cases, range(plan.options.trials)):
            if stop.requested:
                return
            if (case.case_id, trial) not in self.outcomes:
                self.handed_out.add((case.case_id, trial))
                yield self.record.item(case, trial)

    def keep(self, evidence: TrialEvidence) -> None:
        """Keep the one piece of evidence on a trial that was handed out. Raises HarnessFailure for others.

        A second piece could be a better one, and evidence on another case is no part of this run.
        """
        key = evidence.case_id, evidence.trial
        if key not in self.handed_out:
            what = f"case {evidence.case_id}, trial {evidence.trial}"
            raise HarnessFailure(f"the engine returned {what}, without being asked for it")
        self.handed_out.remove(key)
        # The score comes first: evidence without a score must not be in the journal, which a resume reads.
        score = score_of(evidence)
        self.record.keep(evidence)
        self.count(evidence, score)

    def count(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Count the score of a trial, record what was produced and report it."""
        self.outcomes[evidence.case_id, evidence.trial] = score
        if self.recorder is not None:
            self.recorder.keep(evidence)
        self.progress.finished(evidence, score)


@dataclass(frozen=True, slots=True)
class _Notices:
    """Stores and counts what trials report while they run."""

    record: RunRecord
    budget: Budget

    async def asking(self, item: WorkItem) -> None:
        """Write it to the journal. Returns when it is on the disk."""
        await self.record.asking(item)

    def voided(self, item: WorkItem, cause: str) -> None:
        """Write it to the journal, so that a resume asks again without counting this call."""
        self.record.voided(item, cause)

    def spent(self, cost_usd: float | None) -> None:
        """Count it at once: at the cap every agent is stopped."""
        self.budget.charge(cost_usd)

    def produced(self, item: WorkItem, output: Promised) -> None:
        """Write it to the journal."""
        self.record.produced(item, output)


async def _prepared(sut: SutRunner) -> bool:
    await sut.prepare()
    return True


async def _watch(sut: SutRunner, progress: Progress) -> None:
    """Show the agents that work, once a second, until this task is cancelled."""
    if isinstance(sut, BoxedRunner) and isinstance(progress, Watcher):
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            progress.working(sut.beats())


def _check_clock(now: dt.datetime) -> None:
    """Raise HarnessFailure if the clock is far ahead: evidence from 2099 would stay the newest until then."""
    if now.year > LIMITS.latest_year:
        raise HarnessFailure(
            f"the clock is wrong: it says {now:%Y-%m-%d}", hint="set the clock, then run again"
        )


def _check_outside_benches(kept: Path | None) -> None:
    """Raise SettingsInvalid if we would write into a task class: it would never load again."""
    places = () if kept is None else (kept.resolve(), *kept.resolve().parents)
    bench = next((place for place in places if (place / "registration.py").is_file()), None)
    if bench is not None:
        raise SettingsInvalid(
            f"{kept} lies inside the task class {bench.name!r}",
            hint="name another directory with --out or --cache",
        )
