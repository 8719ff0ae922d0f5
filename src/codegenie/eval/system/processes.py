"""One process as the harness sees it: the request to start it, a handle to it, and how it ended."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from codegenie.eval.system import protocol
from codegenie.eval.system.scheduling import TimeShare


def real_interpreter() -> str:
    """Return the interpreter itself: a shim costs 65 ms per start, and a venv's link adds its packages."""
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    return str(Path(base).resolve())


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """One process to start: `streams` become its descriptors 0, 1, 2 and so on.

    `limits` are its own, in addition to those of its supervisor. If it is `patient`, its deadline is moved by
    the time that the machine withheld.
    """

    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    streams: tuple[int, ...]
    seconds: float
    limits: Mapping[str, int] = field(default_factory=dict)
    patient: bool = False

    def message(self) -> protocol.Run:
        """Return the message to a supervisor."""
        return protocol.Run(
            argv=list(self.argv),
            cwd=self.directory,
            env=dict(self.environment),
            seconds=self.seconds,
            limits=dict(self.limits),
            patient=self.patient,
        )


class Request(Protocol):
    """A request to a supervisor of any kind; `directory` is where leftover processes would work, if known."""

    @property
    def directory(self) -> str | None:
        """The directory in which the process works, if the host sees it."""
        ...

    @property
    def streams(self) -> tuple[int, ...]:
        """The descriptors that go with the message."""
        ...

    @property
    def seconds(self) -> float:
        """The deadline."""
        ...

    def message(self) -> protocol.Run | protocol.RunConfined:
        """Return the message to the supervisor."""
        ...


class Handle(Protocol):
    """A process that was started for us."""

    pid: int

    def poll(self) -> int | None:
        """Return None while it lives."""
        ...

    def wait(self) -> int:
        """Wait for its end."""
        ...

    def kill(self) -> None:
        """End it."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process tree ended. `lost` means that its supervisor ended before it.

    `starved` is its share of time if the machine, and not the process itself, made it miss its deadline.
    """

    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    leaked: int = 0
    wall_seconds: float = 0.0
    lost: bool = False
    starved: TimeShare | None = None

    @classmethod
    def told(cls, answer: Mapping[str, Any], starved: TimeShare | None) -> Self:
        """Return the end that a supervisor reports."""
        number = answer.get("signal")
        return cls(
            exit_code=answer.get("exit"),
            signal=_signal_name(number) if number is not None else None,
            timed_out=answer["timed_out"],
            leaked=answer["leaked"],
            wall_seconds=answer["wall"],
            starved=starved if answer["timed_out"] else None,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
