"""One open box, as the harness holds it: descriptors of its private directories, and the program in it."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from codegenie.eval.boxes.channel import Channel, Closed, readable
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxPaths
from codegenie.eval.errors import BoxFailed, ExecFailed
from codegenie.eval.system import protocol

_MOST_STREAMS = 8
_END_SECONDS = 15.0
_WORTH_A_THREAD = 1 << 25
_CAPS: dict[str, Literal["memory", "workspace"]] = {"memory": "memory", "workspace": "workspace"}


@dataclass(frozen=True, slots=True)
class Handed:
    """What the harness got for a new box: the socket, its first process, and descriptors from inside."""

    channel: Channel
    # Its number on the host, and a descriptor of it.
    number: int
    process: int
    descriptors: tuple[int, ...]


class Box:
    """An open box. Leaving it ends everything in it and closes its descriptors."""

    def __init__(
        self,
        handed: Handed,
        paths: BoxPaths,
        port: int | None,
        clean_up: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._channel = handed.channel
        self._process = handed.process
        self.first_process = handed.number
        self.workspace, self.home, *listeners = handed.descriptors
        self.listener: int | None = listeners[0] if listeners else None
        self.broker_port = port
        self.workspace_path, self.home_path = paths.workspace, paths.home
        self.tmp_path, self.agent_path = paths.tmp, paths.agent
        # Only a box without a pid namespace has to be cleaned up: the kernel does not end its processes.
        self._clean_up = clean_up
        self._descriptors = handed.descriptors
        self._is_running = False
        self._is_over = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Use the box."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything in it and close its descriptors."""
        await self.close()

    async def run(self, start: AgentStart, *, extend: Callable[[], float] | None = None) -> BoxEnd:
        """Execute a program, wait for its end, and end what it leaves.

        At the deadline `extend` is asked for credited seconds; 0 ends the program. Raises ExecFailed if the
        kernel refuses to execute it, BoxFailed if nothing can be executed.
        """
        if self._is_over or self._is_running:
            raise BoxFailed("the box has ended, or a program runs in it")
        if len(start.streams) > _MOST_STREAMS:
            raise BoxFailed(f"a program in a box can have {_MOST_STREAMS} streams, not {len(start.streams)}")
        began = time.monotonic()
        self._is_running = True
        try:
            await self._execute(start)
            return await self._kept(start, began, extend)
        except Closed:
            await self.end_all()
            return BoxEnd(wall_seconds=time.monotonic() - began, lost=True)

    async def ask_to_end(self) -> None:
        """Send SIGTERM to the program that runs: its deadline is no longer waited for."""
        with suppress(Closed):
            await self._channel.send({protocol.TERMINATE: True})

    async def end_all(self) -> None:
        """End everything in the box; the descriptors stay open. Raises BoxFailed if that cannot be done."""
        if self._is_over:
            return
        self._is_over = True
        if self._clean_up is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        else:
            with suppress(Closed):
                if self._is_running:
                    await self._channel.send({protocol.CANCEL: True})
                await self._channel.send({protocol.LEAVE: True})
        # The first process of a pid namespace has ended only when all others have.
        try:
            await asyncio.wait_for(readable(self._process), _END_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            if self._clean_up is None:
                raise BoxFailed("the processes of a box cannot be ended") from None

    async def close(self) -> None:
        """End everything in the box, and close its descriptors."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.end_all()
            if self._clean_up is not None:
                await self._clean_up()
        finally:
            self._channel.close()
            os.close(self._process)
            if self._clean_up is None and any(map(_is_large, self._descriptors[:2])):
                # In a thread: with its last descriptor the kernel frees a directory in memory, and other
                # agents go on meanwhile.
                await asyncio.shield(asyncio.to_thread(_close_all, self._descriptors))
            else:
                _close_all(self._descriptors)

    async def _execute(self, start: AgentStart) -> None:
        message = protocol.RunInBox(argv=list(start.argv), env=dict(start.environment))
        await self._channel.send(message, start.streams)
        said, _ = await self._channel.receive()
        if protocol.ERROR in said:
            self._is_running = False
            if said.get("step") == "exec":
                raise ExecFailed(start.argv[0], said.get("errno"), said[protocol.ERROR])
            raise BoxFailed(f"cannot start a program in a box: {said[protocol.ERROR]}")

    async def _kept(self, start: AgentStart, began: float, extend: Callable[[], float] | None) -> BoxEnd:
        """Wait for the end of the program, at most until its deadline and its grace are over."""
        deadline = began + start.seconds
        while True:
            answer = await self._answer_within(deadline - time.monotonic())
            if answer is not None:
                return await self._ended(answer, timed_out=False)
            more = extend() if extend is not None else 0.0
            if more <= 0:
                break
            deadline += more
        await self._channel.send({protocol.TERMINATE: True})
        answer = await self._answer_within(start.grace_seconds)
        if answer is not None:
            return await self._ended(answer, timed_out=True)
        wall = time.monotonic() - began
        await self.end_all()
        return BoxEnd(signal="KILL", timed_out=True, wall_seconds=wall)

    async def _answer_within(self, seconds: float) -> dict[str, Any] | None:
        try:
            answer, _ = await asyncio.wait_for(self._channel.receive(), max(seconds, 0.0))
        except TimeoutError:
            return None
        if protocol.ERROR in answer:
            # The first process fails while a program runs: it is about to end, and everything with it.
            raise Closed(answer[protocol.ERROR])
        return answer

    async def _ended(self, answer: dict[str, Any], *, timed_out: bool) -> BoxEnd:
        self._is_running = False
        if not answer["fit"]:
            await self.end_all()
        number = answer.get("signal")
        return BoxEnd(
            exit_code=answer.get("exit"),
            signal=None if number is None else _name(number),
            timed_out=timed_out,
            left=answer["left"],
            wall_seconds=answer["wall"],
            ended_over=_CAPS.get(answer["over"]),
        )


def _is_large(directory: int) -> bool:
    """Say whether the file system of a directory holds so much that the kernel frees it for long."""
    there = os.fstatvfs(directory)
    return (there.f_blocks - there.f_bfree) * there.f_frsize > _WORTH_A_THREAD


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
