"""Has the branches of tests counted, and not those of the commands that tests start."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import coverage

_FOR_CHILDREN = "COVERAGE_PROCESS_CONFIG"


def measure_no_children() -> None:
    """Have no child measured: that takes a third of a second of each, and there are thousands."""
    os.environ.pop(_FOR_CHILDREN, None)


@contextmanager
def not_measured() -> Iterator[None]:
    """Count no branches for a while."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.stop()
    yield
    if measuring is not None:
        # It starts as it did at first, and so it asks again for measured children.
        measuring.start()
        measure_no_children()


def keep_what_was_measured() -> None:
    """Write down what was measured: a worker that is slow to end after its last test is killed."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.save()
