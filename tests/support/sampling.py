"""Which tests `make test` leaves to `make test-all`, and which of them share one worker.

A test that carries `all_ways` repeats a fact in another way: in another isolation class, by another way to
start, with another row of the same kind. `make test` does not select it; `make test-all` selects everything.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")

# What they need there is one of: a processor, the numbers of processes, and what the kernel counts by user.
one_machine = pytest.mark.xdist_group("machine")


def one_worker(module: str) -> pytest.MarkDecorator:
    """Return the mark of a module whose fixtures are expensive: one worker runs it, and makes them once."""
    return pytest.mark.xdist_group(module)


def sampled(
    values: Iterable[Value], in_every_run: Callable[[Value], bool], name: Callable[[Value], str] = str
) -> list[Any]:
    """Return the values as parameters; those that not every run needs are left to `make test-all`."""
    return [
        pytest.param(value, id=name(value), marks=() if in_every_run(value) else pytest.mark.all_ways)
        for value in values
    ]
