"""What a running agent writes: read as it comes, kept with a cap, and noticed as a sign of life."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import Redactor

_PIECE = 65_536
_PIECES_AT_THE_END = 64


class Capture:
    """The beginning and the end of a stream. What lies between them is counted and not kept."""

    def __init__(self, heard: Callable[[bytes], None] | None = None) -> None:
        self._heard = heard
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        self.pieces = 0
        self.last_heard: float | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the stream."""
        self.size += len(piece)
        self.pieces += 1
        self.last_heard = time.monotonic()
        if self._heard is not None:
            self._heard(piece)
        room = LIMITS.agent_stream_head_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        # Not with every piece: moving megabytes for each of them would cost more than reading them.
        if len(self._tail) > 2 * LIMITS.agent_stream_tail_bytes:
            del self._tail[: -LIMITS.agent_stream_tail_bytes]

    def kept(self, redactor: Redactor) -> bytes:
        """Return what was kept, without secrets, and with a line that says how much is missing."""
        tail = bytes(self._tail[-LIMITS.agent_stream_tail_bytes :])
        missing = self.size - len(self._head) - len(tail)
        if not missing:
            return redactor.clean((bytes(self._head) + tail).decode("utf-8", "replace")).encode()
        # Half a secret may stand at either side of the gap.
        head = redactor.clean_head(bytes(self._head).decode("utf-8", "replace"))
        rest = redactor.clean_tail(tail.decode("utf-8", "replace"))
        return f"{head}\n[codegenie: {missing} bytes are left out]\n{rest}".encode()

    def last_line(self) -> str:
        """Return the last line that is not blank."""
        end = bytes((self._tail or self._head)[-_PIECE:]).decode("utf-8", "replace")
        return next((line.strip() for line in reversed(end.splitlines()) if line.strip()), "")


class Beginning:
    """The beginning of a stream, up to a size. What follows is read and not kept."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the stream."""
        self._kept += piece[: self._size - len(self._kept)]

    def kept(self) -> bytes:
        """Return what was kept."""
        return bytes(self._kept)


@contextmanager
def drained_pipe(capture: Capture | Beginning) -> Iterator[int]:
    """Give the write end of a pipe whose content goes to `capture`.

    The harness never waits for its end: a process that is stuck in the kernel may hold it open.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()

    def drain() -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(reading, _PIECE)
            if piece:
                capture.feed(piece)
            else:
                loop.remove_reader(reading)

    loop.add_reader(reading, drain)
    try:
        yield writing
    finally:
        loop.remove_reader(reading)
        os.close(writing)
        # A pipe holds 1 MiB at most, and no process writes any more.
        for _ in range(_PIECES_AT_THE_END):
            drain()
        loop.remove_reader(reading)
        os.close(reading)
