"""One line: the listener of one box, its connections, and what they may take of this process."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

from codegenie.eval.broker.account import Account
from codegenie.eval.broker.bodies import HEAD_BYTES, TooLarge, head_lines, whole_request_body
from codegenie.eval.broker.exchange import AgentTimes, BrokenOff, Desk, exchange, refusal
from codegenie.eval.broker.heads import Framing, Malformed, RequestHead, request_framing, request_head
from codegenie.eval.broker.patience import Clock, MachineClock, Patience
from codegenie.eval.broker.records import Ledger
from codegenie.eval.broker.rules import Passage, Refused, judge_body, judge_head
from codegenie.eval.broker.upstream import Dialler

_MOST_CONNECTIONS = 64
_REQUEST_BYTES = 32 * 1024 * 1024
# Bodies that are in memory at once, for one box and for all. A request that finds no room waits for it.
_LINE_BODY_BYTES = 64 * 1024 * 1024
BODY_BYTES = 512 * 1024 * 1024


class ByteBudget:
    """Room for so many bytes. A request that finds none waits until there is; the first one comes first."""

    def __init__(self, total: int) -> None:
        self._left = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Take room for so many bytes."""
        if not self._waiting and self._left >= size:
            self._left -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give room back, to the one that has waited longest."""
        self._left += size
        while self._waiting and (self._waiting[0][1].done() or self._left >= self._waiting[0][0]):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._left -= wanted
                turn.set_result(None)


class _Room:
    """What one request holds of the budgets of its line and of the process."""

    def __init__(self, *budgets: ByteBudget) -> None:
        self._budgets = budgets
        self._held: list[tuple[ByteBudget, int]] = []

    async def take(self, size: int) -> None:
        """Take room for a body that may have this size."""
        for budget in self._budgets:
            await budget.take(size)
            self._held.append((budget, size))

    def shrink(self, size: int) -> None:
        """Keep only so much of it."""
        held, self._held = self._held, [(budget, size) for budget, _ in self._held]
        for budget, taken in held:
            budget.give(taken - size)


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What all lines of a broker share."""

    dialler: Dialler
    bodies: ByteBudget
    clock: Clock = field(default_factory=MachineClock)
    times: AgentTimes = field(default_factory=AgentTimes)


class _AgentProtocol(asyncio.StreamReaderProtocol):
    """A connection of an agent; `gone` is set when the agent has closed its side."""

    def __init__(self, connected: Callable[["_AgentProtocol", asyncio.StreamReader], None]) -> None:
        self.gone = asyncio.Event()
        self._connected = connected
        reader = asyncio.StreamReader(limit=HEAD_BYTES)
        super().__init__(reader, self._begin)
        self.writer: asyncio.StreamWriter

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._connected(self, reader)

    def eof_received(self) -> bool:
        self.gone.set()
        return bool(super().eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


class Line:
    """Serves the connections of one box until it is closed."""

    def __init__(self, settings: LineSettings, changed: Callable[["Line"], None]) -> None:
        self._settings = settings
        rules = settings.dialler.rules
        self.patience = Patience(rules.patience_seconds, settings.clock, lambda: changed(self))
        self._account = Account(settings.clock, self.patience)
        self._desk = Desk(settings.dialler, self._account, self.patience, settings.clock)
        self._bodies = ByteBudget(_LINE_BODY_BYTES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Accept on a listening socket, in whatever network it lies."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _AgentProtocol(self._connected), sock=listener)

    def ledger(self) -> Ledger:
        """Return what was counted so far."""
        return self._account.ledger()

    async def close(self) -> Ledger:
        """End every connection and return what was counted."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self.ledger()

    def _connected(self, agent: _AgentProtocol, reader: asyncio.StreamReader) -> None:
        # An agent that was refused this often only wants to keep the broker busy.
        if self._account.refused >= self._settings.dialler.rules.max_requests:
            agent.writer.close()
            return
        if len(self._tasks) >= _MOST_CONNECTIONS:
            self._refuse(agent, Refused(503, f"a box has at most {_MOST_CONNECTIONS} connections"))
            agent.writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(agent, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, agent: _AgentProtocol, reader: asyncio.StreamReader) -> None:
        """Serve the requests of one connection, one after the other."""
        try:
            while await self._one_request(agent, reader):
                pass
        except (Refused, Malformed) as error:
            self._refuse(agent, _as_refusal(error))
            await self._take_leave(agent, reader)
        except BrokenOff:
            # Without the end of its body, the agent knows that the answer is not whole.
            agent.writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            # It said nothing for too long, or left in the middle of a request: TimeoutError is an OSError.
            pass
        finally:
            agent.writer.close()

    def _refuse(self, agent: _AgentProtocol, error: Refused) -> None:
        self._account.touch()
        self._account.refuse(error.message)
        agent.writer.write(refusal(error.status, error.message))

    async def _take_leave(self, agent: _AgentProtocol, reader: asyncio.StreamReader) -> None:
        """Read what is left of a refused request: else the kernel drops the refusal with the connection."""
        with suppress(OSError):
            async with asyncio.timeout(self._settings.times.farewell):
                agent.writer.write_eof()
                while await reader.read(HEAD_BYTES):
                    pass

    async def _one_request(self, agent: _AgentProtocol, reader: asyncio.StreamReader) -> bool:
        """Serve one request; return whether another one may follow on this connection."""
        async with asyncio.timeout(self._settings.times.idle):
            lines = await head_lines(reader)
        if not lines:
            return False
        self._account.touch()
        head = request_head(lines)
        request = _Request(head, request_framing(head), judge_head(self._settings.dialler.rules, head))
        room = _Room(self._bodies, self._settings.bodies)
        try:
            await _until_gone(agent, self._answered(agent, reader, request, room))
        finally:
            room.shrink(0)
        return not head.says("connection", "close") and not agent.gone.is_set()

    async def _answered(
        self, agent: _AgentProtocol, reader: asyncio.StreamReader, request: "_Request", room: _Room
    ) -> None:
        rules, times = self._settings.dialler.rules, self._settings.times
        length = request.framing.length
        if length is not None and length > _REQUEST_BYTES:
            raise Refused(413, f"a body has at most {_REQUEST_BYTES} bytes")
        async with asyncio.timeout(times.body):
            await room.take(_REQUEST_BYTES if length is None else length)
            if request.head.says("expect", "100-continue"):
                agent.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await whole_request_body(reader, request.framing, _REQUEST_BYTES, times.part)
        room.shrink(len(body))
        model = judge_body(rules, request.passage, body)
        if self._account.requests >= rules.max_requests:
            raise Refused(403, "this case has used all requests of [broker] max_requests")
        self._account.passed(model)
        await exchange(self._desk, request.passage, body, agent.writer)


@dataclass(frozen=True, slots=True)
class _Request:
    head: RequestHead
    framing: Framing
    passage: Passage


def _as_refusal(error: Refused | Malformed) -> Refused:
    if isinstance(error, Refused):
        return error
    return Refused(413 if isinstance(error, TooLarge) else 400, str(error))


async def _until_gone(agent: _AgentProtocol, work: Coroutine[None, None, None]) -> None:
    """Do the work, and give it up when the agent has left: it would be paid for and not be read."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(agent.gone.wait())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
    if task.cancelled():
        raise ConnectionAbortedError
    task.result()
