"""Frames between the harness and a worker in a box: one request, then one reply, until the first surprise."""

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import suppress

from codegenie.eval.limits import LIMITS

_LENGTH = struct.Struct(">I")
_PIECE = 1 << 16


class NoReply(Exception):  # noqa: N818 - says what there is
    """The worker broke the protocol: it is gone, sent too much, or sent what was not asked for."""


class Frames:
    """The harness's ends of the two pipes. After the first `NoReply` nothing more is asked."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests = requests
        self._replies = replies
        self._read = bytearray()
        for descriptor in (requests, replies):
            os.set_blocking(descriptor, False)

    async def ask(self, request: bytes) -> bytes:
        """Send one request and return the next frame. Raises NoReply; the caller keeps the deadline."""
        self._refuse_unasked()
        await self._write(_LENGTH.pack(len(request)) + request)
        length = _LENGTH.unpack(await self._take(_LENGTH.size))[0]
        if length > LIMITS.step_reply_bytes:
            raise NoReply(f"a reply of {length} bytes")
        return await self._take(length)

    def _refuse_unasked(self) -> None:
        """Raise NoReply if the worker has sent anything that was not asked for."""
        with suppress(BlockingIOError):
            self._read += os.read(self._replies, 1)
            raise NoReply("a frame that was not asked for, or the worker is gone")
        if self._read:
            raise NoReply("more than one frame for a call")

    async def _write(self, content: bytes) -> None:
        unwritten = memoryview(content)
        loop = asyncio.get_running_loop()
        while unwritten:
            try:
                unwritten = unwritten[os.write(self._requests, unwritten) :]
            except BlockingIOError:
                await _ready(self._requests, loop.add_writer, loop.remove_writer)
            except BrokenPipeError:
                raise NoReply("the worker is gone") from None

    async def _take(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        while len(self._read) < size:
            try:
                piece = os.read(self._replies, _PIECE)
            except BlockingIOError:
                await _ready(self._replies, loop.add_reader, loop.remove_reader)
                continue
            if not piece:
                raise NoReply("the worker is gone")
            self._read += piece
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken


async def _ready(descriptor: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
