"""The broker's side towards the provider: one connection for each request, TLS verified, answers bounded.

A connection is never used twice, so an answer can only belong to the request that was sent on it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address

from codegenie.eval.broker.bodies import HEAD_BYTES, body_parts, head_lines
from codegenie.eval.broker.heads import Malformed, ResponseHead, response_framing, response_head
from codegenie.eval.broker.records import BrokerRules, Upstream, upstream_of
from codegenie.eval.broker.rules import Passage

_ANSWER_BYTES = 256 * 1024 * 1024
_MOST_INTERIM_HEADS = 8
_FIRST_FINAL_STATUS = 200


class Unreachable(Exception):  # noqa: N818 - what the network did
    """There was no answer, and asking again may help."""


class Unusable(Exception):  # noqa: N818 - what the upstream is
    """There was no answer that could be passed on, and asking again does not help."""


@dataclass(frozen=True, slots=True)
class UpstreamTimes:
    """How long the broker waits for the upstream, in seconds."""

    connect: float = 20.0
    # A model that does not stream says nothing until its whole answer is there.
    head: float = 600.0
    idle: float = 300.0


@dataclass(slots=True)
class Answer:
    """An answer whose head was read; its body is read once, and then the connection is closed."""

    head: ResponseHead
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_seconds: float

    def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises as `body_parts`."""
        framing = response_framing(self.head)
        return body_parts(self.reader, framing, _ANSWER_BYTES, self.idle_seconds)

    def close(self) -> None:
        """Give up the connection."""
        self.writer.transport.abort()


def trust_of(rules: BrokerRules, ca_file: str | None) -> ssl.SSLContext | None:
    """Return how the upstream proves its name; None for a server on this machine without TLS.

    Raises OSError if the file with the authorities cannot be read.
    """
    return ssl.create_default_context(cafile=ca_file) if upstream_of(rules.upstream).tls else None


@dataclass(frozen=True, slots=True)
class Dialler:
    """Asks the one upstream of a broker, with its key. It shows the key in no text."""

    rules: BrokerRules
    credential: str = field(repr=False)
    trust: ssl.SSLContext | None
    times: UpstreamTimes = UpstreamTimes()

    async def ask(self, passage: Passage, body: bytes) -> Answer:
        """Send one request and read the head of its answer. Raises Unreachable or Unusable."""
        reader, writer = await self._connect(upstream_of(self.rules.upstream))
        with ExitStack() as unless_answered:
            unless_answered.callback(writer.transport.abort)
            head = await self._head_of_the_answer(reader, writer, self._request(passage, body))
            unless_answered.pop_all()
        return Answer(head, reader, writer, self.times.idle)

    async def _head_of_the_answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> ResponseHead:
        try:
            writer.write(request)
            async with asyncio.timeout(self.times.head):
                await writer.drain()
                head = await _final_head(reader)
            response_framing(head)
        except TimeoutError:
            raise Unusable(f"the upstream sent no answer within {self.times.head:g} s") from None
        except Malformed as error:
            raise Unusable(f"the upstream's answer cannot be read: {error}") from None
        except (OSError, asyncio.IncompleteReadError):
            raise Unreachable("the upstream closed the connection without an answer") from None
        return head

    async def _connect(self, upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(self.times.connect):
                reader, writer = await asyncio.open_connection(
                    upstream.host, upstream.port, ssl=self.trust, limit=HEAD_BYTES
                )
        except ssl.SSLCertVerificationError as error:
            raise Unusable(f"the upstream's certificate is not valid: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise Unusable(f"the upstream does not speak TLS: {error.reason}") from None
        except TimeoutError:
            raise Unreachable(f"no connection within {self.times.connect:g} s") from None
        except OSError as error:
            raise Unreachable(f"no connection: {error.strerror or type(error).__name__}") from None
        if self.trust is None and not ip_address(writer.get_extra_info("peername")[0]).is_loopback:
            writer.close()
            raise Unusable("an upstream by http must be on this machine")
        return reader, writer

    def _request(self, passage: Passage, body: bytes) -> bytes:
        upstream = upstream_of(self.rules.upstream)
        fields = [
            ("host", upstream.authority),
            ("connection", "close"),
            ("accept-encoding", "identity"),
            *passage.fields,
            (self.rules.credential_header, self.rules.header_value(self.credential)),
        ]
        if passage.method == "POST":
            fields += [("content-type", "application/json"), ("content-length", str(len(body)))]
        lines = [f"{passage.method} {upstream.prefix}{passage.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _final_head(reader: asyncio.StreamReader) -> ResponseHead:
    """Read the head of an answer; heads that only say `go on` are passed over."""
    for _ in range(_MOST_INTERIM_HEADS):
        lines = await head_lines(reader)
        if not lines:
            raise asyncio.IncompleteReadError(b"", None)
        head = response_head(lines)
        if head.status >= _FIRST_FINAL_STATUS:
            return head
    raise Malformed("it has too many interim heads")
