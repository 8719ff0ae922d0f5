"""What a deed has at hand inside a rubric: system calls by name, and a way to try several doors.

These functions are copied into rubrics as text, so they stand alone. The numbers of the calls are written
into the rubric too; both tables are those of the kernel's headers.
"""

import platform
from collections.abc import Callable, Iterable
from typing import Any

_X86_64 = {
    "ptrace": 101, "syslog": 103, "personality": 135, "pivot_root": 155, "chroot": 161, "acct": 163,
    "mount": 165, "swapon": 167, "reboot": 169, "sethostname": 170, "init_module": 175, "quotactl": 179,
    "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243, "kexec_load": 246,
    "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251, "ioprio_get": 252,
    "inotify_add_watch": 254, "migrate_pages": 256, "unshare": 272, "vmsplice": 278, "move_pages": 279,
    "inotify_init1": 294, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "sched_setattr": 314, "memfd_create": 319, "bpf": 321, "userfaultfd": 323, "shmget": 29, "shmat": 30,
    "shmctl": 31, "semget": 64, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "clone": 56,
    "rt_sigqueueinfo": 129, "tkill": 200, "tgkill": 234, "rt_tgsigqueueinfo": 297, "statx": 332,
}  # fmt: skip
_AARCH64 = {
    "ptrace": 117, "syslog": 116, "personality": 92, "pivot_root": 41, "chroot": 51, "acct": 89, "mount": 40,
    "swapon": 224, "reboot": 142, "sethostname": 161, "init_module": 105, "quotactl": 60, "setxattr": 5,
    "mq_open": 180, "mq_unlink": 181, "mq_timedsend": 182, "mq_timedreceive": 183, "kexec_load": 104,
    "add_key": 217, "request_key": 218, "keyctl": 219, "ioprio_set": 30, "ioprio_get": 31,
    "inotify_add_watch": 27, "migrate_pages": 238, "unshare": 97, "vmsplice": 75, "move_pages": 239,
    "inotify_init1": 26, "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "sched_setattr": 274, "memfd_create": 279, "bpf": 280, "userfaultfd": 282, "shmget": 194, "shmat": 196,
    "shmctl": 195, "semget": 190, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "clone": 220,
    "rt_sigqueueinfo": 138, "tkill": 130, "tgkill": 131, "rt_tgsigqueueinfo": 240, "statx": 291,
}  # fmt: skip
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "open_tree": 428, "fsopen": 430,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "memfd_secret": 447, "fchmodat2": 452,
}  # fmt: skip
NUMBERS = {**(_AARCH64 if platform.machine() == "aarch64" else _X86_64), **_EVERYWHERE}


def system_call(name: str, *arguments: Any) -> int:  # noqa: ANN401 - integers, bytes and arrays of ctypes
    """Make a system call; what the kernel refuses is an OSError."""
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = library.syscall(ctypes.c_long(NUMBERS[name]), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return int(result)


def first_that_works(ways: Iterable[Callable[[], Any]]) -> Any:  # noqa: ANN401 - whatever a way gives
    """Try one door after the other; if none opens, say what the last one said."""
    refusal = None
    for way in ways:
        try:
            return way()
        except OSError as error:
            refusal = error
    raise refusal or OSError("there was no way to try")


def every_way(ways: Iterable[Callable[[], Any]]) -> None:
    """Try every door, whatever the others say."""
    import contextlib

    for way in ways:
        with contextlib.suppress(OSError):
            way()


def patiently(look: Callable[[], Any], seconds: float = 2.0) -> Any:  # noqa: ANN401 - whatever is seen
    """Look again and again until there is something to see, or the time is up."""
    import time

    end = time.monotonic() + seconds
    while True:
        try:
            seen = look()
        except OSError:
            seen = None
        if seen or time.monotonic() > end:
            return seen
        time.sleep(0.01)


def meet(plan: dict[str, Any], case_id: str) -> None:
    """Wait for the other one of two cases, if they have a place to meet and can reach it."""
    import os
    import time

    place = plan.get("meeting")
    try:
        open(f"{place}/{case_id}", "wb").close()
    except OSError:
        return
    end = time.monotonic() + 15
    while len(os.listdir(place)) < 2 and time.monotonic() < end:
        time.sleep(0.005)


TOOLS = (system_call, first_that_works, every_way, patiently, meet)
