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
        ours, theirs = socket.socketpair()
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
            raise HarnessFailure(
                f"cannot start a process: {error}", hint="see the limits of this machine"
            ) from None
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._socket = ours
        self._buffer = b""
        self._child: int | None = None
        self.alive = True

    async def run(self, request: ProcessRequest) -> ProcessEnd:
        """Run one process to the end of its whole tree, also when cancelled."""
        message = {
            "argv": request.argv,
            "cwd": request.directory,
            "env": dict(request.environment),
            "seconds": request.seconds,
        }
        patience = request.seconds + LIMITS.leak_grace_seconds + LIMITS.teardown_seconds
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode() + b"\n"], list(request.streams))
            async with asyncio.timeout(patience + 1.0):
                answer = await self._answer()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._cancel()))
            raise
        except (_KeeperLost, TimeoutError, OSError):
            self._give_up()
            return ProcessEnd(lost=True)
        if "error" in answer:
            raise HarnessFailure(f"cannot start a process: {answer['error']}", where=request.directory)
        if not answer["ended"]:
            self._give_up()
        return _process_end(answer)

    async def _answer(self) -> dict[str, Any]:
        while True:
            line = await self._line()
            if "started" in line:
                self._child = line["started"]
                continue
            self._child = None
            return line

    async def _line(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffer:
            data = await loop.sock_recv(self._socket, 65_536)
            if not data:
                raise _KeeperLost
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _cancel(self) -> None:
        try:
            self._socket.send(b'{"cancel": true}\n')
            async with asyncio.timeout(LIMITS.teardown_seconds + 1.0):
                await self._answer()
        except (_KeeperLost, TimeoutError, OSError):
            self._give_up()

    def _give_up(self) -> None:
        """End a keeper that no longer answers, and as much of its tree as can still be named."""
        self.alive = False
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._socket.close()

    async def close(self) -> None:
        """Let the keeper go and reap it."""
        if not self.alive:
            return
        self.alive = False
        self._socket.close()
        for _ in range(400):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.005)
        self._process.kill()
        self._process.wait()


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

    def __init__(self, directory: Path | None, limits: Mapping[str, int]) -> None:
        self._settings = {
            "directory": None if directory is None else str(directory),
            "limits": dict(limits),
            "leak_grace_seconds": LIMITS.leak_grace_seconds,
        }
        self._idle: list[Keeper] = []

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[Keeper]:
        """Lend one keeper; it comes back only if it still lives."""
        keeper = self._idle.pop() if self._idle else Keeper(self._settings)
        try:
            yield keeper
        finally:
            if keeper.alive:
                self._idle.append(keeper)

    async def close(self) -> None:
        """End every idle keeper."""
        while self._idle:
            await self._idle.pop().close()


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
    content = os.pread(descriptor, limit + 1, 0)
    return content[:limit], len(content) > limit


def read_tail(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return the last `limit` bytes and whether there were more. Only once the writer is dead."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, limit, max(0, size - limit)), size > limit
