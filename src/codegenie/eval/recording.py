"""The record of one run: its start in the log before anybody is asked, its journal, its finish.

A run that died is taken up again by the same command: same plan, same identity, its lock free.
"""

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from codegenie import __version__
from codegenie.eval.artifacts import ArtifactStore
from codegenie.eval.audit import AuditLog
from codegenie.eval.cache import OutcomeStore
from codegenie.eval.errors import EvalError
from codegenie.eval.evidence import (
    IsolationProof,
    RunFinished,
    RunResumed,
    RunStarted,
    TrialEvidence,
    identity_digest,
    start_digest,
)
from codegenie.eval.journal import Journal, resume_journal, start_journal
from codegenie.eval.memory import Explain, ReusePolicy, StoredMemory
from codegenie.eval.models import BenchRunReport, RunHeader, RunPlan
from codegenie.eval.planning import plan_digest
from codegenie.eval.ports import Clock, RubricRunner, SutRunner
from codegenie.eval.settling import answer_problem
from codegenie.eval.trial import Stop


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A report, and where it stands in the log; no head means that the run is still open."""

    report: BenchRunReport
    chain_head: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunParts:
    """What one run is made with, and what it says of itself at its start and in its report."""

    plan: RunPlan
    sut: SutRunner
    rubrics: RubricRunner
    stop: Stop

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
            rubric_digest=task_class.rubric_digest,
            taxonomy_digest=task_class.taxonomy_digest,
            case_set_digest=self.plan.case_set_digest,
            policy_digest=self.plan.options.policy_digest,
            isolation=IsolationProof(isolation_class=self.rubrics.isolation_class, kernel=os.uname().release),
            selection=self.plan.selection,
            trials=self.plan.options.trials,
            cases=self.plan.cases,
            breakdown_keys=task_class.breakdown_keys,
            severities={code: spec.severity for code, spec in task_class.taxonomy.items()},
            min_cases_for_promotion=dict(task_class.min_cases_for_promotion),
        )

    def header(self, start: RunStarted, run_id: str, span: tuple[dt.datetime, dt.datetime]) -> RunHeader:
        """Return what the report repeats of the start, with the times of this process."""
        shared = {
            name: getattr(start, name)
            for name in RunHeader.model_fields.keys() & RunStarted.model_fields.keys()
        }
        began, ended = span
        return RunHeader(
            **shared,
            run_id=run_id,
            isolation_class=start.isolation.isolation_class,
            started_at=began,
            ended_at=ended,
        )

    def memory(self, start: RunStarted, run_id: str, explain: Explain | None) -> StoredMemory:
        """Return the memory of the run's trials; a fresh run, or one without a store, reuses nothing."""
        options, identity = self.plan.options, self.sut.identity
        reuse = options.cache_dir is not None and not options.fresh
        # Without a version, the output of a foreign process is not known to come from the same agent.
        known_agent = self.sut.boundary != "process" or identity.version is not None
        return StoredMemory(
            plan=self.plan,
            run_id=run_id,
            sut_identity_digest=start.sut_identity_digest,
            isolation_class=start.isolation.isolation_class,
            harness_version=start.harness_version,
            artifacts=ArtifactStore(self.plan.out_dir / "artifacts"),
            store=None if options.cache_dir is None else OutcomeStore(options.cache_dir),
            policy=ReusePolicy(outputs=reuse and known_agent, answers=reuse),
            explain=explain,
        )


class RunRecord:
    """An open run: it has a start in the log, holds its journal's lock, and has not finished."""

    def __init__(self, log: AuditLog, journal: Journal, started: RunStarted) -> None:
        self._log = log
        self._journal = journal
        self._artifacts = ArtifactStore(log.directory / "artifacts")
        self.known: dict[tuple[str, int], TrialEvidence] = {}
        planned = {(case.case_id, trial) for case in started.cases for trial in range(started.trials)}
        for evidence in journal.finished:
            key = evidence.case_id, evidence.trial
            if key in planned and self._holds(evidence, started):
                # Of two lines on one trial the first was measured.
                self.known.setdefault(key, evidence)

    def _holds(self, evidence: TrialEvidence, started: RunStarted) -> bool:
        """Say whether evidence from a journal may stand in the finish: `verify` will ask the same."""
        return (
            not _was_cancelled(evidence)
            and answer_problem(evidence.answer, started.severities, started.breakdown_keys) is None
            and not any(map(self._artifacts.is_damaged, evidence.artifacts.values()))
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was found and mended in the log on the way."""
        return tuple(self._log.notes)

    @property
    def run_id(self) -> str:
        """Return the id that start, journal and finish share."""
        return self._journal.run_id

    async def keep(self, evidence: TrialEvidence) -> None:
        """Make one finished trial durable. A cancelled one was not measured and is not kept."""
        if not _was_cancelled(evidence):
            # What came out of the store as a whole can be had again for nothing: it waits for no disk.
            await self._journal.append(evidence, durable=evidence.reused != "both")

    def finish(self, report: BenchRunReport, trials: tuple[TrialEvidence, ...]) -> str:
        """Write the finish and drop the journal; returns the hash of the record."""
        self._artifacts.make_durable(digest for trial in trials for digest in trial.artifacts.values())
        head = self._log.append(RunFinished(report=report, trials=trials), self.run_id)
        self._journal.discard()
        return head

    def leave(self) -> None:
        """Leave an unfinished run to be resumed."""
        self._journal.close()


def _was_cancelled(evidence: TrialEvidence) -> bool:
    return any(mode.code == "sut.cancelled" for mode in evidence.answer.failure_modes)


def begin_run(started: RunStarted, directory: Path, clock: Clock, *, resume: bool) -> RunRecord:
    """Check the log, then take up a dead run with this very start or begin a new one."""
    log = AuditLog(directory, clock)
    open_runs = log.check_links()
    journals = directory / "journal"
    key = start_digest(started)
    journal = resume_journal(journals, key, open_runs) if resume else None
    if journal is not None and journal.run_id not in log.check_links():
        journal.discard()
        journal = None
    if journal is not None:
        record = RunRecord(log, journal, started)
        body: RunResumed | RunStarted = RunResumed(finished_trials=len(record.known))
    else:
        run_id = f"{clock.now():%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
        journal = start_journal(journals, run_id, key)
        record, body = RunRecord(log, journal, started), started
    try:
        log.append(body, record.run_id)
    except EvalError:
        # The record may lie there all the same, with HEAD behind it: then the same command takes the run up.
        record.leave()
        raise
    return record
