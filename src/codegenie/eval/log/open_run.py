"""The records of one run: its start in the log before any agent is asked, its journal, and its finish.

The same command resumes a run that died, if the plan and the identity are equal and the lock is free.
"""

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codegenie.eval.accounting import Totals
from codegenie.eval.aggregation import TrialKey
from codegenie.eval.canonical import spelled
from codegenie.eval.errors import EvalError
from codegenie.eval.evidence import (
    Promised,
    TrialEvidence,
    WorkItem,
    answer_problem,
    reused_outputs,
)
from codegenie.eval.log.artifacts import LARGEST_ARTIFACT, NOT_KEPT, ArtifactStore, why_not_kept
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.journal import (
    Asked,
    Journal,
    JournalLine,
    Produced,
    Voided,
    dead_journals,
    start_journal,
)
from codegenie.eval.log.records import RUN_FACTS, RunFinished, RunResumed, RunStarted, start_digest
from codegenie.eval.models import BenchCase, BenchRunReport, FrozenMap, RunHeader
from codegenie.eval.ports import Clock


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A report and its place in the log. Without a head the run is still open."""

    report: BenchRunReport
    chain_head: str | None
    notes: tuple[str, ...] = ()
    # Trials for which the agent was not asked, because their output comes from the store.
    reused: int = 0
    # The log, as far as the run has verified it.
    log: AuditLog | None = None
    # What the measured trials used together.
    totals: Totals = field(default_factory=Totals)


@dataclass(slots=True)
class Taken:
    """What the journal of a run that has not finished says, line by line."""

    started: RunStarted
    known: dict[TrialKey, TrialEvidence] = field(default_factory=dict)
    asked: Counter[TrialKey] = field(default_factory=Counter)
    promised: dict[TrialKey, Promised] = field(default_factory=dict)

    def take(self, line: JournalLine) -> bool:
        """Take the next line; False if this run cannot have written it."""
        key = line.case_id, line.trial
        if isinstance(line, TrialEvidence):
            # If one trial has two lines, the first one is the measurement.
            if key in self.known:
                return True
            self.known[key] = line
            return self._may_stand(line)
        if key in self.known:
            return False
        if isinstance(line, Asked):
            self.asked[key] += 1
            self.promised.pop(key, None)
            return True
        if isinstance(line, Voided):
            self.asked[key] -= 1
            return self.asked[key] >= 0 and key not in self.promised
        first = key not in self.promised
        self.promised[key] = Promised(**{name: getattr(line, name) for name in Promised.model_fields})
        return first and self.asked[key] > 0

    def _may_stand(self, evidence: TrialEvidence) -> bool:
        """Say whether evidence may go into the finish; `verify` makes some of the same checks."""
        key = evidence.case_id, evidence.trial
        own = not reused_outputs([evidence])
        promised = self.promised.get(key)
        judged = evidence.artifacts.get("output")
        return (
            not _was_cancelled(evidence)
            and answer_problem(evidence.answer, self.started.severities, self.started.breakdown_keys) is None
            and evidence.interrupted == self.asked[key] - own
            and (not own or judged is None or (promised is not None and promised.output == judged))
        )


class RunRecord:
    """An open run. It has a start in the log, holds the lock of its journal, and has not finished."""

    def __init__(self, log: AuditLog, journal: Journal, started: RunStarted, started_at: dt.datetime) -> None:
        self.log = log
        # The time of the start and not of a resume, because evidence is as old as the start.
        self.started_at = started_at
        self._journal = journal
        self._artifacts = ArtifactStore(log.directory / "artifacts")
        # Every trial as the finish will spell it: a record object would take three times the memory.
        self._spelled: dict[TrialKey, bytes] = {}
        self._left_behind: set[str] = set()
        self._not_kept: Counter[str] = Counter()
        self.reused = 0
        self.totals = Totals()
        self._interrupted = 0
        taken = self._taken = Taken(started)
        planned = {(case.case_id, trial) for case in started.cases for trial in range(started.trials)}
        # False if any line was not written by this run. Then the journal was edited.
        self.holds = journal.lines is not None and all(
            (line.case_id, line.trial) in planned and taken.take(line) for line in journal.lines
        )
        self.known = {key: self._without_damaged(evidence) for key, evidence in taken.known.items()}
        for evidence in self.known.values():
            self._note(evidence, spelled(evidence))

    def _without_damaged(self, evidence: TrialEvidence) -> TrialEvidence:
        """Leave out damaged artefacts. The answer stays valid without them."""
        whole = {
            name: digest
            for name, digest in evidence.artifacts.items()
            if not self._artifacts.is_damaged(digest)
        }
        if len(whole) == len(evidence.artifacts):
            return evidence
        self.log.notes.append(f"{evidence.case_id}: a damaged artefact is left out of the record")
        return evidence.model_copy(update={"artifacts": FrozenMap(whole)})

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was repaired, asked again, and not kept."""
        notes = list(self.log.notes)
        notes += [
            f"{name} of {count} trials {why_not_kept(name)}" for name, count in sorted(self._not_kept.items())
        ]
        if self._interrupted:
            again = "trials that were asked for again, since the run had ended early"
            notes.append(f"{again}: {self._interrupted}")
        return tuple(notes)

    @property
    def run_id(self) -> str:
        """Return the id that start, journal and finish share."""
        return self._journal.run_id

    @property
    def interrupted_trials(self) -> int:
        """Count the trials for which an agent was asked and no outcome is known."""
        taken = self._taken
        return len(taken.asked.keys() - taken.known.keys() - taken.promised.keys())

    def item(self, case: BenchCase, trial: int) -> WorkItem:
        """Return the work item of a trial, with everything that this run already knows about it."""
        key = case.case_id, trial
        return WorkItem(
            plan_digest=self._taken.started.plan_digest,
            case=case,
            trial=trial,
            asked_before=self._taken.asked[key],
            promised=self._taken.promised.get(key),
        )

    async def asking(self, item: WorkItem) -> None:
        """Record that the system under test is asked now. Returns when that is on the disk."""
        case_id, trial = item.case.case_id, item.trial
        self._taken.asked[case_id, trial] += 1
        await self._journal.append(spelled(Asked(case_id=case_id, trial=trial)))

    def voided(self, item: WorkItem, cause: str) -> None:
        """Record that the last asking does not count, because the agent's provider or its box failed."""
        case_id, trial = item.case.case_id, item.trial
        self._taken.asked[case_id, trial] -= 1
        self._journal.note(spelled(Voided(case_id=case_id, trial=trial, cause=cause)))

    def produced(self, item: WorkItem, output: Promised) -> None:
        """Record what it produced, before that is judged."""
        facts = {name: getattr(output, name) for name in Promised.model_fields}
        line = Produced(case_id=item.case.case_id, trial=item.trial, **facts)
        self._journal.note(spelled(line))

    def keep(self, evidence: TrialEvidence) -> None:
        """Keep one trial for the finish. If it was measured, also write it to the journal."""
        if _was_cancelled(evidence):
            return
        trial = spelled(evidence)
        # A trial that comes completely from the store is still there if this run dies, and is read again.
        # Any other trial is on the disk before this slot asks for the next one.
        if evidence.reused != "both":
            self._journal.put(trial)
        self._note(evidence, trial)

    def _note(self, evidence: TrialEvidence, trial: bytes) -> None:
        self._spelled[evidence.case_id, evidence.trial] = trial
        self._left_behind.update(evidence.artifacts.values())
        self._not_kept.update(
            name.removesuffix(NOT_KEPT) for name in evidence.artifacts if name.endswith(NOT_KEPT)
        )
        self.reused += reused_outputs([evidence])
        self.totals.add(evidence)
        self._interrupted += evidence.interrupted > 0

    def finish(self, report: BenchRunReport, planned: Iterable[TrialKey]) -> str:
        """Write the finish with the trials in planned order and return its hash; keep the journal.

        Raises HarnessFailure if it cannot be written.
        """
        journal = self._journal.seal()
        lines = self._journal.content(LARGEST_ARTIFACT)
        if lines is not None and journal is not None:
            if self._artifacts.keep(lines) != journal:
                self.log.notes.append("the journal was changed by another program during the run")
            self._left_behind.add(journal)
        self._artifacts.make_durable(self._left_behind)
        # The canonical bytes are passed on, so that the trials are not held again as record objects.
        trials = (self._spelled[key] for key in planned)
        head = self.log.append(RunFinished(report=report, trials=(), journal=journal), self.run_id, trials)
        self._journal.discard()
        return head

    def header(self, ended_at: dt.datetime) -> RunHeader:
        """Return the header of the report: the facts of the start, and the times of the run."""
        started = self._taken.started
        return RunHeader(
            **{name: getattr(started, name) for name in RUN_FACTS},
            run_id=self.run_id,
            isolation_class=started.isolation.isolation_class,
            started_at=self.started_at,
            ended_at=ended_at,
        )

    def leave(self) -> None:
        """Close an unfinished run so that it can be resumed."""
        self._journal.close()


