"""The machine's clocks."""

import datetime as dt
import time


class SystemClock:
    """The machine's clocks."""

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        """Return seconds that never step."""
        return time.monotonic()
