"""How much address space one rubric may have, so that all rubrics that run at once fit into the machine."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from codegenie.eval.limits import LIMITS

_CGROUPS = Path("/sys/fs/cgroup")
# A group without a limit says "max"; in cgroup version 1 it is a number larger than any machine has.
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")


def memory_share(slots: int, memory: int | None = None) -> int:
    """Return the address space of one of this many rubrics: together they have at most half of the memory.

    The result is never less than an interpreter and some data need, however small the machine is. `memory` is
    by default the memory of this machine.
    """
    fair = (memory or min(memories())) // 2 // slots
    return max(LIMITS.least_child_address_space_bytes, min(LIMITS.child_address_space_bytes, fair))


def memories() -> Iterator[int]:
    """Yield the memory of the machine, and the memory limit of every control group that we are in."""
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
        # In a container this is the path on the host, but the group itself is mounted as the root.
        yield from (place, *(above for above in place.parents if above.is_relative_to(root)))
