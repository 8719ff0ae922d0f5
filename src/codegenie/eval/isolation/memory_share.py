"""How much address space one rubric may have, so that all that run at once fit the machine."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from codegenie.eval.limits import LIMITS

_CGROUPS = Path("/sys/fs/cgroup")
# A group without a limit says "max", in the first version a number larger than any machine has.
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")


def memory_share(slots: int, memory: int | None = None) -> int:
    """Return the address space of one of so many rubrics: together they have half of the memory at most.

    Never less than an interpreter and some data need, however small the machine is. `memory` is that of this
    machine unless it is given.
    """
    fair = (memory or min(memories())) // 2 // slots
    return max(LIMITS.least_child_address_space_bytes, min(LIMITS.child_address_space_bytes, fair))


def memories() -> Iterator[int]:
    """Yield the memory of the machine, and every limit on it of a control group that we are in."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in _own_groups():
        for name in _LIMIT_FILES:
            with contextlib.suppress(OSError, ValueError):
                yield int((group / name).read_text(encoding="ascii"))


def _own_groups() -> Iterator[Path]:
    """Yield the directories of the control groups that we are in, and those above them."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = _CGROUPS / controllers if controllers else _CGROUPS
        place = root / path.lstrip("/")
        # In a container the path is that of the host, and the group is mounted as the root.
        yield from (place, *(above for above in place.parents if above.is_relative_to(root)))