def _was_cancelled(evidence: TrialEvidence) -> bool:
    return any(mode.code == "sut.cancelled" for mode in evidence.answer.failure_modes)


def begin_run(
    started: RunStarted, directory: Path, clock: Clock, *, resume: bool, slots: int = 1
) -> RunRecord:
    """Check the log, then resume a dead run with exactly this start, or begin a new one.

    `slots` is how many trials run at once. Raises ChainTamperDetected if the log fails verification, and
    HarnessFailure if it cannot be written.
    """
    log = AuditLog(directory, clock)
    open_runs = log.open_runs()
    now = log.now()
    record = _dead_run(log, started, open_runs, slots) if resume else None
    if record is not None:
        body: RunResumed | RunStarted = RunResumed(
            finished_trials=len(record.known), interrupted_trials=record.interrupted_trials
        )
    else:
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
        journal = start_journal(directory / "journal", run_id, start_digest(started), slots)
        record, body = RunRecord(log, journal, started, now), started
    try:
        log.append(body, record.run_id)
    except EvalError:
        # The record may be written already with HEAD still behind it. Then the same command resumes the run.
        record.leave()
        raise
    return record


def _dead_run(
    log: AuditLog, started: RunStarted, open_runs: Mapping[str, dt.datetime], slots: int
) -> RunRecord | None:
    """Resume the newest dead run with this start whose measurements are all still there."""
    for journal in dead_journals(log.directory / "journal", start_digest(started), open_runs, slots):
        if journal.run_id not in log.open_runs():
            journal.discard()
            continue
        record = RunRecord(log, journal, started, open_runs[journal.run_id])
        if record.holds:
            return record
        journal.close()
        log.notes.append(
            f"run {journal.run_id} is not resumed and counts as failed: a line of its journal is missing or"
            " was changed"
        )
    return None
