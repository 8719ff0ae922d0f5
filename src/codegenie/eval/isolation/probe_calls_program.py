"""The second probe: system calls, one by one, that a filter must refuse or must let through.

This file is a program; it uses the standard library only, and no module imports it. It runs as `rubric.py` in
a room of the class to be proved, several times before the first probe. Each request names one thing to do:
try calls, enter the kernel by another architecture, which must end it, or wait for its deadline. Every call
has arguments that the kernel refuses with another error than a filter, so a call that gets through changes
nothing. The numbers are written a second time: a wrong number in the filter must not be wrong here, too.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]
Try = Callable[[], bool]

# name:x86_64:aarch64
_TABLE = """
    add_key:248:217 execve:59:221 fstatfs:138:44 getsockopt:55:209 madvise:28:233 mmap:9:222 mremap:25:216
    statfs:137:43
    statx:332:291 sysinfo:99:179 io_uring_setup:425:425 keyctl:250:219 setns:308:268
    accept:43:202 bind:49:200 cachestat:451:451 capset:126:91 clone:56:220 clone3:435:435 connect:42:203
    execveat:322:281 fadvise64:221:223 fchown:93:55 fcntl:72:25 flistxattr:196:13 flock:73:32 futex:202:98
    inotify_init1:294:26 inotify_rm_watch:255:28 io_destroy:207:1 ioctl:16:29 ioprio_get:252:31 kill:62:129
    landlock_create_ruleset:444:444 listen:50:201 mincore:27:232 mlock:149:228 mlock2:325:284
    mlockall:151:230 mq_unlink:241:181 msgctl:71:187 personality:135:92 pidfd_getfd:438:438
    pidfd_open:434:434 pidfd_send_signal:424:424 pkey_alloc:330:289 prctl:157:167 preadv2:327:286
    prlimit64:302:261 process_madvise:440:440 process_mrelease:448:448 pwritev2:328:287
    sched_setaffinity:203:122 sched_setscheduler:144:119 seccomp:317:277 semctl:66:191 sendmsg:46:211
    sendto:44:206 setgid:106:144 setpriority:141:140 setrlimit:160:164 setuid:105:146 shmctl:31:195
    shmdt:67:197 socket:41:198 socketpair:53:199 sync_file_range:277:84 tee:276:77 tgkill:234:131
    timer_create:222:107 timer_delete:226:111 tkill:200:130 unshare:272:97 vmsplice:278:75
