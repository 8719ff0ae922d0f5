"""The harness's side of a broker: start its process, give it the listeners of boxes, read its ledgers."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from codegenie.eval.broker import words
from codegenie.eval.broker.records import BrokerRules, Ledger
from codegenie.eval.errors import HarnessFailure, SutSpecInvalid
from codegenie.eval.system.processes import Handle, real_interpreter
from codegenie.eval.system.protocol import line_of
from codegenie.eval.system.supervisor_pool import start_program

_PROGRAM = Path(__file__).with_name("serve_program.py")
_LARGEST_PART = 1 << 16
_ANSWER_SECONDS = 30.0
_END_SECONDS = 5.0
_TURN_SECONDS = 0.01
_AGAIN = "run the same command again"


class BrokerLine:
    """The broker's line to one box."""

    def __init__(self, broker: "Broker", number: int) -> None:
        self._broker = broker
        self._number = number
        self._waited = 0.0
        self._waiting_since: float | None = None
        self._closing: asyncio.Task[Ledger] | None = None

    def waited_seconds(self) -> float:
        """Return how long requests of this box have waited for the provider, up to now."""
        since = self._waiting_since
        return self._waited + (0.0 if since is None else max(0.0, time.monotonic() - since))

    async def ledger(self) -> Ledger:
        """Return what was counted so far. Raises HarnessFailure if the broker has ended."""
        return await (self.close() if self._closing else self._broker.ledger(words.TELL, self._number))

    async def close(self) -> Ledger:
        """End the line, once, and return what was counted. Raises HarnessFailure if the broker has ended."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        return await asyncio.shield(self._closing)

    async def _close(self) -> Ledger:
        ledger = await self._broker.ledger(words.CLOSE, self._number)
        self._broker.forget(self._number)
        self._waited, self._waiting_since = ledger.provider_wait_ms / 1000, None
        return ledger

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take note that waiting for the provider has begun or ended."""
        self._waited = message[words.WAITED]
        self._waiting_since = message[words.NOW] if message[words.WAITING] else None


class Broker:
    """One process for a whole run. It holds the key; this side forgets it when the process is started."""

    def __init__(self, process: Handle, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._process = process
        self._socket = connection
        self._lines: dict[int, BrokerLine] = {}
        self._numbers = 0
        self._asking = asyncio.Lock()
        self._answers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._questions: set[asyncio.Task[dict[str, Any]]] = set()
        self._hearing = asyncio.get_running_loop().create_task(self._hear())

    @classmethod
    async def start(cls, rules: BrokerRules, credential: str, ca_file: str | None = None) -> Self:
        """Start the process and hand it the key.

        Raises SutSpecInvalid if upstream or key cannot be used, and HarnessFailure if it cannot start.
        """
        try:
            rules.header_value(credential)
        except ValueError as error:
            raise SutSpecInvalid(str(error), where="[broker] credential") from None
        argv = [real_interpreter(), "-I", "-S", "-B", str(_PROGRAM)]
        broker = cls(*start_program(argv, {}))
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(broker.close)
            await broker._take_answer()  # it is hidden now, and may have the key
            await broker._hand_over(rules, credential, ca_file)
            unless_started.pop_all()
        return broker

    async def listen(self, listener: int) -> BrokerLine:
        """Serve a listening socket, which may lie in another network namespace. The descriptor stays ours.

        Raises HarnessFailure.
        """
        self._numbers += 1
        number = self._numbers
        line = self._lines[number] = BrokerLine(self, number)
        answer = await self._ask({words.LISTEN: number}, listener)
        if words.ERROR in answer:
            self.forget(number)
            raise HarnessFailure(f"the broker cannot listen: {answer[words.ERROR]}", hint=_AGAIN)
        return line

    async def ledger(self, word: str, number: int) -> Ledger:
        """Ask for the ledger of a line, with the word that ends the line or the one that does not."""
        return Ledger.from_message((await self._ask({word: number}))[words.LEDGER])

    def forget(self, number: int) -> None:
        """Take note that a line has ended."""
        self._lines.pop(number, None)

    async def close(self) -> None:
        """End the process and every line."""
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)
        self._socket.close()
        for _ in range(int(_END_SECONDS / _TURN_SECONDS)):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(_TURN_SECONDS)
        self._process.kill()
        self._process.wait()

    async def _hand_over(self, rules: BrokerRules, credential: str, ca_file: str | None) -> None:
        theirs, ours = os.pipe()
        try:
            with os.fdopen(ours, "wb") as pipe:
                pipe.write(credential.encode("ascii"))
            answer = await self._ask({words.SERVE: rules.as_message(), words.CA_FILE: ca_file}, theirs)
        finally:
            os.close(theirs)
        if words.ERROR in answer:
            raise SutSpecInvalid(f"the broker cannot serve: {answer[words.ERROR]}", where="[broker]")

    async def _ask(self, message: dict[str, Any], *descriptors: int) -> dict[str, Any]:
        """Ask one question and take its answer, also when the caller is cancelled in between.

        An answer that is left would be taken for that of the next question.
        """
        copies = [os.dup(descriptor) for descriptor in descriptors]
        question = asyncio.get_running_loop().create_task(self._asked(message, copies))
        self._questions.add(question)
        question.add_done_callback(self._settle)
        return await asyncio.shield(question)

    async def _asked(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            async with self._asking:
                try:
                    socket.send_fds(self._socket, [line_of(message)], descriptors)
                except OSError:
                    raise _ended() from None
                return await self._take_answer()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _settle(self, question: "asyncio.Task[dict[str, Any]]") -> None:
        self._questions.discard(question)
        if not question.cancelled():
            question.exception()  # it was raised where it was asked, unless that was cancelled

    async def _take_answer(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._answers.get()
        except TimeoutError:
            self._process.kill()
            raise HarnessFailure("the broker does not answer", hint=_AGAIN) from None
        if answer is None:
            self._answers.put_nowait(None)  # for those that ask after this one
            raise _ended()
        return answer

    async def _hear(self) -> None:
        """Take in what the broker says, until it has ended."""
        loop = asyncio.get_running_loop()
        buffer = b""
        try:
            while part := await loop.sock_recv(self._socket, _LARGEST_PART):
                *lines, buffer = (buffer + part).split(b"\n")
                for line in lines:
                    self._sort(json.loads(line))
        except ConnectionResetError:
            pass  # it died with a message of ours unread
        finally:
            self._answers.put_nowait(None)

    def _sort(self, message: dict[str, Any]) -> None:
        if words.WAITED not in message:
            self._answers.put_nowait(message)
        elif message[words.LINE] in self._lines:
            self._lines[message[words.LINE]].hear(message)


def _ended() -> HarnessFailure:
    return HarnessFailure("the process of the broker has ended", hint=_AGAIN)
