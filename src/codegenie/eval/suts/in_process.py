"""A caller's own object as system under test: trusted code in our process, but not on our event loop.

Each call runs on its own thread with its own event loop (ADR-0010): a call that blocks, exits or ignores its
cancellation delays only that thread. The harness enforces the deadline. A thread that misses it is abandoned,
and its late result is never read.
"""

import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SutRunner, SystemUnderTest
from codegenie.eval.sanitising import Redactor, one_line
from codegenie.eval.suts.raised import OwnCode, Raised, attempted, describe, guarded
from codegenie.eval.suts.result_reader import fault_of, read_result
from codegenie.eval.suts.result_writer import NothingReturned, encode_result


@dataclass(frozen=True, slots=True)
class _Returned:
    """The result of a call and its time: encoded bytes, or a description of an error. No foreign object."""

    result: bytes
    error: Raised | None
    at: float


class _CallThread:
    """One daemon thread that makes one call after another."""

    def __init__(self, system: SystemUnderTest, own: OwnCode) -> None:
        self._system = system
        self._own = own
        self._calls: SimpleQueue[tuple[SutCase, Future[_Returned]] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[bytes] | None = None
        self._abandoned = False
        try:
            threading.Thread(target=self._serve, name="codegenie-sut", daemon=True).start()
        except RuntimeError as error:
            raise HarnessFailure(f"cannot start a thread: {error}", hint="lower --concurrency") from None

    def call(self, case: SutCase) -> Future[_Returned]:
        """Start a call."""
        future: Future[_Returned] = Future()
        self._calls.put((case, future))
        return future

    def abandon(self) -> None:
        """Ask the call to stop, and let the thread end when it does, if it ever does."""
        self._abandoned = True
        self._calls.put(None)
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            case, future = item
            # False if the call was given up before it began. From here on it can only be abandoned.
            if future.set_running_or_notify_cancel():
                future.set_result(self._outcome(case))

    def _outcome(self, case: SutCase) -> _Returned:
        result, error = attempted(lambda: self._call_once(case))
        nothing = isinstance(error, NothingReturned)
        raised = None if error is None else describe(error, self._own, returned_nothing=nothing)
        return _Returned(result or b"", raised, time.monotonic())

    def _call_once(self, case: SutCase) -> bytes:
        # Each call has its own loop: a task that one case left running does not reach the next.
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            return runner.run(self._answer(case))

    async def _answer(self, case: SutCase) -> bytes:
        self._task = asyncio.current_task()
        if self._abandoned:  # it was given up before there was a task to cancel
            raise asyncio.CancelledError
        returned: object = self._system(case)
        return encode_result(await returned if inspect.isawaitable(returned) else returned)


class ForeignSut(SutRunner):
    """A runner from a caller: foreign code in our process, whatever boundary it claims."""

    boundary: SutBoundary = "in-process"

    def __init__(self, runner: SutRunner) -> None:
        self.identity = runner.identity
        self.wants_input = runner.wants_input
        self._runner = runner

    async def prepare(self) -> None:
        """Let it prepare."""
        await self._runner.prepare()

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Let it answer."""
        return await self._runner.ask(case, seconds)

    async def close(self) -> None:
        """Let it close."""
        await self._runner.close()


class InProcessSut(SutRunner):
    """Asks a caller's object, one thread per call under way."""

    boundary: SutBoundary = "in-process"
    wants_input = True

    def __init__(self, system: SystemUnderTest) -> None:
        kind = system if inspect.isroutine(system) else type(system)
        self.identity = SutIdentity(spec=one_line(f"in-process:{kind.__module__}.{kind.__qualname__}"))
        self._system = system
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
        self._own = OwnCode(guarded(os.getcwd, os.path.dirname(file)), file)
        self._redactor = Redactor(os.environ)
        self._idle: list[_CallThread] = []

    async def prepare(self) -> None:
        """Do nothing: the object is ready."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return the object's output, or a fault if there is none."""
        thread = self._idle.pop() if self._idle else _CallThread(self._system, self._own)
        deadline = time.monotonic() + seconds
        call = asyncio.wrap_future(thread.call(case))
        returned: _Returned | None = None
        try:
            await asyncio.wait({call}, timeout=seconds)
            returned = call.result() if call.done() else None
        finally:
            if returned is None:
                call.cancel()
                thread.abandon()
            else:
                self._idle.append(thread)
        # The thread took this time itself: our loop may have been busy when the deadline passed.
        if returned is None or returned.at > deadline:
            return SutFault("sut.timeout", f"no result within {seconds:g} s")
        if returned.error is not None:
            return fault_of(returned.error, self._redactor)
        return read_result(returned.result)

    async def close(self) -> None:
        """Let the idle threads end."""
        while self._idle:
            self._idle.pop().abandon()
