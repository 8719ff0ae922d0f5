"""Start, bound, end and reap a process tree, from inside an event loop.

The work is done by a keeper, a small process of our own (`keeper.py`): it spawns, waits and ends. Nothing
here waits for a pipe (cpython #119710), and a child's streams are files that are read once it is dead, so a
child can neither deadlock against us nor hold a read open.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.limits import LIMITS

_KEEPER_PROGRAM = Path(__file__).with_name("keeper.py")
_LIMITS_HINT = "see the limits of this machine, or lower --concurrency"
_KEEPER_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def real_interpreter() -> str:
    """Return the interpreter itself: a shim costs 65 ms a start, a venv's link would bring its site back."""
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    return str(Path(base).resolve())


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """One process to start: `streams` become its descriptors 0, 1, 2 and so on."""

    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    streams: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process tree ended. `lost` means that its keeper was ended under it."""

    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    leaked: int = 0
    wall_seconds: float = 0.0
    lost: bool = False


class _KeeperLost(Exception):  # noqa: N818 - internal: the connection to a keeper ended
    pass


class Keeper:
    """The harness's end of one keeper process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise HarnessFailure(f"cannot make a socket: {error}", hint=_LIMITS_HINT) from None
        try:
            self._process = subprocess.Popen(
                [real_interpreter(), "-I", "-S", "-B", str(_KEEPER_PROGRAM), json.dumps(dict(settings))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_KEEPER_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise HarnessFailure(f"cannot start a process: {error}", hint=_LIMITS_HINT) from None
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._socket = ours
        self._buffer = b""
        self._said: dict[str, Any] | None = None
        self._child: int | None = None
        self._in_use = True

    @property
    def alive(self) -> bool:
        """Whether it can be asked again. One that was ended while it was idle cannot."""
        return self._in_use and self._process.poll() is None

    async def run(self, request: ProcessRequest) -> ProcessEnd:
        """Run one process to the end of its whole tree, also when cancelled."""
        self._said = None
        try:
            await self._send(request)
            answer = await self._answer(request.seconds + LIMITS.leak_grace_seconds + 1.0)
            if answer is None:
                self._wake()
                answer = await self._answer(LIMITS.teardown_seconds + 1.0)
        except asyncio.CancelledError:
            await self._cancel(request.directory)
            raise
        except (_KeeperLost, OSError):
            answer = None
        if answer is None:
            self._give_up(request.directory)
            return ProcessEnd(lost=True)
        if "error" in answer:
            raise HarnessFailure(f"cannot start a process: {answer['error']}", where=request.directory)
        if not answer["fit"]:
            self._give_up(request.directory)
        return _process_end(answer)

    async def _send(self, request: ProcessRequest) -> None:
        message = {
            "argv": request.argv,
            "cwd": request.directory,
            "env": dict(request.environment),
            "seconds": request.seconds,
        }
        raw = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self._socket, [raw], list(request.streams))
        if sent < len(raw):
            # An environment may be larger than the socket's buffer; the descriptors went with the first part.
            await asyncio.get_running_loop().sock_sendall(self._socket, raw[sent:])

    async def _answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the keeper's answer, or None if there is none in time.

        Looks once more when the time is up: our own loop may have been busy for longer than that. Nothing is
        ever read by a call that can be cancelled, as sock_recv is: what it had read would be lost.
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
        """Wake who waits when the answer is there, and not for less: waking costs more than reading."""
        try:
            there = self._received() is not None
        except (_KeeperLost, OSError):
            there = True  # who waits meets the same
        if there:
            _set_once(heard)

    def _received(self) -> dict[str, Any] | None:
        """Take what the keeper has said so far; return its answer if that is among it."""
        if self._said is not None:
            return self._said
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(4_096)
            if not data:
                raise _KeeperLost
            self._buffer += data
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            said: dict[str, Any] = json.loads(line)
            self._child = said.get("started")
            if self._child is None:
                self._said = said
                return said
        return None

    def _wake(self) -> None:
        """Undo a SIGSTOP that the child sent its keeper, after ending the child, which would repeat it."""
        self._end_child()
        self._process.send_signal(signal.SIGCONT)

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)

    async def _cancel(self, directory: str) -> None:
        answer = None
        # Cancelled a second time: somebody is in a hurry.
        with contextlib.suppress(_KeeperLost, OSError, asyncio.CancelledError):
            answer = self._received()
            if answer is None:
                self._socket.send(b'{"cancel": true}\n')
                self._wake()
                answer = await self._answer(LIMITS.teardown_seconds + 1.0)
        if answer is None or not answer.get("fit"):
            self._give_up(directory)

    def _give_up(self, directory: str) -> None:
        """End a keeper that no longer answers, and as much of its tree as can still be named."""
        self._in_use = False
        self._end_child()
        self._process.kill()
        self._process.wait()
        self._socket.close()
        _end_strays(directory)

    def dismiss(self) -> None:
        """Tell an idle keeper to leave."""
        self._in_use = False
        with contextlib.suppress(OSError):
            self._socket.send(b'{"leave": true}\n')
        self._socket.close()

    async def left(self) -> None:
        """Wait two seconds at most for a dismissed keeper to leave."""
        for _ in range(400):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.005)

    def reap(self) -> None:
        """Leave no zombie; a dismissed keeper that is still there is ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _set_once(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _end_strays(directory: str) -> None:
    """End what still works in `directory`: with the keeper gone, nothing else ties a process to it.

    Linux only, and only what has kept its environment. Who hides from this could as well have ended us:
    that is beyond the `subprocess` class.
    """
    mark = f"TMPDIR={directory}\0".encode()
    for _ in range(100):
        strays = [pid for pid in _process_numbers() if mark in _environment_of(pid)]
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _process_numbers() -> Iterator[int]:
    names = os.listdir("/proc") if sys.platform == "linux" else ()
    return (int(name) for name in names if name.isdigit())


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _process_end(answer: dict[str, Any]) -> ProcessEnd:
    number = answer.get("signal")
    return ProcessEnd(
        exit_code=answer.get("exit"),
        signal=_signal_name(number) if number is not None else None,
        timed_out=answer["timed_out"],
        leaked=answer["leaked"],
        wall_seconds=answer["wall"],
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


class KeeperPool:
    """Keepers with the same limits, made when they are first needed and used again."""

    def __init__(
        self, directory: Path | None, limits: Mapping[str, int], *, renounce_privileges: bool = False
    ) -> None:
        self._settings = {
            "directory": None if directory is None else str(directory),
            "limits": dict(limits),
            "renounce_privileges": renounce_privileges,
            "leak_grace_seconds": LIMITS.leak_grace_seconds,
        }
        self._idle: list[Keeper] = []
        self._closed = False

    def open(self) -> None:
        """Start the first keeper now: it removes the directory should the harness die before any case."""
        self._idle.append(Keeper(self._settings))

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[Keeper]:
        """Lend one keeper; it comes back only if it still lives."""
        keeper = self._living() or Keeper(self._settings)
        try:
            yield keeper
        finally:
            if self._closed or not keeper.alive:
                keeper.dismiss()
                keeper.reap()
            else:
                self._idle.append(keeper)

    def _living(self) -> Keeper | None:
        while self._idle:
            keeper = self._idle.pop()
            if keeper.alive:
                return keeper
            keeper.dismiss()
        return None

    async def close(self) -> None:
        """End every idle keeper; one that is lent out ends when it comes back."""
        self._closed = True
        leaving, self._idle = self._idle, []
        for keeper in leaving:
            keeper.dismiss()
        try:
            for keeper in leaving:
                await keeper.left()
        finally:
            for keeper in leaving:
                keeper.reap()


@contextmanager
def stream_file(content: bytes = b"") -> Iterator[int]:
    """Give a descriptor of an anonymous file, for one standard stream of a child."""
    try:
        descriptor = _anonymous_file()
    except OSError as error:
        raise HarnessFailure(f"cannot make a file for a child's stream: {error}") from None
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    except OSError as error:
        raise HarnessFailure(f"cannot write a child's input: {error}") from None
    finally:
        os.close(descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stream", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def read_head(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes and whether there were more. Only once the writer is dead."""
    size = os.fstat(descriptor).st_size
    # A buffer of the size that is needed: one of a megabyte costs more than the rest of the reading.
    return os.pread(descriptor, min(size, limit), 0), size > limit


def read_tail(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return the last `limit` bytes and whether there were more. Only once the writer is dead."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, limit, max(0, size - limit)), size > limit
