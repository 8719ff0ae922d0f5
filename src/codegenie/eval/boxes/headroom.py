"""How many agents fit at once, by the processes of their user, the harness's open files and the memory."""

import os

from codegenie.eval.boxes.places import USER
from codegenie.eval.boxes.request import BoxLimits
from codegenie.eval.isolation.headroom import check_tasks, slots_by_files, tasks_left
from codegenie.eval.isolation.memory_share import memories

# An agent that is written for node has some 25 threads before it does anything. Two more processes are the
# first process of its box and the program itself. What is beyond that is the agent's own, up to its cap.
_TASKS_OF_A_BOX = 34
# The box server and the processes of the proof.
_TASKS_OF_ALL = 8


def check_box_headroom(slots: int) -> None:
    """Raise HarnessFailure if this many agents at once can need more processes than their user may start."""
    check_tasks(f"{slots} agents at once", slots * _TASKS_OF_A_BOX + _TASKS_OF_ALL, _user())


def boxes_at_once() -> dict[str, int | None]:
    """Count how many boxes fit on this machine now, by each thing that they need. None means no limit."""
    left = tasks_left(_user())
    return {
        "by_processes": None if left is None else max(left - _TASKS_OF_ALL, 0) // _TASKS_OF_A_BOX,
        "by_open_files": slots_by_files(),
        # If each takes all the memory that it may have by default. Most take less, so no run is refused.
        "by_memory": min(memories()) // BoxLimits().memory_total_bytes,
    }


def _user() -> int:
    """Return whose processes the kernel counts: those of root's boxes have a user of their own."""
    return os.getuid() or USER
