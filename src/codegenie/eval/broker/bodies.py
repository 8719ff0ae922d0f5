"""Reads heads and bodies from a connection, with a cap on their bytes and on the time between two parts."""

import asyncio
from collections.abc import AsyncIterator

from codegenie.eval.broker.heads import Framing, Malformed, chunk_size

_PART_BYTES = 1 << 16
HEAD_BYTES = 64 * 1024


class TooLarge(Malformed):
    """There are more bytes than a message may have."""


async def head_lines(reader: asyncio.StreamReader, most: int = HEAD_BYTES) -> list[bytes]:
    """Read a head up to its empty line; return its lines without their ends, none if there is nothing.

    Raises Malformed at the first line that does not end in CR LF, and IncompleteReadError if it breaks off.
    """
    lines: list[bytes] = []
    total = 0
    while True:
        line = await _line(reader)
        if not line and not lines:
            return []
        total += len(line)
        if total > most:
            raise TooLarge(f"the head has more than {most} bytes")
        if not line.endswith(b"\r\n"):
            raise Malformed("a line of the head does not end in CR LF")
        if line == b"\r\n":
            break
        lines.append(line[:-2])
    if not lines:
        raise Malformed("the head is empty")
    return lines


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Read one line with its end, or nothing if the connection has ended."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise TooLarge("a line is too long") from None
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def body_parts(
    reader: asyncio.StreamReader, framing: Framing, most: int, idle_seconds: float
) -> AsyncIterator[bytes]:
    """Yield a body in parts, as they come.

    Raises Malformed, TooLarge, IncompleteReadError if it breaks off, and TimeoutError if it stalls.
    """
    parts = (
        _chunked(reader, idle_seconds) if framing.chunked else _counted(reader, framing.length, idle_seconds)
    )
    if (framing.length or 0) > most:
        raise TooLarge(f"the body has more than {most} bytes")
    total = 0
    async for part in parts:
        total += len(part)
        if total > most:
            raise TooLarge(f"the body has more than {most} bytes")
        yield part


async def _counted(
    reader: asyncio.StreamReader, length: int | None, idle_seconds: float
) -> AsyncIterator[bytes]:
    """Yield so many bytes, or all up to the end of the connection."""
    left = length
    while left is None or left > 0:
        part = await _part(reader, _PART_BYTES if left is None else min(left, _PART_BYTES), idle_seconds)
        if not part:
            if left is None:
                return
            raise asyncio.IncompleteReadError(b"", left)
        left = None if left is None else left - len(part)
        yield part


async def _chunked(reader: asyncio.StreamReader, idle_seconds: float) -> AsyncIterator[bytes]:
    """Yield what the chunks hold. What may follow the last one is left to the caller."""
    while True:
        async with asyncio.timeout(idle_seconds):
            line = await _line(reader)
        if not line:
            raise asyncio.IncompleteReadError(b"", None)
        size = chunk_size(line)
        if size == 0:
            return
        async for part in _counted(reader, size, idle_seconds):
            yield part
        async with asyncio.timeout(idle_seconds):
            if await reader.readexactly(2) != b"\r\n":
                raise Malformed("a chunk is longer than its size")


async def _part(reader: asyncio.StreamReader, most: int, idle_seconds: float) -> bytes:
    async with asyncio.timeout(idle_seconds):
        return await reader.read(most)


async def whole_request_body(
    reader: asyncio.StreamReader, framing: Framing, most: int, idle_seconds: float
) -> bytes:
    """Read the whole body of a request; a chunked one has no trailers. Raises as `body_parts`."""
    parts = [part async for part in body_parts(reader, framing, most, idle_seconds)]
    if framing.chunked:
        async with asyncio.timeout(idle_seconds):
            if await reader.readexactly(2) != b"\r\n":
                raise Malformed("a chunked body has trailers")
    return b"".join(parts)
