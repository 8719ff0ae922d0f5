"""The process of a broker: what it is given, what others can see of it, and how it ends."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.broker.client import Broker, BrokerLine
from codegenie.eval.errors import HarnessFailure, SutSpecInvalid
from tests.hostile.engine.table import ROOT
from tests.support.broker_lines import HANG_SECONDS, KEY, rules
from tests.support.fake_model import INPUT, OUTPUT, FakeModel, fake_model
from tests.support.ordinary_user import run_as_ordinary_user

pytestmark = pytest.mark.asyncio

MANY_PROCESSES = 200
ASKED = json.dumps({"model": "m", "messages": []}).encode()
# An agent in a network of its own. It makes the listener there, hands it out, and asks on it.
IN_ITS_OWN_NETWORK = """\
import array, fcntl, json, socket, struct, sys, urllib.request
control = socket.socket(fileno=0)
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(plain, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS: the loopback is up
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
socket.send_fds(control, [str(port).encode()], [listener.fileno()])
listener.close()
assert control.recv(1) == b"!"
ask = urllib.request.Request(f"http://127.0.0.1:{port}/v1/messages", sys.argv[1].encode())
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(ask, timeout=60) as answer:
    print(answer.status, len(answer.read()) > 0)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=60)
    print("the provider is within reach")
except OSError:
    print("only the broker")
"""
DYING_HARNESS = """\
import asyncio, os, sys
from codegenie.eval.broker.client import Broker
from tests.support.broker_lines import KEY, rules

async def main():
    broker = await Broker.start(rules("http://127.0.0.1:9"), KEY)
    print(broker._process.pid, flush=True)
    os._exit(7)

