"""The process of a broker: it holds the key, accepts what agents ask, and asks the provider.

This file is a program and is run by path; no module imports it. Its standard input is a socket to the
harness. Before it is given the key it becomes undumpable, so that no other process of its user can read its
memory, its descriptors or its environment, which is empty; and it leaves no core file.
"""

import asyncio
import ctypes
import os
import resource
import socket
import sys
from contextlib import suppress
from typing import Any

# At the end of the path: it is needed only where the harness is not installed.
sys.path.append(os.path.abspath(os.path.join(__file__, *[".."] * 4)))

from codegenie.eval.broker import words
from codegenie.eval.broker.line import BODY_BYTES, ByteBudget, Line, LineSettings
from codegenie.eval.broker.records import BrokerRules
from codegenie.eval.broker.upstream import Dialler, trust_of
from codegenie.eval.system.protocol import Control, Gone

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_CONTROL = 0
_KEY_BYTES = 1 << 16


def hide() -> None:
    """Let no other process of this user look into this one, and leave nothing of it on a disk."""
    libc = ctypes.CDLL(None)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise SystemExit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def take_all_descriptors() -> None:
    """Raise the number of files to what the system allows: each connection needs two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def read_key(descriptor: int) -> str:
    """Read the key from a pipe to its end."""
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read(_KEY_BYTES).decode("ascii")


class Service:
    """All lines of one broker, and its socket to the harness."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._settings: LineSettings | None = None
        self._lines: dict[int, Line] = {}
        self._gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the harness has closed its end."""
        asyncio.get_running_loop().add_reader(self._control.descriptor, self._hear)
        self._control.send({words.READY: True})
        await self._gone.wait()

    def _hear(self) -> None:
        try:
            message, descriptors = self._control.receive()
        except Gone:
            asyncio.get_running_loop().remove_reader(self._control.descriptor)
            self._gone.set()
            return
        task = asyncio.get_running_loop().create_task(self._answer(message, descriptors))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any], descriptors: list[int]) -> None:
        try:
            self._control.send(await self._obey(message, descriptors))
        except (ValueError, OSError) as error:
            self._control.send({words.ERROR: str(error)})

    async def _obey(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        if words.SERVE in message:
            self._settings = settings_of(message, read_key(descriptors[0]))
        elif words.LISTEN in message:
            await self._listen(message[words.LISTEN], socket.socket(fileno=descriptors[0]))
        elif words.TELL in message:
            return {words.LEDGER: self._lines[message[words.TELL]].ledger().as_message()}
        else:
            line = self._lines.pop(message[words.CLOSE])
            return {words.LEDGER: (await line.close()).as_message()}
        return {words.READY: True}

    async def _listen(self, number: int, listener: socket.socket) -> None:
        if self._settings is None:
            raise ValueError("there are no rules yet")
        line = Line(self._settings, lambda line: self._tell_of_waiting(number, line))
        await line.open(listener)
        self._lines[number] = line

    def _tell_of_waiting(self, number: int, line: Line) -> None:
        patience = line.patience
        told = {words.LINE: number, words.WAITED: patience.waited, words.WAITING: bool(patience.waiting)}
        now = self._settings.clock.now() if self._settings else 0.0
        self._control.send({**told, words.NOW: now})


def settings_of(message: dict[str, Any], key: str) -> LineSettings:
    """Return what all lines share. Raises ValueError or OSError, without the key in it."""
    rules = BrokerRules.from_message(message[words.SERVE])
    rules.header_value(key)
    trust = trust_of(rules, message[words.CA_FILE])
    return LineSettings(Dialler(rules, key, trust), ByteBudget(BODY_BYTES))


def main() -> None:
    """Serve the harness at the other end of standard input."""
    hide()
    with suppress(ValueError, OSError):
        take_all_descriptors()
    asyncio.run(Service(Control(_CONTROL)).run())


if __name__ == "__main__":
    main()
