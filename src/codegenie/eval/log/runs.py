"""What a verified log says about its runs: which exist, which finished, which are looks at one candidate."""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from codegenie.eval.aggregation import UNIT_RULE, TrialKey, units_of
from codegenie.eval.evidence import TrialEvidence, reused_outputs
from codegenie.eval.log.records import (
    AbandonedRecord,
    FinishedRecord,
    LogRecord,
    ResumedRecord,
    RunFinished,
    RunStarted,
    StartedRecord,
)
from codegenie.eval.models import BenchRunReport, IsolationClass, SutBoundary
from codegenie.eval.suts.identity import agent_name

RunState = Literal["finished", "open", "abandoned"]


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one finished run, as far as the verdict on another run of the same candidate needs it."""

    run_id: str
    units: int
    units_passed: int
    # When its start was recorded: a resumed run may hold trials that are as old as its start.
    started_at: dt.datetime
    ended_at: dt.datetime
    sut_boundary: SutBoundary
    # Trials whose output comes from the store.
    reused: int = 0
    # Looks of every class count against a candidate; only those of the same class count for it (ADR-0021).
    isolation_class: IsolationClass = "subprocess"
    # Units with a trial that was asked before without an outcome, and how many of these units passed.
    interrupted_units: int = 0
    interrupted_units_passed: int = 0
    interrupted_cases_passed: int = 0

    @classmethod
    def of(cls, finished: RunFinished, started: RunStarted, started_at: dt.datetime) -> "Look":
        """Take what other runs need to know from the finish of a run, with its units by today's rule."""
        report = finished.report
        units, units_passed = report.units, report.units_passed
        passed = {case_id for case_id, score in report.per_case if score.passed}
        again = {trial.case_id for trial in finished.trials if trial.interrupted}
        torn: list[set[str]] = []
        if again or started.unit_rule != UNIT_RULE:
            members = [set(unit) for unit in units_of(started.cases, UNIT_RULE)]
            units, units_passed = len(members), sum(unit <= passed for unit in members)
            torn = [unit for unit in members if unit & again]
        return cls(
            run_id=report.run_id,
            units=units,
            units_passed=units_passed,
            started_at=started_at,
            ended_at=report.ended_at,
            sut_boundary=report.sut_boundary,
            reused=reused_outputs(finished.trials),
            isolation_class=report.isolation_class,
            interrupted_units=len(torn),
            interrupted_units_passed=sum(unit <= passed for unit in torn),
            interrupted_cases_passed=sum(len(unit & passed) for unit in torn),
        )

    @property
    def measures(self) -> bool:
        """Whether the agent was asked for every trial in this run (ADR-0016).

        The harness's own agents always count as asked, because they give the same output every time.
        """
        return self.reused == 0 or self.sut_boundary == "harness"


