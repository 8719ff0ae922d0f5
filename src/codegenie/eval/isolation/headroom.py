"""How many more processes and threads the user of this run may start, and how many the run may need.

The kernel counts every thread of a user, over all namespaces, against `ulimit -u`. A run that could reach
this limit would lose cases, and other programs of the user would fail. It is refused before its first case.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.isolation.confinement.namespaces import USER
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.scheduling import process_numbers

# A rubric needs its threads, itself and its zygote or supervisor; an agent needs itself and a supervisor.
_TASKS_OF_A_SLOT = LIMITS.child_threads + 4
# The guardian and the processes of the proof.
_TASKS_OF_A_RUN = 8


def most_tasks(kept: int = LIMITS.user_tasks_kept) -> int | None:
    """Return the number of tasks from which on a run starts no more; the rest is for other programs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else max(soft - kept, 1)


def check_headroom(asked_for: str, slots: int) -> None:
    """Raise HarnessFailure if a run with this many slots can need more processes than its user may start."""
    user, most = _who_is_counted(asked_for), most_tasks()
    if user is None or most is None:
        return
    needed, used = slots * _TASKS_OF_A_SLOT + _TASKS_OF_A_RUN, sum(_threads_of(user))
    if most - used < needed:
        raise HarnessFailure(
            f"{slots} cases at once may need {needed} processes and threads, and user {user} can have"
            f" {max(most - used, 0)} more: {used} exist, {LIMITS.user_tasks_kept} are kept for others,"
            f" and the limit is {most + LIMITS.user_tasks_kept}",
            hint="lower --concurrency, end other programs of this user, or raise the limit with `ulimit -u`",
        )


def _who_is_counted(asked_for: str) -> int | None:
    """Return the user whose processes the kernel will count. Rubrics of root run as a user of their own."""
    user = os.getuid()
    if user != 0 or not _is_root_of_the_machine():
        return user
    return USER if asked_for in {"auto", "namespace"} else None


def _is_root_of_the_machine() -> bool:
    """Whether user 0 is root outside as well. In a container it may be an ordinary user with a limit."""
    with suppress(OSError):
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split()[:2] == ["0", "0"]
    return True


def _threads_of(user: int) -> Iterator[int]:
    for number in process_numbers():
        with suppress(OSError, KeyError, ValueError):
            status = Path(f"/proc/{number}/status").read_text(encoding="utf-8", errors="replace")
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if int(fields["Uid"].split()[0]) == user:
                yield int(fields["Threads"])
