"""The request to end a run early, and the cost cap that makes such a request."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from codegenie.eval.wording import counted

T = TypeVar("T")


class Stop:
    """A request to end the run early. It says how much of the work in progress is cancelled."""

    def __init__(self) -> None:
        self._agents = _Switch()
        self._everything = _Switch()
        self.reason = "stopped"

    def agents(self, reason: str) -> None:
        """Cancel systems under test. Rubrics of outputs that are already paid for may finish."""
        if not self._agents.on:
            self.reason = reason
        self._agents.turn_on()

    def everything(self, reason: str) -> None:
        """Cancel all work in progress."""
        self.agents(reason)
        self._everything.turn_on()

    @property
    def requested(self) -> bool:
        """Whether no new work may start."""
        return self._agents.on

    async def unless_agents_stop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a system under test's work, or None if it was cancelled."""
        return await self._agents.unless_on(work)

    async def unless_everything_stops(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a rubric's work, or None if it was cancelled."""
        return await self._everything.unless_on(work)


class _Switch:
    """Is turned on once. It then cancels the tasks that wait inside it.

    It cancels the tasks themselves and not a new task around each piece of work: two tasks and an event for
    every piece take a tenth of a millisecond, which is more than validation takes.
    """

    def __init__(self) -> None:
        self.on = False
        self._working: set[asyncio.Task[Any]] = set()

    def turn_on(self) -> None:
        working, self._working = self._working, set()
        self.on = True
        for task in working:
            task.cancel()

    async def unless_on(self, work: Coroutine[Any, Any, T]) -> T | None:
        task = asyncio.current_task()
        if self.on or task is None:
            work.close()
            return None
        self._working.add(task)
        try:
            # Ending a process tree takes a moment. The slot is not free before this is over.
            return await work
        except asyncio.CancelledError:
            cancelled_by_switch = task not in self._working
            others = task.uncancel() if cancelled_by_switch else task.cancelling()
            cancelled_by_others = others > 0
            if cancelled_by_others:
                raise
            # Only the switch has cancelled the work; or the work has cancelled itself, which also ends it.
            return None
        finally:
            self._working.discard(task)


async def all_ended(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Wait until every task has ended, however often the wait is cancelled. Then raise the cancellation.

    Only for tasks that were cancelled and that end in bounded time: leaving them would leave processes.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that takes a bounded time, although the caller is cancelled meanwhile.

    For what an agent has finished: if it were lost, the agent would be asked, and paid, a second time.
    """
    task, caller = asyncio.ensure_future(work), asyncio.current_task()
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            if caller is not None:
                caller.uncancel()
    return task.result()


class Budget:
    """What the systems under test have spent so far. A cost is counted as soon as it is reported."""

    def __init__(self, cap_usd: float | None, stop: Stop, *, must_be_known: bool = False) -> None:
        self._cap = cap_usd
        self._stop = stop
        # Whether a call of unknown cost ends the run: an agent that calls a model may cost anything.
        self._must_be_known = must_be_known
        self._spent = 0.0
        self._calls = 0

    def charge(self, cost_usd: float | None) -> None:
        """Add a cost. At the cap, running agents are stopped and no new one is started."""
        self._spent += cost_usd or 0.0
        self._calls += 1
        # A cap of 0 allows only agents that cost nothing; the first cent reaches it.
        if self._cap is not None and self._spent and self._spent >= self._cap:
            self._stop.agents(f"cost cap of {self._cap:g} USD reached")
        elif self._cap is not None and cost_usd is None and self._must_be_known:
            was_run = f"{counted(self._calls, 'case')} {'was' if self._calls == 1 else 'were'} run"
            self._stop.agents(f"cost cap without stated cost: {was_run}")
