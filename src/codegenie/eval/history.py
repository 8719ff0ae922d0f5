"""What a verified log says of its runs: which there are, which finished, which look at one candidate."""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from codegenie.eval.evidence import (
    FinishedRecord,
    LogRecord,
    ResumedRecord,
    RunFinished,
    StartedRecord,
    identity_digest,
    reused_outputs,
)
from codegenie.eval.models import IsolationClass, SutBoundary


@dataclass(frozen=True, slots=True)
class Look:
    """What one finished run came to, as far as the verdict on another run of the same candidate asks."""

    run_id: str
    units: int
    units_passed: int
    # When its start was recorded: a run that was resumed may hold trials as old as that.
    started_at: dt.datetime
    ended_at: dt.datetime
    sut_boundary: SutBoundary
    # Trials whose output comes from a store.
    reused: int = 0
    # Looks of every class count against a candidate, and only those of the same class for a run (ADR-0021).
    isolation_class: IsolationClass = "subprocess"

    @classmethod
    def of(cls, finished: RunFinished, started_at: dt.datetime) -> "Look":
        """Take from the finish of a run what others need to know."""
        report = finished.report
        return cls(
            run_id=report.run_id,
            units=report.units,
            units_passed=report.units_passed,
            started_at=started_at,
            ended_at=report.ended_at,
            sut_boundary=report.sut_boundary,
            reused=reused_outputs(finished.trials),
            isolation_class=report.isolation_class,
        )

    @property
    def measures(self) -> bool:
        """Whether the agent was asked for every trial (ADR-0016).

        The harness's own agents give the same output whenever they are asked.
        """
        return self.reused == 0 or self.sut_boundary == "harness"


@dataclass(slots=True)
class RunEntry:
    """Where one run stands in the log. Light: a log of a thousand runs is held as a thousand of these."""

    run_id: str
    task_class: str
    # The agent as far as we see it, case set and rubric: runs that share them are looks at one candidate
    # (ADR-0016). A version is what somebody typed; it keeps outputs apart, and no looks.
    candidate: tuple[str, str, str]
    code: str | None
    whole: bool
    started_index: int
    started_at: dt.datetime
    resumed: int = 0
    # How many trials were known when it was last resumed, and how many of those before were known no longer.
    known_trials: int = 0
    lost_trials: int = 0
    finished_index: int | None = None
    finished_hash: str | None = None
    look: Look | None = None


@dataclass(slots=True)
class History:
    """The runs of a log in the order of their starts."""

    runs: dict[str, RunEntry] = field(default_factory=dict)

    def add(self, record: LogRecord, record_hash: str) -> None:
        """Take the next verified record into account."""
        if isinstance(record, StartedRecord):
            body = record.body
            self.runs[record.run_id] = RunEntry(
                run_id=record.run_id,
                task_class=body.task_class,
                candidate=(
                    identity_digest(body.sut.model_copy(update={"version": None})),
                    body.case_set_digest,
                    body.rubric_digest,
                ),
                code=body.sut.digest,
                whole=body.selection.kind == "all",
                started_index=record.index,
                started_at=record.recorded_at,
            )
        elif isinstance(record, ResumedRecord):
            entry, known = self.runs[record.run_id], record.body.finished_trials
            entry.resumed += 1
            entry.lost_trials += max(0, entry.known_trials - known)
            entry.known_trials = known
        elif isinstance(record, FinishedRecord):
            entry = self.runs[record.run_id]
            entry.finished_index, entry.finished_hash = record.index, record_hash
            entry.look = Look.of(record.body, entry.started_at)

    def of_class(self, task_class: str) -> Iterator[RunEntry]:
        """Yield the runs of one task class, newest start first."""
        return (entry for entry in reversed(self.runs.values()) if entry.task_class == task_class)

    def newest_whole(self, task_class: str) -> RunEntry | None:
        """Return the newest finished run of all cases of a class."""
        finished = [
            entry for entry in self.of_class(task_class) if entry.whole and entry.finished_index is not None
        ]
        return max(finished, key=lambda entry: entry.finished_index or 0, default=None)

    def other_looks(self, chosen: RunEntry) -> tuple[Look, ...]:
        """Return what the other finished runs of the same candidate came to."""
        return tuple(entry.look for entry in self._same_candidate(chosen) if entry.look is not None)

    def unfinished(self, chosen: RunEntry) -> int:
        """Count the runs of the same candidate on the same cases that started and never finished."""
        return sum(entry.finished_index is None for entry in self._same_candidate(chosen))

    def lost_trials(self, chosen: RunEntry) -> int:
        """Count the trials that any look at the candidate had when it was resumed and lost afterwards."""
        return chosen.lost_trials + sum(entry.lost_trials for entry in self._same_candidate(chosen))

    def elsewhere(self, chosen: RunEntry) -> int:
        """Count the runs of the same agent, or code, under other names, cases or rubrics of the class."""
        return sum(
            entry.task_class == chosen.task_class
            and entry.candidate != chosen.candidate
            and (entry.candidate[0] == chosen.candidate[0] or entry.code == chosen.code is not None)
            for entry in self.runs.values()
        )

    def _same_candidate(self, chosen: RunEntry) -> Iterable[RunEntry]:
        return [
            entry
            for entry in self.runs.values()
            if entry is not chosen and entry.candidate == chosen.candidate
        ]
