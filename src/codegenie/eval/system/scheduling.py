"""The processor time of processes, from the kernel: how long they ran, how long they waited, and where.

It is read from outside: what a process reports about itself does not count. Where the kernel reports nothing,
no process has waited.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from codegenie.eval.limits import LIMITS

# Less than this is normal on any machine: a thread that wakes up waits for a processor.
_LEAST_SECONDS = 0.05
_NANOSECONDS = 1e9
# The fields of /proc/PID/stat after the name; the times are those of its threads and of ended children.
_STATE, _PARENT, _SESSION, _TIMES = 0, 1, 3, slice(11, 15)


@dataclass(frozen=True, slots=True)
class TimeShare:
    """The seconds that a group of processes ran on processors, and the seconds that they waited for one."""

    given: float
    withheld: float


def time_share(numbers: Iterable[int]) -> TimeShare:
    """Return how long these processes ran, and for how long the machine had no processor for them."""
    given = 0.0
    threads: list[tuple[float, float]] = []
    for number in numbers:
        # A process that has just ended waits no longer.
        with suppress(OSError, ValueError, IndexError):
            ticks = sum(int(field) for field in _fields(number)[_TIMES])
            given += ticks / os.sysconf("SC_CLK_TCK")
            threads += [_times_of(number, thread) for thread in os.listdir(f"/proc/{number}/task")]
    # While a thread waited, other threads of the same group may have run. The machine did not cause that
    # wait. Threads that have ended are counted, too, because the kernel keeps the sum.
    withheld = (waited - max(given - ran, 0.0) for ran, waited in threads)
    return TimeShare(given, max(0.0, max(withheld, default=0.0)))


def _times_of(number: int, thread: str) -> tuple[float, float]:
    """Return how long a thread has run, and how long it was ready and waited for a processor."""
    with open(f"/proc/{number}/task/{thread}/schedstat", encoding="ascii") as file:
        ran, waited, _ = file.read().split()
    return int(ran) / _NANOSECONDS, int(waited) / _NANOSECONDS


def state(number: int) -> str:
    """Return the letter of a process's state: R runs or waits for a processor, T is stopped; "" has ended."""
    with suppress(OSError, IndexError):
        return _fields(number)[_STATE]
    return ""


def parent(number: int) -> int:
    """Return the number of a process's parent, 0 if the process has ended."""
    with suppress(OSError, IndexError):
        return int(_fields(number)[_PARENT])
    return 0


def session(leader: int) -> list[int]:
    """Return the processes of a session."""
    return [number for number in process_numbers() if _session(number) == leader]


def process_numbers() -> list[int]:
    """Return the numbers of all processes that we can see; none if there is no /proc."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def _session(number: int) -> int:
    with suppress(OSError, IndexError):
        return int(_fields(number)[_SESSION])
    return 0


def _fields(number: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may hold any characters."""
    with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


class Deadline:
    """The time of one process: its seconds, and the time that the machine withheld, up to a multiple."""

    def __init__(self, seconds: float) -> None:
        self._longest = seconds * (LIMITS.deadline_stretch - 1)
        self._granted = 0.0
        self.starved: TimeShare | None = None
        """Set if the multiple is reached and the machine still withholds time: the machine is at fault."""

    def more(self, share: TimeShare) -> float:
        """Return how many more seconds a process gets at its deadline; 0 ends it."""
        missing = share.withheld - self._granted
        if missing < _LEAST_SECONDS:
            return 0.0
        left = self._longest - self._granted
        if left < _LEAST_SECONDS:
            self.starved = share
            return 0.0
        more = min(missing, left)
        self._granted += more
        return more


class Processors:
    """The processors of this process, divided evenly: each share has as few users as possible."""

    def __init__(self, slots: int) -> None:
        available = sorted(os.sched_getaffinity(0))
        count = min(slots, len(available))
        cuts = [len(available) * cut // count for cut in range(count + 1)]
        self._shares = [frozenset(available[cuts[i] : cuts[i + 1]]) for i in range(count)]
        self._users = [0] * count

    @contextmanager
    def share(self) -> Iterator[frozenset[int]]:
        """Lend the share with the fewest users."""
        which = self._users.index(min(self._users))
        self._users[which] += 1
        try:
            yield self._shares[which]
        finally:
            self._users[which] -= 1