asyncio.run(main())
"""


@asynccontextmanager
async def running(url: str, **changes: Any) -> AsyncIterator[tuple[Broker, BrokerLine, int]]:  # noqa: ANN401
    """Run a broker with one line; yield both and the port."""
    broker = await Broker.start(rules(url, **changes), KEY)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            line = await broker.listen(listener.fileno())
        yield broker, line, port
    finally:
        await broker.close()


def pid_of(broker: Broker) -> int:
    return broker._process.pid  # noqa: SLF001 - seen from outside


async def ask(port: int) -> bytes:
    def call() -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/v1/messages", ASKED, HANG_SECONDS) as answer:
            return bytes(answer.read())

    return await asyncio.to_thread(call)


def start_agent(argv: list[str], control: socket.socket) -> "subprocess.Popen[str]":
    with control:
        return subprocess.Popen(argv, stdin=control.fileno(), stdout=subprocess.PIPE, text=True)


async def test_a_line_serves_an_agent_and_its_ledger_says_what_was_used() -> None:
    with fake_model() as fake:
        async with running(fake.url) as (_, line, port):
            assert b"All done." in await ask(port)
            so_far = await line.ledger()
            await ask(port)
            whole = await line.close()
            again = (await line.close(), await line.ledger())

    assert (so_far.requests, so_far.input_tokens, so_far.output_tokens) == (1, INPUT, OUTPUT)
    assert (whole.requests, whole.successes, whole.input_tokens) == (2, 2, 2 * INPUT)
    assert again == (whole, whole)
    assert whole.last_activity is not None
    assert 0 <= time.monotonic() - whole.last_activity < HANG_SECONDS
    assert [seen.headers["x-api-key"] for seen in fake.seen] == [KEY, KEY]


async def test_two_lines_have_ledgers_of_their_own_and_one_ends_without_the_other() -> None:
    with fake_model() as fake:
        async with running(fake.url) as (broker, first, port):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                other = listener.getsockname()[1]
                second = await broker.listen(listener.fileno())
            await ask(port)
            await first.close()
            await ask(other)
            await ask(other)
            counts = [(await first.ledger()).requests, (await second.ledger()).requests]
            with pytest.raises(OSError, match=r"."):
                await ask(port)

    assert counts == [1, 2]


async def test_the_harness_knows_at_any_time_how_long_a_provider_was_waited_for() -> None:
    with fake_model(FakeModel(form="429-once", retry_after="2")) as fake:
        async with running(fake.url) as (_, line, port):
            before = line.waited_seconds()
            asking = asyncio.create_task(ask(port))
            async with asyncio.timeout(HANG_SECONDS):
                while line.waited_seconds() < 0.5:  # noqa: ASYNC110 - time passes by itself
                    await asyncio.sleep(0.02)
            assert not asking.done()
            await asking
            after = line.waited_seconds()
            ledger = await line.close()

    assert before == 0.0
    assert after >= 2.0
    assert ledger.provider_wait_ms == round(after * 1000) == round(line.waited_seconds() * 1000)


async def test_an_agent_in_another_network_namespace_reaches_the_provider_through_the_line_alone() -> None:
    own = [] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    ours, theirs = socket.socketpair()
    with fake_model() as fake, ours:
        provider = fake.url.rpartition(":")[2]
        argv = ["unshare", *own, "--net", sys.executable, "-c", IN_ITS_OWN_NETWORK, ASKED.decode(), provider]
        agent = start_agent(argv, theirs)
        _, (listener,), _, _ = await asyncio.to_thread(socket.recv_fds, ours, 100, 1)
        broker = await Broker.start(rules(fake.url), KEY)
        line = await broker.listen(listener)
        os.close(listener)
        ours.send(b"!")
        said, _ = await asyncio.to_thread(agent.communicate, None, HANG_SECONDS)
        ledger = await line.close()
        await broker.close()

    assert said.splitlines() == ["200 True", "only the broker"]
    assert (ledger.successes, len(fake.seen)) == (1, 1)


@pytest.mark.parametrize("authorities", ["here", "elsewhere", None])
async def test_the_process_verifies_the_name_of_the_provider(authorities: str | None) -> None:
    tls = ROOT / "tests" / "fixtures" / "tls"
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tls / "here.pem")
    ca_file = None if authorities is None else str(tls / f"{authorities}.pem")
    with fake_model(tls=serving) as fake, socket.create_server(("127.0.0.1", 0)) as listener:
        broker = await Broker.start(rules(fake.url), KEY, ca_file)
        line = await broker.listen(listener.fileno())
        with contextlib.suppress(OSError):
            await ask(listener.getsockname()[1])
        ledger = await line.close()
        await broker.close()

    assert (ledger.successes, len(fake.seen)) == ((1, 1) if authorities == "here" else (0, 0))


async def test_a_question_that_is_cancelled_leaves_no_answer_for_the_next() -> None:
    with fake_model() as fake:
        async with running(fake.url) as (broker, line, port):
            await ask(port)
            for _ in range(3):
                asking = asyncio.create_task(line.ledger())
                await asyncio.sleep(0)
                asking.cancel()
                closing = asyncio.create_task(line.close())
                await asyncio.sleep(0)
                closing.cancel()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                second = await broker.listen(listener.fileno())
            ledgers = [await second.ledger(), await line.close()]

    assert [ledger.requests for ledger in ledgers] == [0, 1]


# What others can see of it.


async def test_no_program_of_the_user_can_look_into_the_broker_from_before_it_has_the_key() -> None:
    with tempfile.TemporaryDirectory() as room:
        done = await asyncio.to_thread(
            run_as_ordinary_user, "tests.support.spied_broker", Path(room), MANY_PROCESSES
        )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "with its key": [],
        "before its key": [],
        "a control": ["environ", "mem", "maps", "auxv", "fd/1", "ptrace"],
    }


async def test_the_key_is_in_no_environment_no_argument_no_core_file_and_no_word_of_the_broker() -> None:
    with fake_model(FakeModel(form="401")) as fake:
        async with running(fake.url) as (broker, line, port):
            with pytest.raises(OSError, match="401") as refused:
                await ask(port)
            # Now: when the line is closed, the rest of an answer is gone.
            answer = (await asyncio.to_thread(refused.value.read)).decode()  # type: ignore[attr-defined]
            place = Path(f"/proc/{pid_of(broker)}")
            arguments = (place / "cmdline").read_bytes()
            limits = (place / "limits").read_text()
            # Root may read this file of any process; another user is refused, which the spy shows.
            environment = b""
            with contextlib.suppress(PermissionError):
                environment = (place / "environ").read_bytes()
            ledger = await line.close()

    assert environment == b""
    assert KEY.encode() not in arguments
    (core,) = [line.split() for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core[4:6] == ["0", "0"]
    assert KEY not in f"{ledger} {answer} {broker!r} {vars(broker)} {vars(line)}"
    assert fake.seen[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("credential", "ca_file", "word"),
    [
        ("sk-1\r\nHost: x", None, "the credential is"),
        ("", None, "the credential is"),
        (KEY, "/nonexistent/authorities.pem", "No such file"),
    ],
)
async def test_a_key_or_a_file_that_cannot_be_used_is_refused_before_anything_is_asked(
    credential: str, ca_file: str | None, word: str
) -> None:
    with pytest.raises(SutSpecInvalid, match=word) as caught:
        await Broker.start(rules("https://127.0.0.1:9"), credential, ca_file)

    assert not credential or credential not in str(caught.value)


# How it ends.


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_closing_a_broker_ends_its_process() -> None:
    async with running("http://127.0.0.1:9") as (broker, _, _):
        pid = pid_of(broker)
        assert is_running(pid)

    assert not is_running(pid)


async def test_a_broker_ends_with_its_harness() -> None:
    argv = [sys.executable, "-c", DYING_HARNESS]
    done = await asyncio.to_thread(
        subprocess.run, argv, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    pid = int(done.stdout)
    async with asyncio.timeout(HANG_SECONDS):
        while is_running(pid):  # noqa: ASYNC110 - the end of a process of another
            await asyncio.sleep(0.02)

    assert done.returncode == 7


async def test_a_broker_that_was_killed_is_reported_and_no_question_hangs() -> None:
    with fake_model() as fake:
        async with running(fake.url) as (broker, line, _):
            broker._process.kill()  # noqa: SLF001 - as the machine would
            for question in (line.ledger, line.close, line.close):
                with pytest.raises(HarnessFailure, match="has ended"):
                    await question()
            assert line.waited_seconds() == 0.0


async def test_a_socket_that_does_not_listen_is_reported() -> None:
    async with running("http://127.0.0.1:9") as (broker, _, _):
        theirs, ours = os.pipe()
        try:
            with pytest.raises(HarnessFailure, match="cannot listen"):
                await broker.listen(theirs)
        finally:
            os.close(theirs)
            os.close(ours)


async def test_a_hundred_lines_are_opened_served_and_closed() -> None:
    with fake_model() as fake:
        async with running(fake.url) as (broker, _, _):
            lines = []
            for _ in range(100):
                with socket.create_server(("127.0.0.1", 0)) as listener:
                    lines.append((await broker.listen(listener.fileno()), listener.getsockname()[1]))
            await asyncio.gather(*[ask(port) for _, port in lines[:20]])
            ledgers = await asyncio.gather(*[line.close() for line, _ in lines])

    assert [ledger.successes for ledger in ledgers] == [1] * 20 + [0] * 80
