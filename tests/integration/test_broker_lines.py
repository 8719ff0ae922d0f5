"""A line of a broker between an agent and a fake provider, over real sockets; waiting takes no time."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.broker.exchange import AgentTimes
from codegenie.eval.broker.records import Ledger
from codegenie.eval.broker.upstream import UpstreamTimes
from tests.support.broker_lines import HANG_SECONDS, KEY, Caller, Surroundings, open_line, rules
from tests.support.fake_model import CACHED, INPUT, OUTPUT, FakeModel, fake_model

pytestmark = pytest.mark.asyncio

TLS = Path(__file__).resolve().parents[1] / "fixtures" / "tls"
MESSAGES = "/v1/messages"
ASKED = {"model": "m", "messages": []}
STREAMED = {**ASKED, "stream": True}
HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: here\r\n"
SECOND = b"POST /v1/messages HTTP/1.1\r\nHost: here\r\nContent-Length: 14\r\n\r\n" + b'{"model":"x2"}'
GOOD = b'{"model":"m"}'
CHUNKED = b"d\r\n" + GOOD + b"\r\n0\r\n\r\n"
APIS = [
    (MESSAGES, "m"),
    ("/v1/chat/completions", "m"),
    ("/v1/responses", "m"),
    ("/v1beta/models/m:generateContent", None),
    ("/v1beta/models/m:streamGenerateContent", None),
    ("/v1beta/models/m:streamGenerateContent?alt=sse", None),
]


# What passes.


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "model"), APIS)
async def test_an_answer_of_each_api_passes_and_is_counted(
    path: str, model: str | None, stream: bool
) -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            asked = {"messages": [], "stream": stream, **({} if model is None else {"model": model})}
            reply = await agent.post(path, asked)
            ledger = agent.line.ledger()

    assert (reply.status, len(fake.seen)) == (200, 1)
    assert b"done." in reply.body
    assert (ledger.requests, ledger.successes, ledger.unmetered, ledger.refused) == (1, 1, 0, 0)
    assert (ledger.input_tokens, ledger.cached_tokens, ledger.output_tokens) == (INPUT, CACHED, OUTPUT)
    assert (ledger.asked_models, ledger.answered_models, ledger.statuses) == (("m",), ("m",), {200: 1})


async def test_the_provider_gets_the_key_the_host_and_the_body_and_nothing_of_the_agents_own() -> None:
    sent = {"Authorization": "Bearer mine", "Cookie": "a=b", "Accept-Encoding": "gzip", "X-Odd": "1"}
    with fake_model() as fake:
        known = rules(fake.url, credential_header="Authorization", credential_format="Bearer {}")
        async with open_line(known) as agent:
            reply = await agent.post(f"{MESSAGES}?beta=true", ASKED, {**sent, "anthropic-version": "1"})

    (seen,) = fake.seen
    assert (seen.target, seen.json) == (f"{MESSAGES}?beta=true", ASKED)
    assert seen.headers == {
        "host": fake.url.removeprefix("http://"),
        "connection": "close",
        "accept-encoding": "identity",
        "anthropic-version": "1",
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "content-length": str(len(seen.body)),
    }
    assert "set-cookie" not in reply.headers


async def test_a_prefix_of_the_upstream_stands_before_every_path() -> None:
    with fake_model() as fake:
        async with open_line(rules(f"{fake.url}/api/v2")) as agent:
            assert (await agent.get("/v1/models")).status == 200

    assert [seen.target for seen in fake.seen] == ["/api/v2/v1/models"]


async def test_a_connection_serves_several_requests_and_a_chunked_one() -> None:
    body = json.dumps(ASKED).encode()
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (5, body[:5], len(body) - 5, body[5:])
    last = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            said = await agent.raw(chunked + last)

    assert said.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert [seen.json for seen in fake.seen] == [ASKED, ASKED]


async def test_an_agent_that_asks_whether_to_go_on_is_told_so() -> None:
    body = json.dumps(ASKED).encode()
    head = HEAD + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            said = await agent.raw(head + body)

    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_stream_is_passed_on_as_it_comes() -> None:
    with fake_model(FakeModel(form="stall")) as fake:
        async with open_line(rules(fake.url)) as agent, asyncio.timeout(HANG_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            body = json.dumps(STREAMED).encode()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")  # the provider has not finished, and never will
            writer.close()

    assert b"transfer-encoding: chunked" in head


# What is refused: the witness is what the provider saw.


async def refused(agent: Caller, data: bytes) -> str:
    """Send bytes; return the words of the one refusal that comes back."""
    said = await agent.raw(data)
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4"), said
    assert said.count(b"HTTP/1.1 ") == 1
    message = json.loads(body)["error"]["message"]
    assert message.startswith("broker: ")
    return str(message)


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 28\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + SECOND,
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n" + CHUNKED + SECOND,
        HEAD + b"Content-Length: 13\r\nContent-Length: 0\r\n\r\n" + GOOD + SECOND,
        HEAD + b"Content-Length: 13\r\nContent-Length: 13\r\n\r\n" + GOOD,
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKED,
        HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 13\r\n\r\n" + GOOD,
        HEAD + b"X: a\r\n b\r\nContent-Length: 13\r\n\r\n" + GOOD,
        HEAD + b"X: a\nContent-Length: 13\r\n\r\n" + GOOD,
        HEAD + b"X: \x00\r\nContent-Length: 13\r\n\r\n" + GOOD,
        HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 13\n\n" + GOOD,
        b"\r\n" + SECOND,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"d\r", b"d;x=y\r", 1),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED[:-2] + b"Trailer: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"}\r\n", b"}xx"),
        HEAD + b"Content-Length: 2\r\n\r\n[]" + SECOND,
        SECOND.replace(b"HTTP/1.1", b"HTTP/1.0"),
        SECOND.replace(b"/v1/messages", b"http://api.example.com/v1/messages"),
        SECOND.replace(b"/v1/messages", b"/v1/messages/../../admin"),
        SECOND.replace(b"/v1/messages", b"/v1/%6dessages"),
        SECOND.replace(b"/v1/messages", b"/v1/files"),
        b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n" + SECOND,
        b"GET /v1/models HTTP/1.1\r\nHost: here\r\nContent-Length: 14\r\n\r\n" + SECOND,
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n",
        HEAD + b"Content-Length: 13\r\n" + b"X: %b\r\n" % (b"a" * 1000) * 70 + b"\r\n" + GOOD,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda data: repr(data.replace(HEAD, b"")[:60]),
)
async def test_a_request_that_could_be_read_in_two_ways_reaches_no_provider(data: bytes) -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            await refused(agent, data)
            ledger = agent.line.ledger()

    assert fake.seen == []
    assert (ledger.requests, ledger.refused) == (0, 1)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"model": "other"}, "model 'other'"),
        ({"model": "m", "tools": [{"type": "web_search"}]}, "web_search"),
        ({"model": "m", "mcp_servers": [{"url": "https://evil.example.com"}]}, "mcp_servers"),
        (b'{"model": "m", "model": "other"}', "unique keys"),
        (b"model=m", "JSON"),
    ],
    ids=repr,
)
async def test_a_body_that_is_not_allowed_reaches_no_provider(asked: object, word: str) -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url, models=("m",))) as agent:
            reply = await agent.post(MESSAGES, asked)
            ledger = agent.line.ledger()

    assert reply.status in {400, 403}
    assert word in reply.refusal
    assert (fake.seen, ledger.refused, ledger.requests) == ([], 1, 0)
    assert ledger.first_refusal == reply.refusal.removeprefix("broker: ")


@pytest.mark.parametrize("way", ["length", "chunks"])
async def test_a_body_of_64_megabytes_is_refused_and_the_agent_reads_why(way: str) -> None:
    size = 65 * 1024 * 1024  # more than there is room for in a box, too
    data = HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    if way == "chunks":
        data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n"
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            message = await refused(agent, data)

    assert "33554432 bytes" in message
    assert fake.seen == []


async def test_a_case_has_so_many_requests_and_no_more() -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url, max_requests=3)) as agent:
            statuses = [(await agent.post(MESSAGES, ASKED)).status for _ in range(5)]
            ledger = agent.line.ledger()

    assert statuses == [200, 200, 200, 403, 403]
    assert (len(fake.seen), ledger.requests, ledger.refused) == (3, 3, 2)


async def test_an_agent_that_floods_the_broker_with_what_is_refused_is_no_longer_heard() -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url, max_requests=5)) as agent:
            answers = [await agent.raw(b"nonsense\r\n\r\n") for _ in range(8)]

    assert [bool(answer) for answer in answers] == [True] * 5 + [False] * 3


async def test_a_box_has_64_connections_at_once_and_the_next_one_is_refused() -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent, asyncio.timeout(HANG_SECONDS):
            held = [await asyncio.open_connection("127.0.0.1", agent.port) for _ in range(64)]
            surplus = await agent.raw(b"")
            held[0][1].close()
            while (await agent.raw(HEAD.replace(b"POST", b"PUT") + b"\r\n")).startswith(b"HTTP/1.1 503"):
                pass
            for _, writer in held:
                writer.close()

    assert surplus.startswith(b"HTTP/1.1 503")
    assert b"64 connections" in surplus


async def test_an_agent_that_never_ends_its_request_is_left() -> None:
    times = AgentTimes(idle=0.3, body=0.3, part=0.3)
    with fake_model() as fake:
        async with open_line(rules(fake.url), Surroundings(agent=times)) as agent:
            in_the_head = await agent.raw(HEAD)
            in_the_body = await agent.raw(HEAD + b"Content-Length: 100\r\n\r\n{")

    assert (in_the_head, in_the_body, fake.seen) == (b"", b"", [])


async def test_bodies_that_find_no_room_wait_for_it_and_all_are_served() -> None:
    filler = {"model": "m", "messages": ["x" * (24 * 1024 * 1024)]}
    with fake_model(FakeModel(form="slow", slow_seconds=0.3)) as fake:
        async with open_line(rules(fake.url)) as agent:
            replies = await asyncio.gather(*[agent.post(MESSAGES, filler) for _ in range(5)])

    assert [reply.status for reply in replies] == [200] * 5
    assert fake.most_at_once == 2  # of 24 MiB each; a box has room for 64


async def test_an_answer_without_an_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegenie.eval.broker.upstream._ANSWER_BYTES", 400)
    with fake_model(FakeModel(text="word " * 1000)) as fake:
        async with open_line(rules(fake.url)) as agent:
            body = json.dumps(STREAMED).encode()
            said = await agent.raw(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    assert said.startswith(b"HTTP/1.1 200 OK")
    assert len(said) < 2000
    assert not said.endswith(b"0\r\n\r\n")


async def test_an_agent_that_leaves_after_the_last_word_of_a_stream_is_counted_whole() -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent, asyncio.timeout(HANG_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            body = json.dumps(STREAMED).encode()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            await reader.readuntil(b'"message_stop"}')
            writer.close()
            ledger = await agent.line.close()

    assert (ledger.successes, ledger.unmetered, ledger.output_tokens) == (1, 0, OUTPUT)


# The provider's bad days.


async def test_a_provider_that_is_busy_once_is_asked_again_before_the_agent_hears_of_it() -> None:
    for form in ("429-once", "503-once"):
        with fake_model(FakeModel(form=form)) as fake:
            async with open_line(rules(fake.url)) as agent:
                reply = await agent.post(MESSAGES, ASKED)
                ledger = agent.line.ledger()

        assert (reply.status, len(fake.seen), agent.clock.slept) == (200, 2, [1.0])
        assert (ledger.requests, ledger.successes, ledger.provider_wait_ms) == (1, 1, 1000)
        assert ledger.statuses == {int(form[:3]): 1, 200: 1}


@pytest.mark.parametrize("form", ["429", "500", "529"])
async def test_a_provider_that_stays_busy_is_waited_for_until_the_patience_is_over(form: str) -> None:
    with fake_model(FakeModel(form=form)) as fake:
        async with open_line(rules(fake.url, patience_seconds=100.0)) as agent:
            first = await agent.post(MESSAGES, ASKED)
            tries = len(fake.seen)
            second = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    assert (first.status, second.status) == (int(form), int(form))
    assert agent.clock.slept == [1, 2, 4, 8, 16, 32, 37]
    assert (tries, len(fake.seen)) == (8, 9)
    assert (ledger.successes, ledger.provider_wait_ms, ledger.patience_over) == (0, 100_000, True)
    assert ledger.first_error == f"status {form}"


async def test_the_providers_own_pause_is_kept() -> None:
    with fake_model(FakeModel(form="429-once", retry_after="17")) as fake:
        async with open_line(rules(fake.url)) as agent:
            assert (await agent.post(MESSAGES, ASKED)).status == 200

    assert agent.clock.slept == [17.0]


async def test_a_refused_connection_is_waited_for_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with open_line(rules(url, patience_seconds=5.0)) as agent:
        reply = await agent.post(MESSAGES, ASKED)
        ledger = agent.line.ledger()

    assert (reply.status, agent.clock.slept) == (502, [1.0, 2.0, 2.0])
    assert "no connection" in reply.refusal
    assert (ledger.unreachable, ledger.successes, ledger.patience_over) == (4, 0, True)
    assert str(ledger.first_error).startswith("no connection")


async def test_a_refused_key_is_passed_on_at_once() -> None:
    with fake_model(FakeModel(form="401")) as fake:
        async with open_line(rules(fake.url)) as agent:
            reply = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    assert (reply.status, len(fake.seen), agent.clock.slept) == (401, 1, [])
    assert (ledger.successes, ledger.statuses) == (0, {401: 1})
    assert str(ledger.first_error).startswith("status 401: ")
    assert "the provider says 401" in str(ledger.first_error)


async def test_a_page_that_is_not_an_answer_of_a_model_passes_and_is_no_success() -> None:
    with fake_model(FakeModel(form="garbage")) as fake:
        async with open_line(rules(fake.url)) as agent:
            reply = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    assert (reply.status, reply.headers["content-type"]) == (200, "text/html")
    assert (ledger.requests, ledger.successes, ledger.statuses) == (1, 0, {200: 1})


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ("redirect", "redirects are not followed"),
        ("compressed", "compresses"),
        ("nonsense", "cannot be read"),
    ],
)
async def test_an_answer_that_cannot_be_judged_becomes_an_error_of_the_broker(form: str, word: str) -> None:
    with fake_model(FakeModel(form=form)) as fake:
        async with open_line(rules(fake.url)) as agent:
            reply = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    assert (reply.status, len(fake.seen), ledger.successes) == (502, 1, 0)
    assert word in reply.refusal
    assert word in str(ledger.first_error)
    assert "location" not in reply.headers


async def test_a_provider_that_stalls_in_its_head_or_in_its_body_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with open_line(rules(url), Surroundings(upstream=UpstreamTimes(head=0.3))) as agent:
            reply = await agent.post(MESSAGES, ASKED)
    assert "no answer within 0.3 s" in reply.refusal

    with fake_model(FakeModel(form="stall")) as fake:
        async with open_line(rules(fake.url), Surroundings(upstream=UpstreamTimes(idle=0.3))) as agent:
            said = await agent.raw(HEAD + b"Content-Length: 13\r\n\r\n" + b'{"model":"m"}')
            ledger = agent.line.ledger()
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert not said.endswith(b"0\r\n\r\n")
    assert (ledger.successes, ledger.first_error) == (0, "an answer broke off: TimeoutError")


@asynccontextmanager
async def dripping_provider(answer: bytes, turns: asyncio.Semaphore) -> AsyncIterator[str]:
    """Serve a provider that sends its answer byte by byte, one for each turn."""
    serving: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        try:
            await reader.readuntil(b"}")
            for place in range(len(answer)):
                await turns.acquire()
                writer.write(answer[place : place + 1])
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        tasks = [task for task in serving if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def test_a_provider_that_sends_its_head_byte_by_byte_has_one_time_for_all_of_it() -> None:
    turns = asyncio.Semaphore(0)

    async def give_turns() -> None:
        while True:
            turns.release()
            await asyncio.sleep(0.05)

    async with dripping_provider(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 10_000, turns) as url:
        giving = asyncio.ensure_future(give_turns())
        async with open_line(rules(url), Surroundings(upstream=UpstreamTimes(head=0.3))) as agent:
            reply = await agent.post(MESSAGES, ASKED)
        giving.cancel()

    assert "no answer within 0.3 s" in reply.refusal


async def test_an_answer_that_drips_is_passed_on_byte_by_byte_and_counted_when_the_agent_is_ended() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    start = b'data: {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 7}}}\n\n'
    turns = asyncio.Semaphore(len(head))
    async with (
        dripping_provider(head + start + b"data: ", turns) as url,
        open_line(rules(url)) as agent,
        asyncio.timeout(HANG_SECONDS),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
        writer.write(HEAD + b"Content-Length: 13\r\n\r\n" + b'{"model":"m"}')
        await reader.readuntil(b"\r\n\r\n")
        passed_on = b""
        for place, byte in enumerate(start):
            turns.release()
            if byte == ord(KEY[0]):
                continue  # it may be the beginning of the key, and is passed on with the next one
            size = int(await reader.readuntil(b"\r\n"), 16)
            passed_on += (await reader.readexactly(size + 2))[:size]
            assert passed_on == start[: place + 1]
        ledger = await agent.line.close()
        writer.close()

    assert (ledger.successes, ledger.unmetered, ledger.input_tokens) == (1, 1, 7)
    assert ledger.provider_wait_ms == 0


async def test_an_answer_that_breaks_off_is_broken_off_for_the_agent_and_its_count_is_a_least_one() -> None:
    with fake_model(FakeModel(form="cut")) as fake:
        async with open_line(rules(fake.url)) as agent:
            body = json.dumps(STREAMED).encode()
            said = await agent.raw(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            ledger = agent.line.ledger()

    assert b"message_start" in said
    assert not said.endswith(b"0\r\n\r\n")
    assert (ledger.successes, ledger.unmetered, ledger.input_tokens) == (1, 1, INPUT)


async def test_an_agent_that_leaves_while_the_broker_waits_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_model(FakeModel(form="429")) as fake:
        async with open_line(rules(fake.url)) as agent, asyncio.timeout(HANG_SECONDS):
            asleep = asyncio.Event()

            async def sleep(_: float) -> None:
                asleep.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(agent.clock, "sleep", sleep)
            _, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            body = json.dumps(ASKED).encode()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            await asleep.wait()
            assert agent.line.patience.waiting == 1
            writer.close()
            while agent.line.patience.waiting:  # noqa: ASYNC110 - there is no event for what no longer happens
                await asyncio.sleep(0.01)

    assert len(fake.seen) == 1


async def test_closing_a_line_ends_what_is_under_way_and_gives_the_count() -> None:
    with fake_model(FakeModel(form="stall")) as fake:
        async with open_line(rules(fake.url)) as agent, asyncio.timeout(HANG_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            body = json.dumps(STREAMED).encode()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            await reader.readuntil(b"\r\n\r\n")
            ledger = await agent.line.close()
            rest = await reader.read()
            writer.close()
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection("127.0.0.1", agent.port)

    assert (ledger.requests, ledger.successes) == (1, 0)
    assert not rest.endswith(b"0\r\n\r\n")


# The key.


async def test_a_provider_that_repeats_the_key_does_not_give_it_to_the_agent() -> None:
    with fake_model(FakeModel(form="echo")) as fake:
        async with open_line(rules(fake.url, credential_format="Key {}")) as agent:
            reply = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    stars = "*" * len(KEY)
    assert fake.seen[0].headers["x-api-key"] == f"Key {KEY}"
    assert json.loads(reply.body)["headers"]["x-api-key"] == f"Key {stars}"
    assert stars in reply.headers["x-request-id"]
    assert KEY not in f"{reply} {ledger}"


@pytest.mark.parametrize(
    ("server", "trusted", "is_right"),
    [
        ("here", "here", True),
        ("here", None, False),
        ("here", "elsewhere", False),
        ("elsewhere", "elsewhere", False),
    ],
    ids=["verified", "unknown authority", "other authority", "other name"],
)
async def test_only_a_provider_that_proves_its_name_gets_the_key(
    server: str, trusted: str | None, is_right: bool
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(TLS / f"{server}.pem")
    trust = ssl.create_default_context(cafile=str(TLS / f"{trusted}.pem") if trusted else None)
    with fake_model(tls=serving) as fake:
        async with open_line(rules(fake.url), Surroundings(trust=trust)) as agent:
            reply = await agent.post(MESSAGES, ASKED)
            ledger = agent.line.ledger()

    assert (reply.status, len(fake.seen)) == ((200, 1) if is_right else (502, 0))
    assert is_right or "certificate is not valid" in reply.refusal
    assert (ledger.successes, agent.clock.slept) == (int(is_right), [])


async def test_a_name_that_leads_away_from_this_machine_gets_no_key_by_plain_http(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url.replace("127.0.0.1", "localhost"))) as agent:
            assert (await agent.post(MESSAGES, ASKED)).status == 200

            real = asyncio.StreamWriter.get_extra_info

            def elsewhere(writer: asyncio.StreamWriter, name: str, default: Any = None) -> Any:  # noqa: ANN401
                return ("192.0.2.7", 80) if name == "peername" else real(writer, name, default)

            monkeypatch.setattr(asyncio.StreamWriter, "get_extra_info", elsewhere)
            reply = await agent.post(MESSAGES, ASKED)

    assert "on this machine" in reply.refusal
    assert len(fake.seen) == 1


async def test_a_line_that_was_never_used_has_an_empty_ledger() -> None:
    with fake_model() as fake:
        async with open_line(rules(fake.url)) as agent:
            assert await agent.line.close() == Ledger()
