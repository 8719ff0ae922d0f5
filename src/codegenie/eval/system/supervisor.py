"""The harness's side of a supervisor: start, limit, end and reap a process tree from an event loop.

A small process of our own does the work (`supervisor_program.py`): it spawns, waits and ends. No code here
waits for a pipe (cpython #119710). A child's streams are files that are read after it has ended, so a child
can neither deadlock the harness nor block a read.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any

from codegenie.eval.errors import EvalError, HarnessFailure
from codegenie.eval.limits import LIMITS
from codegenie.eval.system import protocol
from codegenie.eval.system.processes import Handle, ProcessEnd, Request
from codegenie.eval.system.protocol import line_of
from codegenie.eval.system.scheduling import Deadline, process_numbers, session, state, time_share

# How long to wait until all threads of a stopped process have stopped: a thread needs a processor to stop.
_STANDSTILL_SECONDS = 1.0
_TURN_SECONDS = 0.005
_BUSY = "the machine is too busy: run the same command again later, or lower --concurrency"


class _SupervisorLost(Exception):  # noqa: N818 - internal: the connection to a supervisor ended
    pass


class _Silence(Enum):
    """Why a supervisor has not answered."""

    CLOSED = auto()  # its connection has ended, and it with it
    STARVED = auto()  # it works, but the machine gives it no time
    STUCK = auto()  # it does not work, also after it was woken


class Supervisor:
    """The harness's side of one supervisor."""

    def __init__(self, process: Handle, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._process = process
        self._socket = connection
        self._buffer = b""
        self._said: dict[str, Any] | None = None
        self._child: int | None = None
        self._in_use = True
        self.served = 0

    @property
    def alive(self) -> bool:
        """Whether it can be asked again. A supervisor that was ended while it was idle cannot."""
        return self._in_use and self._process.poll() is None

    async def run(self, request: Request) -> ProcessEnd:
        """Run a process to the end of its whole tree, also when cancelled. Raises EvalError if it cannot."""
        self.served += 1
        deadline = Deadline(request.seconds)
        try:
            answer = await self._answer_or_silence(request, deadline)
        except asyncio.CancelledError:
            await self._cancel(request.directory)
            raise
        if isinstance(answer, _Silence):
            self._give_up(request.directory)
            if answer is _Silence.STARVED:
                raise HarnessFailure("a helper process did not get the time to answer", hint=_BUSY)
            return ProcessEnd(lost=True)
        if protocol.ERROR in answer:
            raise self.refusal(answer, request.directory)
        if not answer["fit"]:
            self._give_up(request.directory)
        return ProcessEnd.told(answer, deadline.starved)

    async def _answer_or_silence(self, request: Request, deadline: Deadline) -> dict[str, Any] | _Silence:
        """Return how a process ended, or why the supervisor does not say so."""
        try:
            answer = await self._started_and_ended(request, deadline)
            if answer is None:
                # The child may have stopped it. It gets the time of a tear-down to answer once more.
                self._wake()
                answer = await self._last_word()
            starves = answer is None and state(self._process.pid) == "R"
        except (_SupervisorLost, OSError):
            return _Silence.CLOSED
        if answer is not None:
            return answer
        return _Silence.STARVED if starves else _Silence.STUCK

    async def _started_and_ended(self, request: Request, deadline: Deadline) -> dict[str, Any] | None:
        """Start a process, again while others use up a limit that it needs; return how it ended."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + LIMITS.start_seconds
        while True:
            self._said = None
            await self._send(request)
            answer = await self._end_of(request.seconds, deadline)
            if answer is None or not answer.get("passing") or loop.time() > patience:
                return answer
            await asyncio.sleep(_TURN_SECONDS)

    async def _end_of(self, seconds: float, deadline: Deadline) -> dict[str, Any] | None:
        """Return how a process ended; at its deadline, grant what the machine withheld from it."""
        while True:
            answer = await self._answer(seconds + LIMITS.leak_grace_seconds + 1.0)
            for _ in range(int(LIMITS.teardown_seconds)):
                # A supervisor that waits for a processor is still working.
                if answer is not None or state(self._process.pid) != "R":
                    break
                answer = await self._answer(1.0)
            if answer is None or protocol.DUE not in answer:
                return answer
            self._said = None
            self._halt()
            seconds = deadline.more(time_share(await self._standing_still()))
            if seconds:
                self._go_on()
            self._socket.send(line_of({protocol.MORE: seconds}))

    async def _last_word(self) -> dict[str, Any] | None:
        """Return the answer that ends a request, or None; a request for more time now gets none."""
        while True:
            answer = await self._answer(LIMITS.teardown_seconds + 1.0)
            if answer is None or protocol.DUE not in answer:
                return answer
            self._said = None
            self._socket.send(line_of({protocol.MORE: 0}))

    async def _standing_still(self) -> list[int]:
        """Return the processes of a request, once all of them have stopped or ended.

        The kernel adds up the waiting of a thread when the thread gets a processor, and only then it stops.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _STANDSTILL_SECONDS
        while True:
            numbers = self._working()
            if all(state(number) in "TtZX" for number in numbers) or loop.time() > deadline:
                return numbers
            await asyncio.sleep(_TURN_SECONDS)

    def _halt(self) -> None:
        """Stop the processes of a request at its deadline, so that they do not go on while we check them."""
        self._signal_child(signal.SIGSTOP)

    def _go_on(self) -> None:
        self._signal_child(signal.SIGCONT)

    def _working(self) -> list[int]:
        """Return the numbers of the processes of the current request."""
        return [] if self._child is None else session(self._child)

    def refusal(self, answer: Mapping[str, Any], directory: str | None) -> EvalError:
        """Return the error for a process that could not be started."""
        return HarnessFailure(f"cannot start a process: {answer[protocol.ERROR]}", where=directory)

    async def _send(self, request: Request) -> None:
        raw = line_of(request.message())
        try:
            sent = socket.send_fds(self._socket, [raw], list(request.streams))
        except ConnectionError:
            raise
        except OSError as error:
            # The supervisor lives: the harness itself cannot send, and no case is to blame for that.
            raise HarnessFailure(f"cannot ask for a process: {error}", where=request.directory) from None
        if sent < len(raw):
            # An environment may be larger than the socket's buffer. The first part carried the descriptors.
            await asyncio.get_running_loop().sock_sendall(self._socket, raw[sent:])

    async def _answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the supervisor's answer, or None if none comes in time.

        It reads once more when the time is over: our own loop may have been busy for longer. It never reads
        by a call that can be cancelled, like sock_recv: data that was read by such a call would be lost.
        """
        loop = asyncio.get_running_loop()
        if self._received() is None:
            heard = loop.create_future()
            timer = loop.call_later(seconds, _set_once, heard)
            loop.add_reader(self._socket, self._listen, heard)
            try:
                await heard
            finally:
                timer.cancel()
                loop.remove_reader(self._socket)
        return self._received()

    def _listen(self, heard: "asyncio.Future[None]") -> None:
        """Wake the waiting task only when the whole answer is there: waking costs more than reading."""
        try:
            there = self._received() is not None
        except (_SupervisorLost, OSError):
            there = True  # the waiting task gets the same error
        if there:
            _set_once(heard)

    def _received(self) -> dict[str, Any] | None:
        """Read what the supervisor has sent so far; return its answer if it is complete."""
        if self._said is not None:
            return self._said
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(4_096)
            if not data:
                raise _SupervisorLost
            self._buffer += data
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            said: dict[str, Any] = json.loads(line)
            if protocol.DUE not in said:
                self._child = said.get(protocol.STARTED)
            if protocol.STARTED not in said:
                self._said = said
                return said
        return None

    def _wake(self) -> None:
        """Undo a SIGSTOP that the child sent to its supervisor. End the child first: it would repeat it."""
        self._signal_child(signal.SIGKILL)
        self._process.send_signal(signal.SIGCONT)

    def _signal_child(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, number)

    async def _cancel(self, directory: str | None) -> None:
        answer = None
        # Cancelled a second time: the caller does not want to wait.
        with contextlib.suppress(_SupervisorLost, OSError, asyncio.CancelledError):
            answer = self._received()
            if answer is None or protocol.DUE in answer:
                self._said = None
                self._socket.send(line_of({protocol.CANCEL: True}))
                self._wake()
                answer = await self._last_word()
        if answer is None or not answer.get("fit"):
            self._give_up(directory)

    def _give_up(self, directory: str | None) -> None:
        """End a supervisor that no longer answers, and all of its tree that can still be found."""
        self._in_use = False
        self._signal_child(signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._socket.close()
        if directory is not None:
            _end_strays(directory)

    def dismiss(self) -> None:
        """Tell an idle supervisor to leave."""
        self._in_use = False
        with contextlib.suppress(OSError):
            self._socket.send(line_of({protocol.LEAVE: True}))
        self._socket.close()

    async def left(self) -> None:
        """Wait two seconds at most for a dismissed supervisor to leave."""
        for _ in range(400):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.005)

    def reap(self) -> None:
        """Reap the process, so that no zombie is left; a dismissed supervisor that still lives is ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _set_once(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _end_strays(directory: str) -> None:
    """End processes that still work in `directory`: without its supervisor only TMPDIR identifies them.

    Linux only, and only processes that kept their environment. A process that hides from this could also
    have ended the harness: the `subprocess` class does not defend against that.
    """
    mark = f"TMPDIR={directory}\0".encode()
    for _ in range(100):
        strays = [pid for pid in process_numbers() if mark in _environment_of(pid)]
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
