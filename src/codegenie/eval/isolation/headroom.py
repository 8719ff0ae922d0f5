"""How many more processes, threads and open files a run may have, and how many it may need.

The kernel counts every thread of a user, over all namespaces, against `ulimit -u`, and the open files of the
harness against `ulimit -n`. A run that could reach one of these limits would lose cases, or end after its
agents were paid. It is refused before its first case.
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
# The harness holds ten of an agent in a box while it works, and some more while its box is made or read.
_FILES_OF_A_SLOT = 16
# Log, journal, store, and the path down into one deep directory.
_FILES_OF_A_RUN = 192


def most_tasks(kept: int = LIMITS.user_tasks_kept) -> int | None:
    """Return the number of tasks from which on a run starts no more; the rest is for other programs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else max(soft - kept, 1)


def check_headroom(asked_for: str, slots: int) -> None:
    """Raise HarnessFailure if a run with this many slots can need more processes than its user may start."""
    user = _who_is_counted(asked_for)
    if user is not None:
        check_tasks(f"{slots} cases at once", slots * _TASKS_OF_A_SLOT + _TASKS_OF_A_RUN, user)


def check_tasks(who: str, needed: int, user: int) -> None:
    """Raise HarnessFailure if a user cannot have this many processes and threads more."""
    most, left = most_tasks(), tasks_left(user)
    if most is not None and left is not None and left < needed:
        raise HarnessFailure(
            f"{who} may need {needed} processes and threads, and user {user} can have"
            f" {max(left, 0)} more: {most - left} exist, {LIMITS.user_tasks_kept} are kept for others,"
            f" and the limit is {most + LIMITS.user_tasks_kept}",
            hint="lower --concurrency, end other programs of this user, or raise the limit with `ulimit -u`",
        )


def tasks_left(user: int) -> int | None:
    """Return how many more processes and threads a user may have in a run; None if nothing limits them."""
    most = most_tasks()
    return None if most is None else most - sum(_threads_of(user))


def slots_by_files() -> int | None:
    """Return for how many slots the harness may open files; None if nothing limits them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else max(hard - _FILES_OF_A_RUN, 0) // _FILES_OF_A_SLOT


def files_needed(slots: int) -> int:
    """Return how many files the harness may have open in a run with this many slots."""
    return slots * _FILES_OF_A_SLOT + _FILES_OF_A_RUN


def make_room_for_files(slots: int) -> None:
    """Raise the limit of open files to what a run may need. Raises HarnessFailure if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(slots)
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HarnessFailure(
            f"{slots} cases at once may need {needed} open files, and the limit is {hard}",
            hint="lower --concurrency, or raise the limit with `ulimit -n`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


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
