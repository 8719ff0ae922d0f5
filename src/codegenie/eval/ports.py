"""The interfaces between the stages of a run and the outside world.

Each is a Protocol, except the abstract class `SutRunner`. At run time this module needs only the standard
library: the child process of a SUT imports it for `SutCase` and must not pay for importing the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from codegenie.eval.evidence import Account, Answer, Promised, TrialEvidence, WorkItem
    from codegenie.eval.execution_ports import CaseFile, Judged
    from codegenie.eval.isolation_proof import BoxProof, IsolationProof
    from codegenie.eval.models import (
        BenchCase,
        IsolationClass,
        SutBoundary,
        SutIdentity,
        SutNetwork,
        TrialScore,
    )


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
class KeptWork:
    """What the harness collected from the files of a system under test, to be kept beside its output.

    `listing` says what there is beside the patch. `binaries` are contents that are no text, by their hash.
    """

    listing: str
    patch: str
    binaries: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SutAnswer:
    """What a system under test produced before its deadline: checked JSON bytes within the cap."""

    output: bytes
    cost_usd: float | None
    log: bytes = b""
    account: Account | None = None
    # Further artefacts of the call by name, such as the streams of a command.
    left_behind: tuple[tuple[str, bytes], ...] = ()
    work: KeptWork | None = None


@dataclass(frozen=True, slots=True)
class SutFault:
    """A system under test that produced nothing usable, with the failure code for it."""

    code: str
    detail: str
    cost_usd: float | None = None
    log: bytes = b""
    # It ended normally without an answer. Its work may be in its copy of the case.
    returned_nothing: bool = False
    # The harness, or what it needs, failed, and the system under test cannot have caused it.
    void: bool = False
    account: Account | None = None
    left_behind: tuple[tuple[str, bytes], ...] = ()
    work: KeptWork | None = None


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
    # What a system in a box could reach; None for one without a box.
    network: SutNetwork | None = None
    proof: BoxProof | None = None
    upstream: str | None = None
    # What the report has to say about it, such as why a stronger class was not chosen.
    notes: tuple[str, ...] = ()
    # Values that must not be stored or shown, beside those of our environment.
    secrets: Mapping[str, str] = MappingProxyType({})
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

    async def settle(self) -> None:
        """Check, after the last case, that the system is still what was measured. Raises SutChanged.

        Most systems are checked at every call, and need no more.
        """
        return

    @abstractmethod
    async def close(self) -> None:
        """Close everything that is still open."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life of an agent that works now. None is a number that is not known."""

    case_id: str
    trial: int
    seconds: float
    limit_seconds: float
    # How many pieces of output came, and how long ago the last sign of life was.
    events: int
    silent_seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class BoxedRunner(SutRunner):
    """Asks a program in a box. It gets the input packed, so no file of the case is on a disk that it sees."""

    wants_input = True

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Refuse to be asked without the input."""
        raise RuntimeError(f"case {case.case_id} was asked without its packed input, within {seconds} s")

    @abstractmethod
    async def ask_in_box(self, case: SutCase, seconds: float, parcel: int) -> SutAnswer | SutFault:
        """Do what `ask` does; `parcel` is the descriptor of the packed files of `input/`."""

    def beats(self) -> tuple[Beat, ...]:
        """Return a sign of life of every agent that works now."""
        return ()

    def why_not_counted(self, case: SutCase) -> str | None:
        """Return why a call that was just cancelled does not count; None if it does, as most do."""
        del case
        return None


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

    def for_execution(self, case: BenchCase) -> Mapping[str, CaseFile]:
        """Return the files of `input/` and `execute/` by their paths in the case."""
        ...

    def input_files(self, case: BenchCase) -> list[tuple[str, bytes, bool]]:
        """Return the files that `for_sut` copies: path, content, and whether it can be executed."""
        ...

    def parcel_for_sut(self, case: BenchCase) -> AbstractContextManager[int]:
        """Yield the files of `input/`, packed in an anonymous file."""
        ...

    def parcel_for_rubric(self, case: BenchCase) -> AbstractContextManager[int]:
        """Yield the same content, packed in an anonymous file."""
        ...


class WorkCollector(Protocol):
    """Takes what a system under test changed in its copy of a case for its answer."""

    async def completed(
        self, case: BenchCase, directory: Path, produced: SutAnswer | SutFault
    ) -> SutAnswer | SutFault:
        """Return what was produced, with what was changed in `directory`, a copy made by `for_sut`."""
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

    def voided(self, item: WorkItem, cause: str) -> None:
        """Note that the last asking does not count: the harness, or what it needs, failed."""
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

    def executions(self, case: BenchCase, output: bytes) -> bytes | None:
        """Return what came of the steps of a case for exactly this output, if it may be reused."""
        ...

    def keep_executions(self, case: BenchCase, output: bytes, executions: bytes) -> None:
        """Keep what came of the steps."""
        ...

    def answer(self, case: BenchCase, judged: Judged) -> Answer | None:
        """Return what the rubric said before about exactly this."""
        ...

    def keep_answer(self, case: BenchCase, judged: Judged, answer: Answer) -> Answer:
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


@runtime_checkable
class Watcher(Protocol):
    """Is also shown the agents that work, once a second. A `Progress` may be one."""

    def working(self, beats: Sequence[Beat]) -> None:
        """Show the agents that work now."""
        ...
