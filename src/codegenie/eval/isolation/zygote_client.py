"""The harness's side of the guardian and of the zygotes that it makes."""

import asyncio
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegenie.eval.errors import EvalError, HarnessFailure, IsolationUnavailable
from codegenie.eval.isolation.child_settings import (
    case_limits,
    confined_limits,
    rubric_environment,
    rubric_limits,
)
from codegenie.eval.isolation.confinement.namespaces import CAGE
from codegenie.eval.isolation.confinement.visible_paths import ROOM
from codegenie.eval.isolation.headroom import most_tasks
from codegenie.eval.isolation.machine import namespaces_are_switched_off
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.system import protocol
from codegenie.eval.system.processes import Handle, real_interpreter
from codegenie.eval.system.protocol import line_of
from codegenie.eval.system.scheduling import parent, process_numbers
from codegenie.eval.system.supervisor import Supervisor
from codegenie.eval.system.supervisor_pool import SupervisorSettings, start_program

_PROGRAM = Path(__file__).parent / "confinement" / "guardian_program.py"
_DOCTOR = "run `codegenie eval doctor` for what is missing on this machine"
_REMEDIES = {
    (errno.EFBIG,): "the shell limits the size of files: `ulimit -f unlimited`, and run again",
    (errno.ENOSPC, errno.EDQUOT): "free space below TMPDIR, check the limits in `sysctl user`, and run again",
    (errno.ENOENT,): "check that /proc is mounted and that the interpreter still exists, and run again",
    (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS, errno.ENOBUFS): (
        "processes, memory or open files have run out: lower --concurrency, or run again"
    ),
}


@dataclass(frozen=True, slots=True)
class ConfinedRequest:
    """One process to confine: three standard streams, and its room as the fourth descriptor."""

    streams: tuple[int, int, int, int]
    seconds: float
    # Whether it can be inspected from outside, which the probe of a proof needs.
    seen: bool = False
    # Limits of this run, in addition to those that follow from the deadline.
    limits: Mapping[str, int] = field(default_factory=dict)
    directory: None = None

    def message(self) -> protocol.RunConfined:
        """Return the message to a zygote: a deadline and its limits, and no data of the case."""
        limits = {**case_limits(self.seconds), **self.limits}
        told = protocol.RunConfined(seconds=self.seconds, limits=limits)
        if self.seen:
            told["seen"] = True
        return told


class _Ended(Exception):  # noqa: N818 - internal: the other end of a socket is closed
    pass


class _Descriptor:
    """A process that is not our child, held by a descriptor, which can never come to mean another process."""

    def __init__(self, number: int) -> None:
        self.pid = number
        self._descriptor: int | None = os.pidfd_open(number)

    def poll(self) -> int | None:
        """Return None while the process lives."""
        return 0 if self._has_ended(0.0) else None

    def wait(self) -> int:
        """Wait for the end of a process that was told to end, and close the descriptor."""
        if self._descriptor is not None:
            self._has_ended(LIMITS.teardown_seconds)
            os.close(self._descriptor)
            self._descriptor = None
        return 0

    def _has_ended(self, seconds: float) -> bool:
        if self._descriptor is None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def send_signal(self, sig: int) -> None:
        """Send the process a signal, if it still lives."""
        if self.poll() is None and self._descriptor is not None:
            signal.pidfd_send_signal(self._descriptor, sig)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)


def _refusal(isolation_class: IsolationClass, said: Mapping[str, Any]) -> EvalError:
    """Return the error for a step that failed: the kernel lacks the class, or the step failed this time."""
    message = f"isolation class {isolation_class!r} cannot be set up: {said[protocol.ERROR]}"
    no_namespaces = said.get("errno") == errno.ENOSPC and namespaces_are_switched_off()
    if said.get("lacking") or no_namespaces:
        return IsolationUnavailable(message, hint=_DOCTOR)
    return HarnessFailure(message, hint=_remedy(said.get("errno")))


def _remedy(number: int | None) -> str:
    """Return what to do about a failed step if the kernel has everything that the step needs."""
    for numbers, what in _REMEDIES.items():
        if number in numbers:
            return what
    return "run again; the kernel has all that the class needs, so a weaker class is not used"


