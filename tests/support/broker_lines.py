"""A line of a broker in this process, a clock that only waiting moves, and an agent that calls on it."""

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from codegenie.eval.broker.exchange import AgentTimes
from codegenie.eval.broker.line import BODY_BYTES, ByteBudget, Line, LineSettings
from codegenie.eval.broker.records import BrokerRules
from codegenie.eval.broker.upstream import Dialler, UpstreamTimes

KEY = "sk-live-7Qx93hT0pLmZ"
PATHS = (
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/models",
    "/v1beta/models/*:generateContent",
    "/v1beta/models/*:streamGenerateContent",
)
HANG_SECONDS = 60


def rules(url: str, **changes: Any) -> BrokerRules:  # noqa: ANN401 - fields of several types
    """Return rules for a fake provider."""
    return BrokerRules(**{"upstream": url, "paths": PATHS, "credential_header": "x-api-key", **changes})


class TestClock:
    """A clock that stands still, but for waiting."""

    __test__ = False

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def today(self) -> float:
        return 1_700_000_000.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Reply:
    """What an agent got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def refusal(self) -> str:
        """The words of the broker, if they are its own."""
        message = json.loads(self.body)["error"]["message"]
        return str(message) if message.startswith("broker: ") else ""


@dataclass(frozen=True)
class Caller:
    """An agent at the other end of a line."""

    port: int
    line: Line
    clock: TestClock

    async def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask as an ordinary client does."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await asyncio.to_thread(self._ask, "POST", path, data, headers or {})

    async def get(self, path: str) -> Reply:
        return await asyncio.to_thread(self._ask, "GET", path, None, {})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_SECONDS)
        try:
            connection.request(method, path, body, {"x-api-key": "broker", **headers})
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, fields, answer.read())
        finally:
            connection.close()

    async def raw(self, data: bytes) -> bytes:
        """Send these bytes and return all that comes back until the broker closes the connection."""
        async with asyncio.timeout(HANG_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(data)
            said = await reader.read()
            writer.close()
            return said


@dataclass(frozen=True)
class Surroundings:
    """What a test may change about a line, beside its rules."""

    upstream: UpstreamTimes = field(default_factory=UpstreamTimes)
    agent: AgentTimes = field(default_factory=AgentTimes)
    trust: ssl.SSLContext | None = None


@asynccontextmanager
async def open_line(known: BrokerRules, around: Surroundings | None = None) -> AsyncIterator[Caller]:
    """Serve a line in this process."""
    around = around or Surroundings()
    clock = TestClock()
    dialler = Dialler(known, KEY, around.trust, around.upstream)
    line = Line(LineSettings(dialler, ByteBudget(BODY_BYTES), clock, around.agent), lambda _: None)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await line.open(listener)
    try:
        yield Caller(port, line, clock)
    finally:
        await line.close()
