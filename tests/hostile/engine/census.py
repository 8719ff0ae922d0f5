"""Counts from outside what a run holds: its processes, their threads and their memory, at their highest."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Peak:
    """The most of each that was seen at one time."""

    processes: int = 0
    threads: int = 0
    address_space: int = 0
    shared: int = 0

    def look(self) -> None:
        """Count once more."""
        found = descendants(os.getpid())
        memory = [_words(pid, "statm") for pid in found]
        self.processes = max(self.processes, len(found))
        self.threads = max([self.threads, *(_threads(pid) for pid in found)])
        self.address_space = max(self.address_space, sum(int(words[0]) * PAGE for words in memory if words))
        self.shared = max(self.shared, sum(int(words[2]) * PAGE for words in memory if words))


@contextmanager
def census() -> Iterator[Peak]:
    """Count what is below this process again and again."""
    peak, done = Peak(), threading.Event()

    def work() -> None:
        while not done.wait(0.02):
            peak.look()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def descendants(ancestor: int) -> set[int]:
    """Return the numbers of all processes below one, as this process sees them."""
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found: set[int] = set()
    level = {ancestor}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level and pid not in found}
        found |= level
    return found


def state(pid: int) -> str:
    """Return the letter of a process's state; of one that is gone, none."""
    words = _after_the_name(pid)
    return words[0] if words else ""


def all_gone(pids: set[int], seconds: float) -> set[int]:
    """Wait until all of these have ended, or the time is up; return those that have not."""
    deadline = time.monotonic() + seconds
    while (left := {pid for pid in pids if state(pid) not in {"", "Z", "X"}}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _after_the_name(pid: int) -> list[str]:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return []


def _parent(pid: int) -> int:
    words = _after_the_name(pid)
    return int(words[1]) if words else 0


def _threads(pid: int) -> int:
    words = _after_the_name(pid)
    return int(words[17]) if words else 0


def _words(pid: int, file: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").split()
    except OSError:
        return []