class Zygote(Supervisor):
    """The harness's side of one zygote."""

    def __init__(
        self, process: _Descriptor, connection: socket.socket, isolation_class: IsolationClass
    ) -> None:
        super().__init__(process, connection)
        self.number = process.pid
        self._isolation_class = isolation_class
        self._processors: frozenset[int] = frozenset()

    def refusal(self, answer: Mapping[str, Any], directory: str | None) -> EvalError:  # noqa: ARG002 - it has none
        """Return the error for a copy in which a step failed before any foreign code ran."""
        return _refusal(self._isolation_class, answer)

    def copies(self) -> list[int]:
        """Return the process numbers of its children on the host."""
        try:
            listed = Path(f"/proc/{self.number}/task/{self.number}/children").read_text(encoding="ascii")
        except OSError:
            # Either the zygote has ended, and all its copies with it. Or /proc shows a user only the
            # processes that it may trace (hidepid=2), which hides the zygote but not its copies.
            return [number for number in process_numbers() if parent(number) == self.number]
        return [int(number) for number in listed.split()]

    def _working(self) -> list[int]:
        return self.copies()

    def use(self, processors: frozenset[int]) -> None:
        """Bind the zygote and its future copies to these processors."""
        if processors != self._processors:
            # The zygote may have ended, which its next answer shows; or the processors were taken from us.
            with suppress(OSError):
                os.sched_setaffinity(self.number, processors)
            self._processors = processors

    def reap(self) -> None:
        """End the zygote if it still lives, and release it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Guardian:
    """The harness's side of the guardian, which makes zygotes and cleans up if the harness dies."""

    def __init__(self, isolation_class: IsolationClass, spawn: Spawn, run_directory: Path) -> None:
        self._isolation_class = isolation_class
        self._directory = run_directory
        # The mount point of the new root; only the zygote sees what is mounted there.
        cage = run_directory / CAGE
        try:
            cage.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise HarnessFailure(
                f"cannot make a private directory: {error.strerror}",
                where=str(cage),
                hint=_remedy(error.errno),
            ) from None
        interpreter = real_interpreter()
        settings = {
            "class": isolation_class,
            "limits": confined_limits(isolation_class),
            # More than its copies may have: a zygote can still be made when they have used up their limit.
            "most_tasks": most_tasks(LIMITS.user_tasks_kept // 2),
            "program": {"interpreter": interpreter, "name": "rubric.py", "spawn": spawn},
            "cleaner": SupervisorSettings(None, rubric_limits()).command(),
        }
        self._program = [interpreter, "-s", "-S", "-B", str(_PROGRAM)]
        self._settings = line_of(settings)
        self._process, self._socket = self._started()
        self._turn = asyncio.Lock()
        self._has_made_one = False

    def _started(self) -> tuple[Handle, socket.socket]:
        process, connection = start_program(self._program, rubric_environment(ROOM))
        # A descriptor and never a path: what a guardian knows is in the memory of every copy.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(ConnectionError):  # the first request reports a guardian that has ended
            socket.send_fds(connection, [self._settings], [directory])
        os.close(directory)
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        return process, connection

    async def zygote(self) -> Zygote:
        """Make one zygote and wait until it is confined.

        If this worked once before, it is tried a second time: another process has ended the guardian or the
        zygote. Raises IsolationUnavailable if the kernel lacks the class, HarnessFailure for other failures.
        """
        for last in (not self._has_made_one, True):
            try:
                return await self._confined()
            except (_Ended, ConnectionError) as error:
                if last:
                    raise _refusal(self._isolation_class, {protocol.ERROR: str(error)}) from None
            except OSError as error:
                said = {protocol.ERROR: str(error), "errno": error.errno}
                raise _refusal(self._isolation_class, said) from None
        raise AssertionError("unreachable")

    async def _confined(self) -> Zygote:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - likewise
        with ExitStack() as held:
            held.callback(ours.close)
            process = await self._made(theirs)
            held.callback(process.wait)
            held.callback(process.kill)
            await self._heard(ours)
            held.pop_all()
        self._has_made_one = True
        return Zygote(process, ours, self._isolation_class)

    async def _made(self, theirs: socket.socket) -> _Descriptor:
        with theirs:
            async with self._turn:
                if self._process.poll() is not None:
                    self._socket.close()
                    self._process, self._socket = self._started()
                try:
                    socket.send_fds(self._socket, [line_of({protocol.ZYGOTE: True})], [theirs.fileno()])
                    made = await self._heard(self._socket)
                except (_Ended, OSError):
                    # The guardian may be about to end, so it is not asked again.
                    self._process.kill()
                    self._process.wait()
                    raise
        return _Descriptor(made[protocol.ZYGOTE])

    async def _heard(self, connection: socket.socket) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            line = await asyncio.wait_for(loop.sock_recv(connection, 4_096), LIMITS.zygote_seconds)
        except TimeoutError:
            raise _refusal(self._isolation_class, {protocol.ERROR: "no answer in time"}) from None
        if not line:
            raise _Ended("it ended by itself")
        said: dict[str, Any] = json.loads(line)
        if protocol.ERROR in said:
            raise _refusal(self._isolation_class, said)
        return said

    async def close(self) -> None:
        """Tell the guardian to leave; its zygotes have left before. Raises HarnessFailure if it stays."""
        try:
            self._socket.send(line_of({protocol.LEAVE: True}))
            for _ in range(400):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(0.005)
        except OSError as error:
            if self._process.poll() is None:
                raise HarnessFailure(f"cannot end a guardian: {error}") from None
        finally:
            self._socket.close()
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
