"""How many processes and threads the user of this run may still have, and how many the run may need.

The kernel counts every thread of a user, over all namespaces, against `ulimit -u`. A run that could use up
what is left would lose cases, and other programs of the user with it: it is refused before its first case.
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

# For each rubric its threads, itself and its zygote or keeper; for each agent its keeper and itself.
_TASKS_OF_A_SLOT = LIMITS.child_threads + 4
# The guardian, and what the proof starts.
_TASKS_OF_A_RUN = 8


def most_tasks(kept: int = LIMITS.user_tasks_kept) -> int | None:
    """Return how many tasks a user may have for a process to start one more; the rest is kept for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else max(soft - kept, 1)


def check_headroom(asked_for: str, slots: int) -> None:
    """Refuse a run of so many rubrics at once if its user may not have as many processes as that can take."""
    user, most = _who_is_counted(asked_for), most_tasks()
    if user is None or most is None:
        return
    needed, used = slots * _TASKS_OF_A_SLOT + _TASKS_OF_A_RUN, sum(_threads_of(user))
    if most - used < needed:
        raise HarnessFailure(
            f"{slots} cases at once may need {needed} processes and threads, and user {user} can have"
            f" {max(most - used, 0)} more: {used} are there, {LIMITS.user_tasks_kept} are kept for others,"
            f" and the limit is {most + LIMITS.user_tasks_kept}",
            hint="lower --concurrency, end other programs of this user, or raise the limit with `ulimit -u`",
        )


def _who_is_counted(asked_for: str) -> int | None:
    """Return the user whose processes the kernel will count: rubrics of root have one of their own."""
    user = os.getuid()
    if user != 0 or not _is_root_of_the_machine():
        return user
    return USER if asked_for in {"auto", "namespace"} else None


def _is_root_of_the_machine() -> bool:
    """Whether user 0 is root outside as well: in a container it may be an ordinary user, and is counted."""
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
