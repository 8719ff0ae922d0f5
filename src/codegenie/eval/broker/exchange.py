"""One request of an agent, from its body to the last byte of the answer.

While the provider is busy or away, the broker waits and asks again, and the agent hears nothing. An answer
whose head has arrived and is not of that kind is passed on as it comes.
"""

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus

from codegenie.eval.broker.account import Account
from codegenie.eval.broker.heads import Malformed, ResponseHead, response_framing
from codegenie.eval.broker.meter import Meter
from codegenie.eval.broker.patience import ASKED_AGAIN, Clock, Patience, stated_pause
from codegenie.eval.broker.redaction import Redactor
from codegenie.eval.broker.rules import NOT_AGAIN, Passage, Refused, passed_back
from codegenie.eval.broker.upstream import Answer, Dialler, Unreachable, Unusable

_QUOTED_BYTES = 300


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """How long the broker waits for an agent, in seconds."""

    # Between two requests on one connection, and within a head.
    idle: float = 300.0
    # For room for a body, and for the whole of it; within it, between two parts.
    body: float = 300.0
    part: float = 60.0
    # For reading the rest of a request that was refused, so that the agent can read why.
    farewell: float = 5.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What one line needs to serve a request."""

    dialler: Dialler
    account: Account
    patience: Patience
    clock: Clock


class BrokenOff(Exception):  # noqa: N818 - what the upstream did
    """An answer ended in its middle, so the agent's connection has to end too."""


async def exchange(desk: Desk, passage: Passage, body: bytes, agent: asyncio.StreamWriter) -> None:
    """Ask the upstream and pass its answer on. Raises Refused before, and BrokenOff after the first byte."""
    answer = await _patient_answer(desk, passage, body)
    try:
        _check_answer(desk.account, answer.head)
        await _pass_on(desk, answer, agent)
    finally:
        answer.close()


async def _patient_answer(desk: Desk, passage: Passage, body: bytes) -> Answer:
    """Ask until there is an answer to pass on, or the patience is over. Raises Refused."""
    tries = 0
    while True:
        tries += 1
        began = desk.clock.now()
        answer, reason = await _one_try(desk, passage, body)
        if answer is not None and answer.head.status not in ASKED_AGAIN:
            return answer
        stated = stated_pause(answer.head.every("retry-after"), desk.clock.today()) if answer else None
        pause = desk.patience.pause(tries, stated, began)
        if pause is not None:
            if answer is not None:
                answer.close()
            await desk.patience.wait(pause, began)
        elif answer is not None:
            return answer
        else:
            raise Refused(502, reason)


async def _one_try(desk: Desk, passage: Passage, body: bytes) -> tuple[Answer | None, str]:
    """Return an answer, or why there is none. Raises Refused if asking again does not help."""
    try:
        answer = await desk.dialler.ask(passage, body)
    except Unreachable as error:
        desk.account.missed(str(error))
        return None, str(error)
    except Unusable as error:
        desk.account.missed(str(error))
        raise Refused(502, str(error)) from None
    desk.account.touch()
    desk.account.status(answer.head.status)
    if answer.head.status in ASKED_AGAIN:
        desk.account.error(f"status {answer.head.status}")
    return answer, ""


def _check_answer(account: Account, head: ResponseHead) -> None:
    """Refuse what would lead the agent, its key or the count astray."""
    problem = None
    if HTTPStatus.MULTIPLE_CHOICES <= head.status < HTTPStatus.BAD_REQUEST:
        problem = f"the upstream redirects (status {head.status}), and redirects are not followed"
    elif head.every("content-encoding") not in ([], ["identity"]):
        problem = "the upstream compresses its answer, although it was asked not to"
    if problem is not None:
        account.error(problem)
        raise Refused(502, problem)


async def _pass_on(desk: Desk, answer: Answer, agent: asyncio.StreamWriter) -> None:
    redactor = Redactor(desk.dialler.credential)
    meter = Meter(" ".join(answer.head.every("content-type")))
    is_chunked = response_framing(answer.head).length is None
    agent.write(_answer_head(answer.head, redactor))
    is_whole, quoted = False, b""
    try:
        async for part in answer.parts():
            desk.account.touch()
            meter.feed(part)
            clean = redactor.feed(part)
            quoted += clean[: _QUOTED_BYTES - len(quoted)]
            await _send(agent, clean, desk.dialler.times.idle, is_chunked=is_chunked)
        await _send(agent, redactor.finish(), desk.dialler.times.idle, is_chunked=is_chunked)
        is_whole = True
        if is_chunked:
            agent.write(b"0\r\n\r\n")
    except (OSError, Malformed, asyncio.IncompleteReadError) as error:
        desk.account.error(f"an answer broke off: {type(error).__name__}")
        raise BrokenOff from None
    finally:
        if HTTPStatus(200) <= answer.head.status < HTTPStatus.MULTIPLE_CHOICES:
            desk.account.read(meter.finish(), is_whole=is_whole)
        else:
            words = quoted.decode("utf-8", "replace")
            desk.account.error(f"status {answer.head.status}: {words}")


async def _send(agent: asyncio.StreamWriter, data: bytes, seconds: float, *, is_chunked: bool) -> None:
    if not data:
        return
    agent.write(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)
    async with asyncio.timeout(seconds):
        await agent.drain()


def _answer_head(head: ResponseHead, redactor: Redactor) -> bytes:
    length = response_framing(head).length
    fields = [(name, redactor.text(value)) for name, value in passed_back(head)]
    fields.append(("transfer-encoding", "chunked") if length is None else ("content-length", str(length)))
    lines = [
        f"HTTP/1.1 {head.status} {_phrase(head.status)}",
        *(f"{name}: {value}" for name, value in fields),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def refusal(status: int, message: str) -> bytes:
    """Return the whole answer to a request that does not pass, after which the connection is closed."""
    error = {"type": "broker_error", "message": f"broker: {message}", "code": status}
    body = json.dumps({"type": "error", "error": error}).encode()
    lines = [
        f"HTTP/1.1 {status} {_phrase(status)}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        lines.append(": ".join(NOT_AGAIN))
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
