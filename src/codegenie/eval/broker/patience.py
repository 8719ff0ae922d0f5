"""How long the broker waits for a provider that is busy or away, and how much of that time was waiting.

Several requests of one box may wait at once. The time in which at least one of them waits is counted once,
because it is taken from the agent's deadline once.
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Protocol

ASKED_AGAIN = frozenset({429, 500, 502, 503, 504, 529})
_LEAST_PAUSE = 1.0
_PAUSE_SECONDS = 60.0
_RETRY_AFTER_CHARACTERS = 64


class Clock(Protocol):
    """What tells the time and lets it pass."""

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    def today(self) -> float:
        """Return seconds since 1970, for dates that a server names."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class MachineClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Return the monotonic clock, which all processes of the machine share."""
        return time.monotonic()

    def today(self) -> float:
        """Return the time of day."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def stated_pause(values: list[str], today: float) -> float | None:
    """Read a `retry-after`: seconds, or a date. None if it says nothing that can be kept."""
    text = values[0].strip() if values else ""
    if not text or len(text) > _RETRY_AFTER_CHARACTERS:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - today)
    except (ValueError, OverflowError):
        return None


class Patience:
    """What one box may wait in all. `changed` is called when waiting begins and when it ends."""

    def __init__(self, seconds: float, clock: Clock, changed: Callable[[], None]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._changed = changed
        self._counted = 0.0
        self._last_end = float("-inf")
        self._since = 0.0
        self.waiting = 0
        self.is_over = False

    @property
    def waited(self) -> float:
        """Seconds in which at least one request waited, up to now."""
        return self._counted + (self._clock.now() - self._since if self.waiting else 0.0)

    def pause(self, tries: int, stated: float | None, failed_from: float) -> float | None:
        """Return how long to wait after so many tries that failed, or None if the patience is over.

        The last try began at `failed_from`; its time counts as waiting.
        """
        used = self.waited if self.waiting else self._counted + self._clock.now() - self._start(failed_from)
        left = self._seconds - used
        if left <= 0:
            self.is_over = True
            return None
        wanted = stated if stated is not None else min(2.0 ** min(tries - 1, 10), _PAUSE_SECONDS)
        return min(max(wanted, _LEAST_PAUSE), left)

    async def wait(self, seconds: float, failed_from: float) -> None:
        """Wait, and count the time from the beginning of the try that failed."""
        start = self._start(failed_from)
        self._since = min(self._since, start) if self.waiting else start
        self.waiting += 1
        self._changed()
        try:
            await self._clock.sleep(seconds)
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._last_end = self._clock.now()
                self._counted += self._last_end - self._since
            self._changed()

    def _start(self, failed_from: float) -> float:
        return max(failed_from, self._last_end)
