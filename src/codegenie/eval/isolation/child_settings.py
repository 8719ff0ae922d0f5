"""The settings of a child: an environment that inherits nothing, and limits that it cannot raise."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from codegenie.eval.isolation.headroom import most_tasks
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass

SCRUBBED_ENV: Mapping[str, str] = MappingProxyType(
    {
        # Set order must not decide a score. `-I` would ignore it, so the child runs with `-s -S -B`.
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }
)
"""The whole environment of a rubric except TMPDIR (ADR-0001). No variable is copied from the harness."""


def rubric_environment(directory: str) -> dict[str, str]:
    """Return the whole environment of a rubric that works in `directory`."""
    return {**SCRUBBED_ENV, "TMPDIR": directory}


def rubric_limits() -> dict[str, int]:
    """Return the rlimits of every rubric child by name."""
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_AS": LIMITS.child_address_space_bytes,
        "RLIMIT_FSIZE": LIMITS.child_file_bytes,
        "RLIMIT_NOFILE": LIMITS.child_open_files,
    }


def shared_tasks() -> dict[str, int]:
    """Return the limit on processes if the kernel counts them per user: some are left for other programs."""
    most = most_tasks()
    return {} if most is None else {"RLIMIT_NPROC": most}


def case_limits(seconds: float) -> dict[str, int]:
    """Return the rlimits of a rubric child that follow from the deadline of its case."""
    return {"RLIMIT_CPU": math.ceil(seconds) + LIMITS.child_cpu_spare_seconds}


def confined_limits(isolation_class: IsolationClass) -> dict[str, int]:
    """Return the limits of a confined rubric, including those of its private directory."""
    # In its own user namespace only the zygote, the rubric and the rubric's threads count.
    threads = {"RLIMIT_NPROC": LIMITS.child_threads + 2} if isolation_class == "namespace" else shared_tasks()
    return {
        **threads,
        **rubric_limits(),
        # One byte: no core file is that small, and a core collector reads this limit as "no core".
        "RLIMIT_CORE": 1,
        # The kernel counts these for the whole user, over all namespaces.
        "RLIMIT_SIGPENDING": LIMITS.child_pending_signals,
        # The kernel cannot take locked memory back. A mapping can be locked without a call of `mlock`.
        "RLIMIT_MEMLOCK": 0,
        "scratch_bytes": LIMITS.scratch_bytes,
        "scratch_entries": LIMITS.scratch_entries,
    }
