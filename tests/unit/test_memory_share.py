"""All rubrics that run at once fit into half of the memory of the machine."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.isolation.memory_share import memories, memory_share
from codegenie.eval.limits import LIMITS

GIB = 1 << 30


@pytest.mark.parametrize(
    ("slots", "memory", "share"),
    [
        (2, 24 * GIB, 2 * GIB),
        (8, 24 * GIB, 24 * GIB // 16),
        (2, 4 * GIB, GIB),
        (2, GIB, GIB // 2),
        (256, 24 * GIB, GIB // 2),
    ],
)
def test_a_share_is_half_of_the_memory_divided_within_its_bounds(slots: int, memory: int, share: int) -> None:
    assert memory_share(slots, memory) == share


@given(slots=st.integers(1, LIMITS.concurrency), memory=st.integers(1 << 26, 1 << 44))
def test_shares_fit_together_into_half_of_the_memory_unless_they_are_the_least(
    slots: int, memory: int
) -> None:
    share = memory_share(slots, memory)
    assert LIMITS.least_child_address_space_bytes <= share <= LIMITS.child_address_space_bytes
    assert share == LIMITS.least_child_address_space_bytes or share * slots <= memory // 2


def test_the_memory_of_this_machine_is_among_what_is_asked() -> None:
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") in set(memories())
    assert memory_share(4) == memory_share(4, min(memories()))
