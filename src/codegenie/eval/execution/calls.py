"""The trusted side of a step of calls: it asks a worker in a box, and believes each reply as a value only."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from codegenie.eval.bench.grammar import Call
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import AgentStart, BoxEnd
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.execute_steps import PythonCalls
from codegenie.eval.execution.frames import Frames, NoReply
from codegenie.eval.limits import LIMITS
from codegenie.eval.tagged_values import checked_value

_DRAIN_SECONDS = 5.0
_CLASS_NAME = "object"

Reply = dict[str, Any] | None
"""What came of one call: its value, the name of an exception, or None for no answer."""


@dataclass(slots=True)
class Conversation:
    """What was asked and what came back. The first call without an answer ends it."""

    step: PythonCalls
    calls: Sequence[Call]
    replies: list[Reply] = field(default_factory=list)
    is_late: bool = False
    _bytes: int = 0

    async def hold(self, frames: Frames) -> None:
        """Ask everything, until a reply is missing, late or not one."""
        try:
            # Starting and importing has the time of the whole step, which the box keeps.
            hello = {"id": 0, "module": self.step.module, "fresh": self.step.fresh}
            _checked_reply(await frames.ask(_document(hello)), 0, mutates=False)
            for number, call in enumerate(self.calls, 1):
                self.replies.append(await self._asked(frames, number, call))
        except TimeoutError:
            self.is_late = True
        except (NoReply, DecodingRefused):
            pass

    async def _asked(self, frames: Frames, number: int, call: Call) -> Reply:
        request = {"id": number, "attribute": call.attribute, "args": call.args, "mutates": call.mutates}
        async with asyncio.timeout(self.step.call_seconds):
            raw = await frames.ask(_document(request))
        self._bytes += len(raw)
        if self._bytes > LIMITS.step_replies_bytes:
            raise NoReply("all replies together are too large")
        return _checked_reply(raw, number, mutates=call.mutates)

    def all_replies(self) -> list[Reply]:
        """Return one reply for each call."""
        return [*self.replies, *([None] * (len(self.calls) - len(self.replies)))]


def _document(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode()


def _checked_reply(raw: bytes, number: int, *, mutates: bool) -> dict[str, Any]:
    """Return a reply without its number, in its one spelling. Raises DecodingRefused."""
    reply = decode_json(raw, LIMITS.step_reply_bytes)
    if not isinstance(reply, dict) or type(reply.get("id")) is not int or reply["id"] != number:
        raise DecodingRefused("the reply is not the one to this call")
    del reply["id"]
    if reply.keys() == {"raised"}:
        # The name of an exception has the form of the name of a class.
        return {"raised": _name(reply["raised"])}
    if reply.keys() != ({"value", "args"} if mutates else {"value"}):
        raise DecodingRefused("a reply is a value or an exception")
    checked: dict[str, Any] = {"value": checked_value(reply["value"])}
    if mutates:
        if not isinstance(reply["args"], list):
            raise DecodingRefused("args is not a list")
        checked["args"] = [checked_value(each) for each in reply["args"]]
    return checked


def _name(text: object) -> str:
    tagged = checked_value({_CLASS_NAME: text})
    assert isinstance(tagged, dict)  # noqa: S101 - for the type checker
    return str(tagged[_CLASS_NAME])


@dataclass(slots=True)
class _Pipes:
    """Both pipes: the worker's ends, and ours. Each is closed once."""

    requests_out: int
    requests_in: int
    replies_out: int
    replies_in: int
    open: set[int] = field(default_factory=set)

    def close(self, *descriptors: int) -> None:
        for descriptor in self.open.intersection(descriptors):
            self.open.remove(descriptor)
            os.close(descriptor)


@contextmanager
def _pipes() -> Iterator[_Pipes]:
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    every = (requests_out, requests_in, replies_out, replies_in)
    pipes = _Pipes(*every, open=set(every))
    try:
        yield pipes
    finally:
        pipes.close(*every)


async def hold_in_box(conversation: Conversation, box: Box, start: AgentStart) -> BoxEnd:
    """Run a worker and hold the conversation with it. The streams of `start` get the two pipes added."""
    with _pipes() as pipes:
        streams = (*start.streams, pipes.requests_out, pipes.replies_in)
        worker = AgentStart(start.argv, start.environment, streams, start.seconds, start.grace_seconds)
        talk = asyncio.create_task(conversation.hold(Frames(pipes.requests_in, pipes.replies_out)))
        run = asyncio.create_task(box.run(worker))
        try:
            await asyncio.wait({talk, run}, return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                # With our copy of its end closed, the pipe ends where the worker's words end.
                pipes.close(pipes.replies_in)
                await asyncio.wait({talk}, timeout=_DRAIN_SECONDS)
            # A worker reads the end of its requests and ends by itself.
            pipes.close(pipes.requests_in)
            if conversation.is_late and not run.done():
                await box.end_all()
                await asyncio.wait({run})
                return BoxEnd(signal="KILL", timed_out=True)
            return await run
        finally:
            for task in (talk, run):
                task.cancel()
            await asyncio.gather(talk, run, return_exceptions=True)
