"""The interfaces between the stages of a run and the outside world.

Each is a Protocol, except the abstract class `SutRunner`. At run time this module needs only the standard
library: the child process of a SUT imports it for `SutCase` and must not pay for importing the records.
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

    from codegenie.eval.evidence import Account, Answer, Promised, TrialEvidence, WorkItem
    from codegenie.eval.isolation_proof import IsolationProof
    from codegenie.eval.models import BenchCase, IsolationClass, SutBoundary, SutIdentity, TrialScore


@dataclass(frozen=True, slots=True)
class SutCase:
    """All that a system under test learns about a case: neither its disposition nor what is expected."""

    case_id: str
    task_class: str
    input_dir: str
    trial: int


@dataclass(frozen=True, slots=True)
class SutResult:
    """What a system under test may return instead of a bare mapping, to report its cost."""

    harness_output: Mapping[str, Any]
    cost_usd: float | None = None
    usage: Mapping[str, Any] | None = None


class SystemUnderTest(Protocol):
    """An agent as an object in the caller's process: an async callable from case to output."""

    def __call__(self, case: SutCase, /) -> Awaitable[Mapping[str, Any] | SutResult]:
        """Work on the case and return a JSON object, or a SutResult around one."""
        ...


@dataclass(frozen=True, slots=True)
class SutAnswer:
    """What a system under test produced before its deadline: checked JSON bytes within the cap."""

    output: bytes
    cost_usd: float | None
    log: bytes = b""
    # Files of its copy that the agent changed, if its output returned no files.
    unreturned: tuple[str, ...] = ()
    account: Account | None = None
    # Further artefacts of the call by name, such as the streams and the patch of a command.
    left_behind: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SutFault:
    """A system under test that produced nothing usable, with the failure code for it."""

    code: str
    detail: str
    cost_usd: float | None = None
    log: bytes = b""
    # It ended normally without an answer. Its work may be in its copy of the case.
    returned_nothing: bool = False
    unreturned: tuple[str, ...] = ()
    account: Account | None = None
    left_behind: tuple[tuple[str, bytes], ...] = ()


Explain: TypeAlias = Callable[[str], None]
"""Is told why something is measured again."""

Measure: TypeAlias = "Callable[[WorkItem], Awaitable[TrialEvidence]]"
"""Measures one trial in the process where it is called."""

Reads: TypeAlias = Literal["input", "case"]
"""Which part of a case decides an output: `input/`, or every file of the case."""


class SutRunner(ABC):
    """Asks one kind of system under test for its output, within a deadline that it cannot move.

    A base class and not a protocol. An object that only has these attributes, such as a mock, belongs to the
    caller: it runs in the caller's process and must not name its own boundary.
    """

    identity: SutIdentity
    boundary: SutBoundary
    wants_input: bool
    # A stored output is found by the digest of this part. A runner with `input` must not read any other part.
    reads: Reads = "input"

    @abstractmethod
    async def prepare(self) -> None:
        """Check, before the first case, that the system under test can be asked."""

    @abstractmethod
    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return the output or a fault. Raises only errors that end the run.

        If the call is cancelled, everything that the system under test started is ended.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close everything that is still open."""


Room: TypeAlias = "Path | int"
"""A private copy of a case: a directory, or the descriptor of a parcel that the rubric's process unpacks."""


@dataclass(frozen=True, slots=True)
class RubricRun:
    """What a rubric child left behind: capped bytes and how it ended. Untrusted.

    `starved_with` is set if the machine had no processor for the child: the seconds that it did get.
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
    """Runs a rubric where it can do no damage and returns what it wrote, unparsed."""

    isolation_class: IsolationClass
    proof: IsolationProof
    # Why a stronger class was not chosen.
    notes: tuple[str, ...]
    wants_parcel: bool

    async def run(self, room: Room, request: bytes, seconds: float) -> RubricRun:
        """Run `rubric.py` in `room`, its private copy of the case, with `request` on stdin.

        When the call returns, or is cancelled, every process that the rubric started has ended.
        """
        ...

    async def close(self) -> None:
        """Close everything that is still open."""
        ...


class CaseStore(Protocol):
    """Makes private copies of a case. They are hashed while they are copied and always removed."""

    def for_sut(self, case: BenchCase) -> AbstractContextManager[Path]:
        """Yield a directory that holds `input/`."""
        ...

    def for_rubric(self, case: BenchCase) -> AbstractContextManager[Path]:
        """Yield a directory that holds the rubric, `input/` and `expected/`."""
        ...

    def changed_files(self, case: BenchCase, directory: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Name the files of a copy made by `for_sut` that were changed or removed, and the new files."""
        ...

    def parcel_for_rubric(self, case: BenchCase) -> AbstractContextManager[int]:
        """Yield the same content, packed in an anonymous file."""
        ...


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a system under test produced before, and whether that was in this run before it died."""

    produced: SutAnswer | SutFault
    in_this_run: bool


class TrialNotices(Protocol):
    """What a trial reports to the caller of its engine while it runs. The caller stores and counts it."""

    async def asking(self, item: WorkItem) -> None:
        """Note that the system under test is asked now. Returns when that is on the disk."""
        ...

    def spent(self, cost_usd: float | None) -> None:
        """Note what the system under test has spent, as soon as it says so."""
        ...

    def produced(self, item: WorkItem, output: Promised) -> None:
        """Note what it produced, before that is judged."""
        ...


class Engine(Protocol):
    """Measures work items, several at once. Items and evidence are plain data, so they can be sent elsewhere.

    The caller keeps journal, budget, progress and resume: it makes the items and stores the evidence.
    """

    async def measure(self, items: Iterable[WorkItem], keep: Callable[[TrialEvidence], None]) -> None:
        """Measure every item and pass its evidence to `keep`.

        An item is taken only when a worker is free, so the caller can stop a run by ending the items. The
        first exception ends all work in progress and is raised.
        """
        ...


class MakeEngine(Protocol):
    """Makes the engine of one run."""

    def __call__(self, measure: Measure, concurrency: int, /) -> Engine:
        """Return an engine that measures each trial with `measure`, at most `concurrency` at once."""
        ...


class TrialMemory(Protocol):
    """The known outputs and answers, and the place where new ones are kept."""

    def output(self, case: BenchCase, trial: int) -> Remembered | None:
        """Return what the system under test produced before, if it may be reused."""
        ...

    def own_output(self, case: BenchCase, trial: int, promised: Promised) -> Remembered | None:
        """Return what it produced in this run, found only by its hash."""
        ...

    def keep_output(self, case: BenchCase, trial: int, produced: SutAnswer | SutFault) -> None:
        """Keep what was produced, whether it is a success or a failure."""
        ...

    def answer(self, case: BenchCase, output: bytes) -> Answer | None:
        """Return what the rubric said before about exactly this output."""
        ...

    def keep_answer(self, case: BenchCase, output: bytes, answer: Answer) -> Answer:
        """Keep the rubric's answer and return it. If it once gave another answer, return that fault."""
        ...

    def artifact(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes under their hash while there is room. Return the name to record, and the hash."""
        ...


class Clock(Protocol):
    """The two clocks: the wall clock for records, and the monotonic clock for durations."""

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps."""
        ...


class Progress(Protocol):
    """Is told what happens during a run, and decides nothing."""

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Note that a trial has its score."""
        ...
