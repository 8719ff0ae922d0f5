"""A caller's own object as system under test: trusted code, in our process, kept off our event loop.

Each call runs on a thread of its own with its own event loop (ADR-0010): a call that blocks, exits or
swallows its cancellation holds up that thread and nobody else. The deadline is ours; a thread that misses
it is left behind and its late result is never read.
"""

import asyncio
import contextlib
import inspect
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SystemUnderTest
from codegenie.eval.suts.encoding import encode_result
from codegenie.eval.suts.results import read_result


class _CallThread:
    """One daemon thread that makes calls one after the other."""

    def __init__(self, system: SystemUnderTest) -> None:
        self._system = system
        self._calls: SimpleQueue[tuple[SutCase, Future[bytes]] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[bytes] | None = None
        threading.Thread(target=self._serve, name="codegenie-sut", daemon=True).start()

    def call(self, case: SutCase) -> Future[bytes]:
        """Start a call; the future holds the encoded result or whatever was raised."""
        future: Future[bytes] = Future()
        self._calls.put((case, future))
        return future

    def abandon(self) -> None:
        """Ask the call to stop, and let the thread end when it does, if it ever does."""
        self._calls.put(None)
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            case, future = item
            try:
                future.set_result(self._call_once(case))
            except BaseException as error:  # noqa: BLE001 - SystemExit of foreign code ends a case, not us
                future.set_exception(error)

    def _call_once(self, case: SutCase) -> bytes:
        # A loop for each call: nothing that one case left running is there for the next.
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            return runner.run(self._answer(case))

    async def _answer(self, case: SutCase) -> bytes:
        self._task = asyncio.current_task()
        returned: object = self._system(case)
        return encode_result(await returned if inspect.isawaitable(returned) else returned)


class InProcessSut:
    """Asks a caller's object, one thread per call under way."""

    boundary: SutBoundary = "in-process"
    wants_input = True

    def __init__(self, system: SystemUnderTest) -> None:
        kind = system if inspect.isroutine(system) else type(system)
        self.identity = SutIdentity(spec=f"in-process:{kind.__module__}.{kind.__qualname__}")
        self._system = system
        self._idle: list[_CallThread] = []

    async def prepare(self) -> None:
        """Need nothing: the object is there."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return the object's output, or a fault for whatever it did instead."""
        thread = self._idle.pop() if self._idle else _CallThread(self._system)
        call = asyncio.wrap_future(thread.call(case))
        try:
            done, _ = await asyncio.wait({call}, timeout=seconds)
        except asyncio.CancelledError:
            thread.abandon()
            raise
        if not done:
            thread.abandon()
            return SutFault("sut.timeout", f"no result within {seconds:g} s")
        self._idle.append(thread)
        return _read(call)

    async def close(self) -> None:
        """Let the idle threads end."""
        while self._idle:
            self._idle.pop().abandon()


def _read(call: "asyncio.Future[bytes]") -> SutAnswer | SutFault:
    if call.cancelled():
        return SutFault("sut.exception", "CancelledError")
    error = call.exception()
    if error is not None:
        return SutFault("sut.exception", f"{type(error).__name__}: {error}")
    return read_result(call.result())