"""
_COLUMN = {"x86_64": 1, "aarch64": 2}
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_BAD = -1
# The answers of a filter; any other answer comes from the kernel.
_FILTERED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_AF_UNIX, _AF_INET, _STREAM, _DATAGRAM = 1, 2, 1, 2
_RLIMIT_CORE, _RLIMIT_NOFILE = 4, 7
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_TCGETS, _TIOCSTI = 0x5401, 0x5412
_THREAD_FLAGS, _NEW_USER = 0x00010F00, 0x10000000
_FUTEX_WAKE = 1
_MADV_PAGEOUT, _MAP_HUGETLB = 21, 0x40022
_FAR, _MAP_PRIVATE, _MREMAP_FIXED = 1 << 40, 0x22, 3
_SOL_SOCKET, _SO_PEERPIDFD = 1, 77
_IPC_PRIVATE, _IPC_CREAT, _IPC_RMID = 0, 0o1000, 0
_KEYCTL_REVOKE, _THREAD_KEYRING = 3, -1
_X32 = 0x40000000
_IOCTL_DEV_SINCE = 5
_ASK = 0xFFFFFFFF


def _numbers() -> dict[str, int]:
    rows = (entry.split(":") for entry in _TABLE.split())
    column = _COLUMN[os.uname().machine]
    return {row[0]: int(row[column]) for row in rows}


_NUMBER = _numbers()


def _raw(number: int, *arguments: object) -> int:
    # All six registers are set, because a register that is not set holds a random value.
    given = [*arguments, *[0] * (6 - len(arguments))]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in given]
    return int(_LIBC.syscall(ctypes.c_long(number), *words))


def _through(name: str, *arguments: object) -> bool:
    """Make a call that the kernel refuses or that changes nothing; return whether it reached the kernel."""
    return _raw(_NUMBER[name], *arguments) >= 0 or ctypes.get_errno() not in _FILTERED


# Calls that are on no list.

_UNLISTED: dict[str, tuple[int, ...]] = {
    "accept": (_BAD,),
    "bind": (_BAD,),
    "capset": (0, 0),
    "connect": (_BAD,),
    "execveat": (_BAD, 0, 0, 0, 0),
    "fadvise64": (_BAD,),
    "fchown": (_BAD, _BAD, _BAD),
    "flistxattr": (_BAD,),
    "flock": (_BAD, 0),
    "inotify_init1": (_BAD,),
    "inotify_rm_watch": (_BAD, 0),
    "io_destroy": (0,),
    "ioprio_get": (_BAD, 0),
    "landlock_create_ruleset": (0, 0, _BAD),
    "listen": (_BAD, 0),
    "mincore": (1, 0, 0),
    "mlock": (0, 0),
    "mlock2": (0, 0, 0),
    "mlockall": (0,),
    "mq_unlink": (0,),
    "msgctl": (_BAD, 0, 0),
    "personality": (_ASK,),
    "pidfd_getfd": (_BAD, 0, 0),
    "pidfd_open": (_BAD, 0),
    "pidfd_send_signal": (_BAD, 0, 0, 0),
    "pkey_alloc": (_BAD, _BAD),
    "process_madvise": (_BAD, 0, 0, 0, 0),
    "process_mrelease": (_BAD, 0),
    "sched_setaffinity": (0, 0, 0),
    "sched_setscheduler": (0, _BAD, 0),
    "seccomp": (_BAD, 0, 0),
    "semctl": (_BAD, 0, 0, 0),
    "sendmsg": (_BAD, 0, 0),
    "setgid": (_BAD,),
    "setpriority": (_BAD, 0, 0),
    "setuid": (_BAD,),
    "shmctl": (_BAD, 0, 0),
    "shmdt": (1,),
    "socket": (_BAD, 0, 0),
    "sync_file_range": (_BAD, 0, 0, 0),
    "tee": (_BAD, _BAD, 0, 0),
    "timer_create": (_BAD, 0, 0),
    "timer_delete": (_BAD,),
    "tkill": (_BAD, 0),
    "unshare": (0,),
    "vmsplice": (_BAD, 0, 0, 0),
}


def _unlisted_calls() -> bool:
    return any(_through(name, *arguments) for name, arguments in _UNLISTED.items())


def _absent_calls() -> bool:
    """Make calls whose arguments a filter cannot read: the filter must answer as if they did not exist."""
    found = _through("clone3", 0, 0) or _through("preadv2", _BAD) or _through("pwritev2", _BAD)
    return _through("statx", _BAD) or found


def _newer_calls() -> bool:
    """Try numbers after the last one that the filter knows; an older kernel does not have them anyway."""
    answers = [(_raw(number, _BAD, _BAD), ctypes.get_errno()) for number in range(463, 471)]
    return any(result >= 0 or error not in _FILTERED for result, error in answers)


def _setns() -> bool:
    return _through("setns", _BAD, 0)


def _keyring() -> bool:
    # The keyring of this thread, which ends with the thread. Other keyrings are used by the same call.
    key = _raw(_NUMBER["add_key"], b"user", b"codegenie-probe", b"x", 1, _THREAD_KEYRING)
    if key > 0:
        _raw(_NUMBER["keyctl"], _KEYCTL_REVOKE, key)
    return key > 0


def _io_uring() -> bool:
    ring = _raw(_NUMBER["io_uring_setup"], 1, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
    return ring >= 0


def _shared_memory() -> bool:
    made = _LIBC.shmget(_IPC_PRIVATE, ctypes.c_size_t(4096), _IPC_CREAT | 0o600)
    if made >= 0:
        _LIBC.shmctl(made, _IPC_RMID, None)
    return bool(made >= 0)


def _sysinfo() -> bool:
    return _through("sysinfo", 0)


def _statfs() -> bool:
    return _through("statfs", 0, 0) or _through("fstatfs", _BAD, 0)


def _exec_interpreter() -> bool:
    """Execute another program, which a copy of a zygote never needs. Without a name the kernel finds none."""
    return _through("execve", 0, 0, 0)


# Calls that are allowed for some arguments only.


def _huge_pages() -> bool:
    # With length 0, so that no page is taken from the pool if the call gets through.
    return _through("mmap", 0, 0, 1, _MAP_HUGETLB, _BAD, 0)


def _far_mapping() -> bool:
    # With length 0, far from all mappings of this process.
    return _through("mmap", _FAR, 0, 1, _MAP_PRIVATE, _BAD, 0)


def _argument_mremap() -> bool:
    # To a fixed address, with length 0.
    return _through("mremap", 0, 0, 0, _MREMAP_FIXED, _FAR)


def _thread_number() -> bool:
    """Look for a wrong number of this thread: it would be the number of a process of the host."""
    words = (ctypes.c_int32 * 256).from_address(threading.get_ident())
    number = threading.get_native_id()
    return threading.main_thread().native_id != number or number not in words


def _argument_madvise() -> bool:
    # With length 0: the kernel reports success if this advice is allowed.
    return _raw(_NUMBER["madvise"], 0, 0, _MADV_PAGEOUT) >= 0


def _argument_getsockopt() -> bool:
    one, other = socket.socketpair()
    with one, other:
        found, size = ctypes.c_int(_BAD), ctypes.c_uint32(4)
        where = (ctypes.byref(found), ctypes.byref(size))
        got = _raw(_NUMBER["getsockopt"], one.fileno(), _SOL_SOCKET, _SO_PEERPIDFD, *where) >= 0
    if got:
        os.close(found.value)
    return got


def _argument_socketpair() -> bool:
    pair = (ctypes.c_int * 2)()
    other_family = _through("socketpair", _AF_INET, _STREAM, 0, ctypes.byref(pair))
    return _through("socketpair", _AF_UNIX, _DATAGRAM, 0, ctypes.byref(pair)) or other_family


def _argument_sendto() -> bool:
    address = ctypes.create_string_buffer(16)
    whole = _through("sendto", _BAD, 0, 0, 0, ctypes.byref(address), 16)
    # The lower half of this address is 0: a filter that compares only one half takes it for a null pointer.
    return _through("sendto", _BAD, 0, 0, 0, 1 << 32, 16) or whole


def _argument_fcntl() -> bool:
    # Locks, the receiver of a signal, and the number of the signal.
    return any(_through("fcntl", _BAD, command, 0) for command in (5, 6, 7, 8, 10, 1024, 1033))


def _argument_futex() -> bool:
    # Not private. The filter answers EAGAIN; a call that gets through wakes no thread.
    place = ctypes.c_uint32(0)
    return _raw(_NUMBER["futex"], ctypes.byref(place), _FUTEX_WAKE, 1) >= 0


def _argument_ioctl() -> bool:
    return _through("ioctl", _BAD, _TIOCSTI, 0)


def _argument_prctl() -> bool:
    return _through("prctl", _PR_SET_PDEATHSIG, 1000) or _through("prctl", _PR_SET_NAME, 0)


def _argument_prlimit() -> bool:
    pair = (ctypes.c_uint64 * 2)()
    found = ctypes.byref(pair)
    of_another = _through("prlimit64", os.getpid(), _RLIMIT_NOFILE, 0, found)
    # The current value is set again, which changes nothing.
    _raw(_NUMBER["prlimit64"], 0, _RLIMIT_CORE, 0, found)
    core = _through("prlimit64", 0, _RLIMIT_CORE, found, 0)
    return _through("setrlimit", _RLIMIT_CORE, found) or core or of_another


def _argument_signals() -> bool:
    # Signal 0 sends nothing; the process group contains only this process.
    return _through("kill", 0, 0) or _through("tgkill", _BAD, _BAD, 0)


def _argument_clone() -> bool:
    return _through("clone", _THREAD_FLAGS | _NEW_USER, 0, 0, 0, 0)


# Calls that Landlock decides about.


def _device_call(want: Request) -> bool:
    """Send a command to a device: Landlock answers EACCES, the device answers that it is not a terminal."""
    if (want["landlock_abi"] or 0) < _IOCTL_DEV_SINCE:
        return False
    device = os.open("/dev/zero", os.O_RDONLY)
    try:
        return _through("ioctl", device, _TCGETS, 0)
    finally:
        os.close(device)


def _exec_written(_want: Request) -> bool:
    """Execute a file that we wrote. It is empty, so the kernel answers ENOEXEC if it may be executed."""
    os.close(os.open("written", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700))
    try:
        os.execve("./written", ["written"], {})  # noqa: S606 - the very try
    except OSError as error:
        return error.errno == errno.ENOEXEC
    finally:
        os.unlink("written")


def _free_calls() -> bool:
    """Make calls that a rubric needs; each raises if it is refused."""
    one, other = socket.socketpair()
    with one, other, select.epoll() as waiting:
        waiting.poll(0)
    for end in os.pipe():
        os.close(end)
    os.listdir(".")
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.sched_getaffinity(0)
    os.getpriority(os.PRIO_PROCESS, 0)
    os.getcwd()
    os.times()
    return len(os.getrandom(1)) == 1


def _named(*attempts: Try) -> dict[str, Try]:
    return {attempt.__name__.strip("_").replace("_", "-"): attempt for attempt in attempts}


TRIES = _named(_unlisted_calls, _absent_calls, _newer_calls, _setns, _keyring, _io_uring, _shared_memory)
TRIES |= _named(_argument_socketpair, _argument_sendto, _argument_fcntl, _argument_futex, _argument_ioctl)
TRIES |= _named(_sysinfo, _statfs, _huge_pages, _argument_madvise, _argument_getsockopt, _exec_interpreter)
TRIES |= _named(_far_mapping, _argument_mremap, _thread_number)
TRIES |= _named(_argument_prctl, _argument_prlimit, _argument_signals, _argument_clone)
OF_LANDLOCK: dict[str, Callable[[Request], bool]] = {
    "device-call": _device_call,
    "exec-written": _exec_written,
}
FREE = _named(_free_calls)


def _tried(attempt: Callable[..., bool], *given: Request) -> bool:
    try:
        return attempt(*given)
    except (OSError, ValueError, LookupError, AttributeError):
        return False


def try_calls(want: Request) -> None:
    """Print for each name whether it got through; then try to execute a library, which would print more."""
    reached = {name: _tried(attempt) for name, attempt in (TRIES | FREE).items()}
    reached |= {name: _tried(attempt, want) for name, attempt in OF_LANDLOCK.items()}
    os.write(1, json.dumps(reached).encode() + b"\n")
    if want["library"]:
        with contextlib.suppress(OSError):
            os.execve(want["library"], ["library"], {})  # noqa: S606 - the very try


def enter_old_door(_want: Request) -> None:
    """Ask for our number by the 32-bit entry of the kernel; a filter, or a kernel without it, ends us."""
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


def enter_x32(_want: Request) -> None:
    """Ask for our number by an x32 call number."""
    _raw(_X32 | 39)


def wait_for_the_deadline(_want: Request) -> None:
    """Wait longer than any proof takes."""
    time.sleep(600)


MODES: dict[str, Callable[[Request], None]] = {
    "calls": try_calls,
    "old-door": enter_old_door,
    "x32": enter_x32,
    "deadline": wait_for_the_deadline,
}


if __name__ == "__main__":
    request: Request = json.loads(os.pread(0, 1 << 12, 0))
    MODES[request["mode"]](request)
