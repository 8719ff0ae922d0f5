"""System calls that the standard library does not have. Each raises `Refused` when it fails.

They are made without releasing the interpreter's lock: these processes have one thread, and a copy of such a
process must find the lock as it was.
"""

import ctypes
import errno
import os
import platform
import threading
import time
from functools import cache

from codegenie.eval.isolation.confinement.syscall_numbers import CHECKED, FREE, OURS, numbers

MACHINE = platform.machine()

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

LACKING = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV})
"""The errors with which a kernel, or its configuration, answers a call that it does not have or allow.

Only these can make `auto` take a weaker class. All other errors are temporary: a full disk or table, a limit
of the shell, a process that another program ended. Another user can cause these, and must not be able to
lower the class of this run.
"""

WORTH_WAITING = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS, errno.ENOBUFS}
)

# How long to wait for a resource that other cases use, threads for example. They end with their case.
_PATIENCE_SECONDS = 5.0

_SIGCHLD = 17
_CLONE_CHILD_SETTID = 0x01000000
# The C library's description of a thread holds its number in the first kilobyte.
_THREAD_DESCRIPTION_WORDS = 256
_CLOSE_WHEN_REPLACED = 4
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_CAPABILITY_VERSION_3 = 0x20080522


class Refused(OSError):  # noqa: N818 - an answer of the kernel
    """The kernel refused a call that the confinement needs; `args` say which call."""


def supported() -> bool:
    """Whether the call numbers of this system are known."""
    return os.uname().sysname == "Linux" and MACHINE in {"x86_64", "aarch64"}


_LIBC = ctypes.PyDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_TABLES = (FREE, CHECKED, OURS) if supported() else ()
_NUMBERS = {name: number for table in _TABLES for name, number in numbers(table, MACHINE).items()}


def call(name: str, *arguments: object) -> int:
    """Make one system call; raise Refused if it fails."""
    result = int(_LIBC.syscall(ctypes.c_long(_NUMBERS[name]), *map(_word, arguments)))
    if result < 0:
        error = ctypes.get_errno()
        raise Refused(error, f"{name}: {os.strerror(error)}")
    return result


def _word(argument: object) -> object:
    # Without a type ctypes passes an int as 32 bits, and the upper half of the register keeps an old value.
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def prctl(option: int, value: int) -> None:
    """Set one property of this process."""
    call("prctl", option, value, 0, 0, 0)


def fork_into(namespaces: int) -> int:
    """Fork, with the child in new namespaces of these kinds; return as `os.fork` does.

    This is one call instead of fork and unshare, at little more than half the cost of `os.fork`. The child is
    the first process of a new pid namespace. The C library and `threading` remember a process number. In the
    child both get its own number, because the old one is that of a process of the host.
    """
    remembered = _remembered_number()
    flags = namespaces | _SIGCHLD | (_CLONE_CHILD_SETTID if remembered else 0)
    places = (remembered, 0) if MACHINE == "x86_64" else (0, remembered)
    ctypes.pythonapi.PyOS_BeforeFork()
    try:
        pid = call("clone", flags, 0, 0, *places)
    except Refused:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        raise
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        threading.current_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


@cache
def _remembered_number() -> int:
    """Return the address where the C library keeps the number of this thread, 0 if it is not found.

    `fork` updates the number in the child. The bare call does so only if it is given the address.
    """
    words = (ctypes.c_int32 * _THREAD_DESCRIPTION_WORDS).from_address(threading.get_ident())
    number = threading.get_native_id()
    return next((ctypes.addressof(words) + 4 * at for at, word in enumerate(words) if word == number), 0)


def fork_patiently(namespaces: int) -> int:
    """Fork as `fork_into` does, and wait if other cases use up a limit: their threads end with the case."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return fork_into(namespaces)
        except Refused as refused:
            if refused.errno not in WORTH_WAITING or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def unshare(namespaces: int) -> None:
    """Move into new namespaces of these kinds."""
    call("unshare", namespaces)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount something."""
    call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        None if options is None else options.encode(),
    )


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def restrict_mounts(root: str, flags: int) -> None:
    """Add flags to a mount and to every mount below it, whatever flags these have already."""
    attributes = _MountAttributes(flags, 0, 0, 0)
    call(
        "mount_setattr",
        _AT_FDCWD,
        os.fsencode(root),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )


def pivot_into(root: str) -> None:
    """Make a mount the root, and unmount the old root."""
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def close_from(descriptor: int, *, when_replaced: bool = False) -> None:
    """Close this descriptor and all above it, now or when the process executes another program."""
    call("close_range", descriptor, 0xFFFFFFFF, _CLOSE_WHEN_REPLACED if when_replaced else 0)


def drop_bounding_set() -> None:
    """Make sure that no program that is executed below us can gain a capability."""
    last = 0
    while True:
        try:
            prctl(PR_CAPBSET_DROP, last)
        except Refused as refused:
            if refused.errno != errno.EINVAL or last == 0:  # one more than the kernel has
                raise
            return
        last += 1


def drop_capabilities() -> None:
    """Give up every capability that this process has."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