@dataclass(slots=True)
class RunEntry:
    """The place of one run in the log. Small: a log of a thousand runs is held as a thousand of these."""

    run_id: str
    task_class: str
    # The agent as the user named it, with variables. A user types the version, so it only keeps stored
    # outputs apart; runs of two versions are still looks at one agent (ADR-0016).
    spec: str
    code: str | None
    syntax: str | None
    sut_boundary: SutBoundary
    # The digests of the case set and of the rubric.
    bench: tuple[str, str]
    inputs: frozenset[str]
    whole: bool
    started_index: int
    started_at: dt.datetime
    resumed: int = 0
    # How many trials were known at the last resume, and how many trials known earlier were lost by then.
    known_trials: int = 0
    lost_trials: int = 0
    finished_index: int | None = None
    finished_hash: str | None = None
    look: Look | None = None
    # Why a human closed it as a failed run, and the hash of the journal that it left.
    abandoned: str | None = None
    journal: str | None = None

    @property
    def agent(self) -> str:
        """Return the agent as `--sut` named it."""
        return agent_name(self.spec)

    @property
    def is_open(self) -> bool:
        """Whether it has neither finished nor been abandoned."""
        return self.finished_index is None and self.abandoned is None

    @property
    def state(self) -> RunState:
        """Return how the run ended, or `open`."""
        if self.abandoned is not None:
            return "abandoned"
        return "open" if self.finished_index is None else "finished"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run has measured: from its finish or, if it has none, from its journal."""

    trials: Mapping[TrialKey, TrialEvidence]
    report: BenchRunReport | None = None
    # Trials that the system under test was asked for, and that have no outcome yet.
    waiting: int = 0
    # When the last line was written to the journal of an open run.
    written_at: dt.datetime | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class History:
    """The runs of a log in the order of their starts."""

    runs: dict[str, RunEntry] = field(default_factory=dict)
    # The starts of the runs that are open while the log is read; the verifier holds them anyway.
    _starts: dict[str, RunStarted] = field(default_factory=dict)
    # Most runs of a class have the same inputs, so they share one set.
    _inputs: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)

    def add(self, record: LogRecord, record_hash: str) -> None:
        """Add the next verified record."""
        if isinstance(record, StartedRecord):
            self.runs[record.run_id] = self._entry(record)
            self._starts[record.run_id] = record.body
        elif isinstance(record, ResumedRecord):
            entry, known = self.runs[record.run_id], record.body.finished_trials
            entry.resumed += 1
            entry.lost_trials += max(0, entry.known_trials - known)
            entry.known_trials = known
        elif isinstance(record, AbandonedRecord):
            entry = self.runs[record.run_id]
            entry.abandoned, entry.journal = record.body.because, record.body.journal
            self._starts.pop(record.run_id)
        elif isinstance(record, FinishedRecord):
            entry = self.runs[record.run_id]
            entry.finished_index, entry.finished_hash = record.index, record_hash
            entry.look = Look.of(record.body, self._starts.pop(record.run_id), entry.started_at)

    def _entry(self, record: StartedRecord) -> RunEntry:
        body = record.body
        inputs = frozenset(case.input_digest for case in body.cases)
        return RunEntry(
            run_id=record.run_id,
            task_class=body.task_class,
            spec=body.sut.spec,
            code=body.sut.digest,
            syntax=body.sut.syntax,
            sut_boundary=body.sut_boundary,
            bench=(body.case_set_digest, body.rubric_digest),
            inputs=self._inputs.setdefault(inputs, inputs),
            whole=body.selection.kind == "all",
            started_index=record.index,
            started_at=record.recorded_at,
        )

    def of_class(self, task_class: str) -> Iterator[RunEntry]:
        """Yield the runs of one task class, newest start first."""
        return (entry for entry in reversed(self.runs.values()) if entry.task_class == task_class)

    def agents(self, task_class: str) -> list[str]:
        """Name the systems under test that were started on a class, in order."""
        return sorted({entry.agent for entry in self.of_class(task_class)})

    def newest_start(self, task_class: str, agent: str) -> RunEntry | None:
        """Return the newest start of an agent on all cases of a class, finished or not."""
        return next((run for run in self.of_class(task_class) if run.whole and run.agent == agent), None)

    def other_looks(self, chosen: RunEntry) -> tuple[Look, ...]:
        """Return the results of the other finished runs of the same candidate."""
        return tuple(entry.look for entry in self._same_candidate(chosen) if entry.look is not None)

    def unfinished(self, chosen: RunEntry) -> int:
        """Count the runs of the same candidate on the same cases that started and are still open."""
        return sum(entry.is_open for entry in self._same_candidate(chosen))

    def abandoned(self, chosen: RunEntry) -> tuple[str, ...]:
        """Name the runs of the same candidate on the same cases that a human closed as failed."""
        return tuple(entry.run_id for entry in self._same_candidate(chosen) if entry.abandoned is not None)

    def lost_trials(self, chosen: RunEntry) -> int:
        """Count the trials that a look at the candidate had at one resume and had lost at a later one."""
        return chosen.lost_trials + sum(entry.lost_trials for entry in self._same_candidate(chosen))

    def elsewhere(self, chosen: RunEntry) -> int:
        """Count the runs of the class that are not looks at the candidate but tried its cases or its agent.

        These are runs of any agent that share an input with it, and runs of the same agent or code on
        other cases.
        """
        return len(self._elsewhere(chosen))

    def candidates_tried(self, chosen: RunEntry) -> int:
        """Count the different agents that were tried on cases of the chosen run, including its own agent."""
        same = self._same_agent(chosen)
        others = {
            (entry.spec, entry.syntax or entry.code)
            for entry in self._elsewhere(chosen)
            if entry.run_id not in same and not entry.inputs.isdisjoint(chosen.inputs)
        }
        return 1 + len(others)

    def _elsewhere(self, chosen: RunEntry) -> list[RunEntry]:
        same = self._same_agent(chosen)
        return [
            entry
            for entry in self.of_class(chosen.task_class)
            if entry.sut_boundary != "harness"
            and not (entry.run_id in same and entry.bench == chosen.bench)
            and (
                entry.run_id in same
                or entry.code == chosen.code is not None
                or not entry.inputs.isdisjoint(chosen.inputs)
            )
        ]

    def _same_agent(self, chosen: RunEntry) -> set[str]:
        """Name the runs of the same agent: the same name, and code that differs only in comments.

        Runs match by their bytes or by their syntax tree, directly or through other runs: older records have
        only the digest of the bytes.
        """
        named = [entry for entry in self.runs.values() if entry.spec == chosen.spec]
        codes, trees = {chosen.code}, {chosen.syntax} - {None}
        same: set[str] = set()
        while True:
            found = {entry.run_id for entry in named if entry.code in codes or entry.syntax in trees}
            if found == same:
                return same
            same = found
            codes = {entry.code for entry in named if entry.run_id in same}
            trees = {entry.syntax for entry in named if entry.run_id in same} - {None}

    def _same_candidate(self, chosen: RunEntry) -> list[RunEntry]:
        same = self._same_agent(chosen)
        return [
            entry
            for entry in self.runs.values()
            if entry is not chosen and entry.run_id in same and entry.bench == chosen.bench
        ]
