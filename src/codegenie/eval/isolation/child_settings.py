"""What a child is given: an environment built from nothing, and limits that it cannot raise."""

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
"""All that a rubric child inherits, beside TMPDIR (ADR-0001). Nothing is copied from the harness."""


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
    """Return the limit of processes where the kernel counts the whole user: some are left for others."""
    most = most_tasks()
    return {} if most is None else {"RLIMIT_NPROC": most}


def case_limits(seconds: float) -> dict[str, int]:
    """Return the rlimits of a rubric child that follow from the deadline of its case."""
    return {"RLIMIT_CPU": math.ceil(seconds) + LIMITS.child_cpu_spare_seconds}


def confined_limits(isolation_class: IsolationClass) -> dict[str, int]:
    """Return the limits of a confined rubric, those of its private directory among them."""
    # In a user namespace of its own only its own threads count, beside the zygote and itself.
    threads = {"RLIMIT_NPROC": LIMITS.child_threads + 2} if isolation_class == "namespace" else shared_tasks()
    return {
        **threads,
        **rubric_limits(),
        # A core of one byte: no file is that small, and for a program that collects cores it means none.
        "RLIMIT_CORE": 1,
        # The kernel counts these for the whole user, over all namespaces.
        "RLIMIT_SIGPENDING": LIMITS.child_pending_signals,
        # Locked memory could not be taken back from it; a mapping can be locked without a call that says so.
        "RLIMIT_MEMLOCK": 0,
        "scratch_bytes": LIMITS.scratch_bytes,
        "scratch_entries": LIMITS.scratch_entries,
    }
