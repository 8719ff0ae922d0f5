"""A machine on which others take the time: everything on one processor, and programs that compute there.

Each of them has a session of its own: where the kernel groups tasks by session, each counts as much as the
whole tree of a rubric does, as all threads do in one group.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_COMPUTES = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass\n"


@contextmanager
def one_processor() -> Iterator[int]:
    """Have this process, and all that it starts meanwhile, on one processor."""
    before = os.sched_getaffinity(0)
    processor = min(before)
    os.sched_setaffinity(0, {processor})
    try:
        yield processor
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def busy_machine(others: int) -> Iterator[None]:
    """Share one processor with so many programs that compute without end; a minute at most."""
    with one_processor():
        argv = [sys.executable, "-S", "-c", _COMPUTES]
        programs = [subprocess.Popen(argv, start_new_session=True) for _ in range(others)]
        try:
            yield
        finally:
            for program in programs:
                program.kill()
                program.wait()
