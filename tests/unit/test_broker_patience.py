"""How long a broker waits for a provider, and how much of that time is counted."""

import asyncio

import pytest

from codegenie.eval.broker.patience import Patience, stated_pause
from tests.support.broker_lines import TestClock

TODAY = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (["30"], 30.0),
        ([" 0 "], 0.0),
        (["Tue, 14 Nov 2023 22:13:50 GMT"], 30.0),
        (["Tue, 14 Nov 2023 22:00:00 GMT"], 0.0),
        ([], None),
        (["soon"], None),
        (["-5"], None),
        (["1e9"], None),
        (["٣"], None),
        (["9" * 400], None),
        (["Tue, 99 Nov 2023 22:00:00 GMT"], None),
    ],
    ids=repr,
)
def test_a_retry_after_is_seconds_or_a_date_and_anything_else_is_unknown(
    values: list[str], seconds: float | None
) -> None:
    assert stated_pause(values, TODAY) == seconds


def waits(seconds: float, *stated: float | None) -> tuple[list[float], Patience]:
    """Wait after each try of a request until the patience is over; return the pauses."""

    async def play() -> tuple[list[float], Patience]:
        clock = TestClock()
        patience = Patience(seconds, clock, lambda: None)
        for tries in range(1, 100):
            said = stated[tries - 1] if tries <= len(stated) else None
            pause = patience.pause(tries, said, clock.now())
            if pause is None:
                break
            await patience.wait(pause, clock.now())
        return clock.slept, patience

    return asyncio.run(play())


def test_pauses_double_up_to_a_minute_and_end_with_the_patience() -> None:
    pauses, patience = waits(600.0)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 57]
    assert (patience.waited, patience.is_over) == (600.0, True)


def test_a_stated_pause_is_kept_but_for_less_than_a_second_and_more_than_is_left() -> None:
    pauses, patience = waits(100.0, 0.0, 30.0, 86400.0)

    assert pauses == [1.0, 30.0, 69.0]
    assert patience.is_over


def test_without_patience_there_is_no_wait() -> None:
    assert waits(0.0)[0] == []


def test_two_requests_that_wait_at_once_use_the_time_once() -> None:
    class Gate:
        """A clock whose sleepers wake when the test says so."""

        time = 0.0

        def __init__(self) -> None:
            self.sleeping: list[asyncio.Event] = []

        def now(self) -> float:
            return self.time

        def today(self) -> float:
            return TODAY

        async def sleep(self, _seconds: float) -> None:
            self.sleeping.append(asyncio.Event())
            await self.sleeping[-1].wait()

    async def play() -> list[float]:
        clock = Gate()
        told: list[int] = []
        patience = Patience(600.0, clock, lambda: told.append(patience.waiting))
        first = asyncio.create_task(patience.wait(10, failed_from=0.0))
        await asyncio.sleep(0)
        clock.time = 4.0
        second = asyncio.create_task(patience.wait(10, failed_from=3.0))
        await asyncio.sleep(0)
        found = [patience.waited]
        clock.time = 10.0
        clock.sleeping[0].set()
        await first
        found.append(patience.waited)
        clock.time = 14.0
        clock.sleeping[1].set()
        await second
        clock.time = 20.0
        found.append(patience.waited)
        assert told == [1, 2, 1, 0]
        return found

    assert asyncio.run(play()) == [4.0, 10.0, 14.0]


def test_the_time_of_a_try_that_failed_is_waiting_too() -> None:
    async def play() -> float:
        clock = TestClock()
        patience = Patience(600.0, clock, lambda: None)
        began = clock.now()
        clock.time += 25  # the provider took its time to say 503
        await patience.wait(5, began)
        return patience.waited

    assert asyncio.run(play()) == 30.0


def test_a_request_that_is_given_up_while_it_waits_is_counted_up_to_then() -> None:
    async def play() -> tuple[float, int]:
        class Forever(TestClock):
            async def sleep(self, _seconds: float) -> None:
                self.time += 7
                await asyncio.Event().wait()

        patience = Patience(600.0, Forever(), lambda: None)
        task = asyncio.create_task(patience.wait(60, 1000.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return patience.waited, patience.waiting

    assert asyncio.run(play()) == (7.0, 0)
