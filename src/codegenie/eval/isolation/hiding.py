"""Hides the memory and the environment of this process from other programs of its user during a run.

An agent is such a program. The kernel then denies it `/proc/PID/environ`, `/proc/PID/mem`, `/proc/PID/root`
and ptrace (PR_SET_DUMPABLE 0). An agent that runs as root is not stopped by this.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from codegenie.eval.isolation.confinement import syscalls

_lock = threading.Lock()
# This is one property of the whole process. Several runs in it, in one or more threads, are counted.
_runs_under_way = 0


def hide() -> None:
    """Hide this process until `unhide` was called as often as `hide`."""
    _count(1)


def unhide() -> None:
    """Take back one call of `hide`."""
    _count(-1)


@contextmanager
def seen() -> Iterator[None]:
    """Let the probe of a proof inspect this process: the control of the proof has to succeed."""
    with _lock:
        _set_dumpable(dumpable=True)
    try:
        yield
    finally:
        _count(0)


def _count(change: int) -> None:
    global _runs_under_way  # noqa: PLW0603 - the property belongs to the process, and so does its count
    with _lock:
        _runs_under_way += change
        _set_dumpable(dumpable=_runs_under_way == 0)


def _set_dumpable(*, dumpable: bool) -> None:
    if syscalls.supported():
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, int(dumpable))
