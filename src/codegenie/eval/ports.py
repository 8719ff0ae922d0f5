"""The questions that the line asks of the world: a Protocol each, and one abstract class, `SutRunner`.

Standard library only at run time: a SUT child imports this module for `SutCase` and must not pay for
the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from codegenie.eval.evidence import Answer, Promised, TrialEvidence, WorkItem
    from codegenie.eval.isolation_proof import IsolationProof
    from codegenie.eval.models import BenchCase, IsolationClass, SutBoundary, SutIdentity, TrialScore


@dataclass(frozen=True, slots=True)
class SutCase:
    """All that a system under test learns of a case. Not the disposition, and not what is expected."""

    case_id: str
    task_class: str
    input_dir: str
    trial: int


@dataclass(frozen=True, slots=True)
class SutResult:
    """What a system under test may return in place of a bare mapping, to say what it spent."""

    harness_output: Mapping[str, Any]
    cost_usd: float | None = None
    usage: Mapping[str, Any] | None = None


class SystemUnderTest(Protocol):
    """An agent as an object of the caller: an async callable from case to output."""

    def __call__(self, case: SutCase, /) -> Awaitable[Mapping[str, Any] | SutResult]:
        """Work on the case and return a JSON object, or a SutResult around one."""
        ...


@dataclass(frozen=True, slots=True)
class SutAnswer:
    """What a system under test produced in time: JSON bytes within the cap, already checked."""

    output: bytes
    cost_usd: float | None
    log: bytes = b""
    # Files of its copy that it changed, where it returned none.
    unreturned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SutFault:
    """A system under test that produced nothing usable, and which of the codes says so."""

    code: str
    detail: str
    cost_usd: float | None = None
    log: bytes = b""
    # It ended in order and had nothing to say: perhaps its work lies in its copy of the case.
    returned_nothing: bool = False
    unreturned: tuple[str, ...] = ()


Explain: TypeAlias = Callable[[str], None]
"""Hears why something is measured again."""

Measure: TypeAlias = "Callable[[WorkItem], Awaitable[TrialEvidence]]"
"""Measures one trial, where it runs."""

Reads: TypeAlias = Literal["input", "case"]
"""What of a case decides an output: `input/`, or every file of the case."""


class SutRunner(ABC):
    """Asks one kind of system under test for its output, within a deadline that it cannot move.

    A class to inherit from and not a protocol: what merely has these attributes, a mock for one, is an
    object of the caller, runs in the caller's process and does not name its own boundary.
    """

    identity: SutIdentity
    boundary: SutBoundary
    wants_input: bool
    # A stored output is found by the digest of this. Who says `input` can come by nothing else of a case.
    reads: Reads = "input"

    @abstractmethod
    async def prepare(self) -> None:
        """Find out, before the first case, whether there is a system under test to ask."""

    @abstractmethod
    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return the output or a fault; raise only what ends the run.

        Cancelling the call ends whatever the system under test started.
        """

    @abstractmethod
    async def close(self) -> None:
        """End everything that is still held open."""


Room: TypeAlias = "Path | int"
"""A private copy of a case: a directory, or the descriptor of a parcel that the rubric's process unpacks."""


@dataclass(frozen=True, slots=True)
class RubricRun:
    """What a rubric child left behind: capped bytes and how it ended. Untrusted.

    `starved_with` is set where the machine had no processor for it: the seconds of one that it did get.
    """

    stdout: bytes
    stdout_truncated: bool
    stderr: bytes
    exit_code: int | None
    signal: str | None
    timed_out: bool
    leaked_processes: int
    wall_seconds: float = 0.0
    starved_with: float | None = None


class RubricRunner(Protocol):
    """Runs a rubric where it can hurt nobody and returns what it wrote, unparsed."""

    isolation_class: IsolationClass
    proof: IsolationProof
    # Why no stronger class was taken.
    notes: tuple[str, ...]
    wants_parcel: bool

    async def run(self, room: Room, request: bytes, seconds: float) -> RubricRun:
        """Run `rubric.py` in `room`, its private copy of the case, with `request` on stdin.

        When the call returns, or is cancelled, every process that the rubric started has ended.
        """
        ...

    async def close(self) -> None:
        """End everything that is still held open."""
        ...


class CaseStore(Protocol):
    """Private copies of a case, hashed while they are copied and removed on every path."""

    def for_sut(self, case: BenchCase) -> AbstractContextManager[Path]:
        """Give a directory that holds `input/`."""
        ...

    def for_rubric(self, case: BenchCase) -> AbstractContextManager[Path]:
        """Give a directory that holds the rubric, `input/` and `expected/`."""
        ...

    def changed_files(self, case: BenchCase, directory: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Name the files of a copy made by `for_sut` that were changed or removed, and those that are new."""
        ...

    def parcel_for_rubric(self, case: BenchCase) -> AbstractContextManager[int]:
        """Give the same, packed in an anonymous file."""
        ...


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a system under test produced before, and whether that was in this very run, before it died."""

    produced: SutAnswer | SutFault
    in_this_run: bool


class TrialNotices(Protocol):
    """What a trial tells the caller of its engine while it is under way; the caller keeps and counts."""

    async def asking(self, item: WorkItem) -> None:
        """Hear that the system under test is asked now; returns when that is on the disk."""
        ...

    def spent(self, cost_usd: float | None) -> None:
        """Hear what the system under test has spent, as soon as it says so."""
        ...

    def produced(self, item: WorkItem, output: Promised) -> None:
        """Hear what it produced, before that is judged."""
        ...


class Engine(Protocol):
    """Measures work items, several at once. Items and evidence are plain data, so they can travel.

    Journal, budget, progress and resume stay with the caller: it makes the items and keeps the evidence.
    """

    async def measure(self, items: Iterable[WorkItem], keep: Callable[[TrialEvidence], None]) -> None:
        """Measure every item and hand its evidence to `keep`.

        An item is taken only when a worker is free: the caller stops a run by ending the items. The first
        exception ends everything that is under way and is raised.
        """
        ...


class MakeEngine(Protocol):
    """Makes the engine of one run."""

    def __call__(self, measure: Measure, concurrency: int, /) -> Engine:
        """Return an engine that measures a trial by `measure`, with so many under way."""
        ...


class TrialMemory(Protocol):
    """What is known already of outputs and answers, and where new ones are kept."""

    def output(self, case: BenchCase, trial: int) -> Remembered | None:
        """Return what the system under test produced before, if that may be used again."""
        ...

    def own_output(self, case: BenchCase, trial: int, promised: Promised) -> Remembered | None:
        """Return what it produced in this run, by its hash and by nothing else."""
        ...

    def keep_output(self, case: BenchCase, trial: int, produced: SutAnswer | SutFault) -> None:
        """Keep what was produced, success or failure."""
        ...

    def answer(self, case: BenchCase, output: bytes) -> Answer | None:
        """Return what the rubric said of this very output before."""
        ...

    def keep_answer(self, case: BenchCase, output: bytes, answer: Answer) -> Answer:
        """Keep what the rubric said, and return it; or the fault, if it once said something else."""
        ...

    def artifact(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes under their hash while there is room; return the name to record and the hash."""
        ...


class Clock(Protocol):
    """The two clocks: one to write down, one to measure with."""

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step."""
        ...


class Progress(Protocol):
    """Is told what happens during a run; decides nothing."""

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Hear that a trial has its score."""
        ...
