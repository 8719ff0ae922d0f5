"""The local engine: bounded, fed lazily, ended together."""

import asyncio
from collections.abc import Iterator

import pytest

from codegenie.eval.engines.local import fan_out
from codegenie.eval.stopping import Stop, all_ended


@pytest.mark.parametrize(("items", "concurrency"), [(0, 1), (1, 4), (20, 1), (20, 3), (3, 200)])
def test_every_item_is_worked_on_once_and_no_more_than_allowed_at_a_time(
    items: int, concurrency: int
) -> None:
    done: list[int] = []
    under_way = most = 0

    async def work(item: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        done.append(item)

    asyncio.run(fan_out(range(items), work, concurrency))

    assert sorted(done) == list(range(items))
    assert most == min(items, concurrency)


def test_an_item_is_taken_only_when_a_worker_is_free() -> None:
    taken: list[int] = []
    finished: list[int] = []

    def items() -> Iterator[int]:
        for item in range(30):
            assert len(taken) - len(finished) < 2
            taken.append(item)
            yield item

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        finished.append(item)

    asyncio.run(fan_out(items(), work, 2))
    assert finished == taken == list(range(30))


def test_work_that_never_waits_leaves_room_for_a_signal() -> None:
    done: list[int] = []
    heard_after: list[int] = []

    async def work(item: int) -> None:
        done.append(item)
        if item == 0:
            asyncio.get_running_loop().call_soon(lambda: heard_after.append(len(done)))

    asyncio.run(fan_out(range(1_000), work, 2))
    assert len(done) == 1_000
    assert heard_after[0] < 10


class OddError(Exception):
    pass


def test_the_first_error_ends_all_after_they_have_cleaned_up() -> None:
    cleaned: list[int] = []
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        try:
            if item == 1:
                await asyncio.sleep(0.01)
                raise OddError("as it was")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(item)

    with pytest.raises(OddError, match="as it was"):
        asyncio.run(fan_out(range(100), work, 3))
    assert sorted(begun) == sorted(cleaned) == [0, 1, 2]


def test_an_error_of_the_items_ends_all_as_well() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise OddError("no more")

    async def work(_item: int) -> None:
        await asyncio.sleep(0)

    with pytest.raises(OddError, match="no more"):
        asyncio.run(fan_out(items(), work, 2))


@pytest.mark.parametrize("times", [1, 2, 5])
def test_cancelling_waits_for_the_clean_up_however_often_it_is_done(times: int) -> None:
    cleaned: list[int] = []

    async def work(item: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(item)

    async def run() -> None:
        running = asyncio.ensure_future(fan_out(range(9), work, 3))
        await asyncio.sleep(0.01)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0.005)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert sorted(cleaned) == [0, 1, 2]


def test_waiting_for_the_end_tells_of_its_own_cancellation_afterwards() -> None:
    async def run() -> bool:
        task = asyncio.ensure_future(asyncio.sleep(0.05))
        waiting = asyncio.ensure_future(all_ended([task]))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return task.done()

    assert asyncio.run(run())


def test_stopping_agents_leaves_rubrics_alone_and_stopping_everything_does_not() -> None:
    async def run() -> list[object]:
        stop = Stop()
        agent = asyncio.ensure_future(stop.unless_agents_stop(asyncio.sleep(3600, "agent")))
        rubric = asyncio.ensure_future(stop.unless_everything_stops(asyncio.sleep(0.02, "rubric")))
        slow_rubric = asyncio.ensure_future(stop.unless_everything_stops(asyncio.sleep(3600, "slow")))
        await asyncio.sleep(0)
        results: list[object] = [stop.requested]
        stop.agents("first")
        results += [stop.requested, await agent, await rubric]
        stop.everything("second")
        return [*results, await slow_rubric, stop.reason]

    assert asyncio.run(run()) == [False, True, None, "rubric", None, "first"]


def test_what_work_raises_is_raised() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise OddError("through")

    with pytest.raises(OddError, match="through"):
        asyncio.run(Stop().unless_agents_stop(work()))


async def cancels_itself() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("by_the_stop", "by_another", "raises"),
    [(True, False, False), (True, True, True), (False, True, True), (False, False, False)],
    ids=["the stop", "both", "another task", "the work itself"],
)
def test_cancelled_work_is_no_error_unless_another_task_has_cancelled_it(
    by_the_stop: bool, by_another: bool, raises: bool
) -> None:
    async def run() -> None:
        stop = Stop()
        waits = by_the_stop or by_another
        work = asyncio.sleep(3600, "done") if waits else cancels_itself()
        task = asyncio.ensure_future(stop.unless_agents_stop(work))
        await asyncio.sleep(0)
        if by_the_stop:
            stop.agents("enough")
        if by_another:
            task.cancel()
        if raises:
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task is None
            assert task.cancelling() == 0

    asyncio.run(run())
