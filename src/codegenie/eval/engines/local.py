"""The local engine: a fixed set of workers that take items one by one and end together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from codegenie.eval.evidence import TrialEvidence, WorkItem
from codegenie.eval.ports import Measure
from codegenie.eval.stopping import all_ended

T = TypeVar("T")


class LocalEngine:
    """Measures in this process, with at most `concurrency` trials under way."""

    def __init__(self, measure: Measure, concurrency: int) -> None:
        self._measure = measure
        self._concurrency = concurrency

    async def measure(self, items: Iterable[WorkItem], keep: Callable[[TrialEvidence], None]) -> None:
        """Measure every item and hand its evidence to `keep`."""

        async def work(item: WorkItem) -> None:
            keep(await self._measure(item))

        await fan_out(items, work, self._concurrency)


async def fan_out(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Do `work` on every item with at most `concurrency` under way.

    Items are taken one by one when a worker is free: a task per item would cost 1.6 KB a case. The first
    exception cancels the other workers, waits for them and is raised as it was.
    """
    shared = iter(items)
    workers = [asyncio.ensure_future(_worker(shared, work)) for _ in range(concurrency)]
    try:
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for worker in workers:
            worker.cancel()
        await all_ended(workers)
    # Every exception is read: asyncio prints an unread one with its traceback when the loop ends.
    errors = [worker.exception() for worker in workers if not worker.cancelled()]
    for error in errors:
        if error is not None:
            raise error


async def _worker(items: Iterator[T], work: Callable[[T], Awaitable[None]]) -> None:
    for item in items:
        await work(item)
        # Work that finds everything in a store never waits. The loop needs this turn to handle signals.
        await asyncio.sleep(0)
