"""Pools of supervisors and zygotes, which are started when they are needed and used again."""

import json
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.processes import Handle, real_interpreter
from codegenie.eval.system.supervisor import Supervisor

SupervisorT = TypeVar("SupervisorT", bound=Supervisor)
_SUPERVISOR_PROGRAM = Path(__file__).with_name("supervisor_program.py")
_LIMITS_HINT = "check the limits of this machine with `ulimit -a`, or lower --concurrency"
_SUPERVISOR_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def start_program(program: list[str], environment: Mapping[str, str]) -> tuple[Handle, socket.socket]:
    """Start a program of ours whose standard input is a socket to the harness.

    Raises HarnessFailure if the program cannot be started.
    """
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise HarnessFailure(f"cannot make a socket: {error}", hint=_LIMITS_HINT) from None
    try:
        process = subprocess.Popen(
            program,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise HarnessFailure(f"cannot start a process: {error}", hint=_LIMITS_HINT) from None
    finally:
        theirs.close()
    return process, ours


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The settings of a new supervisor: limits for all its children, and a directory to clean up."""

    directory: Path | None
    limits: Mapping[str, int]
    renounce_privileges: bool = False

    def command(self) -> list[str]:
        """Return the command line of such a supervisor."""
        settings = {
            "directory": None if self.directory is None else str(self.directory),
            "limits": dict(self.limits),
            "renounce_privileges": self.renounce_privileges,
            "leak_grace_seconds": LIMITS.leak_grace_seconds,
        }
        return [real_interpreter(), "-I", "-S", "-B", str(_SUPERVISOR_PROGRAM), json.dumps(settings)]

    def start(self) -> Supervisor:
        """Start one supervisor."""
        return Supervisor(*start_program(self.command(), _SUPERVISOR_ENVIRONMENT))


def plain_supervisors(
    directory: Path | None, limits: Mapping[str, int], *, renounce_privileges: bool = False
) -> "SupervisorPool[Supervisor]":
    """Return a pool of supervisors that start plain children."""
    settings = SupervisorSettings(directory, limits, renounce_privileges)

    async def start() -> Supervisor:
        return settings.start()

    return SupervisorPool(start)


class SupervisorPool(Generic[SupervisorT]):
    """Supervisors of one kind, made when they are first needed and used again."""

    def __init__(self, start: Callable[[], Awaitable[SupervisorT]], uses: int | None = None) -> None:
        self._start = start
        self._uses = uses
        self._idle: list[SupervisorT] = []
        self._closed = False

    async def open(self) -> None:
        """Start the first supervisor now: it removes the directory if the harness dies before any case."""
        self._idle.append(await self._start())

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[SupervisorT]:
        """Lend one supervisor. It is kept afterwards only if it still lives and has uses left."""
        supervisor = self._living() or await self._start()
        try:
            yield supervisor
        finally:
            worn_out = self._uses is not None and supervisor.served >= self._uses
            if self._closed or worn_out or not supervisor.alive:
                supervisor.dismiss()
                supervisor.reap()
            else:
                self._idle.append(supervisor)

    def _living(self) -> SupervisorT | None:
        while self._idle:
            supervisor = self._idle.pop()
            if supervisor.alive:
                return supervisor
            supervisor.dismiss()
            supervisor.reap()
        return None

    async def close(self) -> None:
        """End every idle supervisor; one that is lent out ends when it is returned."""
        self._closed = True
        leaving, self._idle = self._idle, []
        for supervisor in leaving:
            supervisor.dismiss()
        try:
            for supervisor in leaving:
                await supervisor.left()
        finally:
            for supervisor in leaving:
                supervisor.reap()
