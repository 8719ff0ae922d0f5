"""Laws are not measured: each calls the same lines hundreds of times, and measuring doubles the time."""

from collections.abc import Iterator

import coverage
import pytest


@pytest.fixture(autouse=True, scope="module")
def _unmeasured() -> Iterator[None]:
    measuring = coverage.Coverage.current()
    if measuring is None:
        yield
        return
    measuring.stop()
    yield
    measuring.start()
