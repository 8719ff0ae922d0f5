"""The harness's end of the socket to a process below it: messages on lines, with descriptors beside them."""

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from codegenie.eval.system.protocol import line_of

_LARGEST_PART = 1 << 16
_DESCRIPTORS = 8


class Closed(Exception):  # noqa: N818 - internal: the other end has ended
    """The process at the other end has ended."""


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read; the end of a process makes its descriptor readable."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


class Channel:
    """One socket. At most one caller waits on it at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._socket = connection
        self._buffer = b""
        self._received: list[int] = []

    async def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises Closed if the other end has ended."""
        line = line_of(message)
        try:
            sent = socket.send_fds(self._socket, [line], descriptors) if descriptors else 0
            await asyncio.get_running_loop().sock_sendall(self._socket, line[sent:])
        except OSError as error:
            raise Closed(str(error)) from None

    async def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for one message and the descriptors that came so far. Raises Closed at the end."""
        while b"\n" not in self._buffer:
            await readable(self._socket.fileno())
            try:
                data, received, _, _ = socket.recv_fds(
                    self._socket, _LARGEST_PART, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                continue
            except OSError as error:
                raise Closed(str(error)) from None
            self._received += received
            if not data:
                raise Closed("it ended by itself")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        descriptors, self._received = self._received, []
        return json.loads(line), descriptors

    def close(self) -> None:
        """Close the socket and what came through it without being asked for."""
        self._socket.close()
        for descriptor in self._received:
            with suppress(OSError):
                os.close(descriptor)
        self._received = []
