"""The room for bodies in a broker: the first that waits is served first, and none is lost."""

import asyncio

import pytest

from codegenie.eval.broker.line import ByteBudget

pytestmark = pytest.mark.asyncio


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_finds_no_room_waits_in_its_order_and_a_small_one_does_not_overtake() -> None:
    budget = ByteBudget(10)
    served: list[str] = []

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        served.append(name)

    await budget.take(8)
    tasks = [asyncio.create_task(take(name, size)) for name, size in (("large", 6), ("small", 1))]
    await turn()
    before = list(served)
    budget.give(8)
    await asyncio.gather(*tasks)

    assert (before, served) == ([], ["large", "small"])


async def test_room_of_a_request_that_was_given_up_is_free_again() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    waiting = [asyncio.create_task(budget.take(10)) for _ in range(3)]
    await turn()
    waiting[0].cancel()
    await turn()
    budget.give(10)  # the second has it now, and is given up before it knows
    waiting[1].cancel()
    await asyncio.gather(*waiting[:2], return_exceptions=True)

    async with asyncio.timeout(60):
        await waiting[2]
