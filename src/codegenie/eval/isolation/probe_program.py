"""The probe: it tries to reach what the harness has planted, and reports what it reached.

This file is a program; it uses the standard library only, and no module imports it. It runs as `rubric.py` in
a room, once without any confinement and once in the class to be proved (ADR-0021). One JSON request on stdin
says what was planted; one JSON document on stdout says for each name whether it was reached. A try that fails
in any way has reached nothing: the run without confinement shows that the try can succeed.

In between it writes one newline and waits for a byte after the request, while the harness inspects it from
outside. No try has an effect that outlives the probe.
"""

import _thread
import contextlib
import ctypes
import errno
import json
import mmap
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]
Try = Callable[[Request], bool]

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_GET_NO_NEW_PRIVS, _PTRACE_PEEKDATA = 39, 2
_CAPABILITY_VERSION_3, _CLONE_NEWUSER = 0x20080522, 0x10000000
# The whole environment of a rubric except TMPDIR. It is written a second time, like every value here.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
# Devices other than the three that a rubric may have.
_DEVICES = ("full", "fuse", "kmsg", "kvm", "mem", "net/tun", "ptmx", "random", "tty")
_WAIT_SECONDS, _PATIENCE_SECONDS, _UNIX_PATH_CHARACTERS = 10.0, 2.0, 100
# The answers of a filter; any other answer comes from the kernel.
_FILTERED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _got_through(result: int) -> bool:
    """Return whether a call that must fail was refused by the kernel itself, and not by a filter."""
    return result >= 0 or ctypes.get_errno() not in _FILTERED


# The harness.


def _harness_environment(want: Request) -> bool:
    with open(f"/proc/{want['pid']}/environ", "rb") as file:
        return bool(len(file.read()) == want["environment_bytes"])


def _harness_memory(want: Request) -> bool:
    descriptor = os.open(f"/proc/{want['pid']}/mem", os.O_RDONLY)
    try:
        return bool(os.pread(descriptor, len(want["token"]), want["address"]).decode() == want["token"])
    finally:
        os.close(descriptor)


def _harness_descriptor(want: Request) -> bool:
    with open(f"/proc/{want['pid']}/fd/{want['descriptor']}", "rb") as file:
        return bool(file.read().decode() == want["token"])


def _process_vm_read(want: Request) -> bool:
    size = len(want["token"])
    found = ctypes.create_string_buffer(size)
    span = ctypes.c_size_t * 2
    here, there = span(ctypes.addressof(found), size), span(want["address"], size)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    _LIBC.process_vm_readv(want["pid"], ctypes.byref(here), one, ctypes.byref(there), one, none)
    return bool(found.raw.decode("latin-1") == want["token"])


def _ptrace(want: Request) -> bool:
    # The harness is not traced, so this call does not stop it: the kernel answers ESRCH.
    return _got_through(_LIBC.ptrace(_PTRACE_PEEKDATA, want["pid"], None, None))


def _signal_harness(want: Request) -> bool:
    os.kill(want["pid"], 0)
    return True


def _prlimit_harness(want: Request) -> bool:
    return bool(resource.prlimit(want["pid"], resource.RLIMIT_NOFILE))


def _pidfd_harness(want: Request) -> bool:
    os.close(os.pidfd_open(want["pid"]))
    return True


# Files.


def _private_file(want: Request) -> bool:
    with open(want["private_file"], encoding="ascii") as file:
        return bool(file.read() == want["token"])


def _sibling_directory(want: Request) -> bool:
    return bool(os.listdir(want["sibling_directory"]))


def _system_file(want: Request) -> bool:
    with open(want["system_file"], "rb") as file:
        return bool(file.read(1))


def _list_root(_want: Request) -> bool:
    return bool(os.listdir("/"))


def _list_programs(_want: Request) -> bool:
    return bool(os.listdir("/usr"))


def _installed_packages(want: Request) -> bool:
    for path in want["package_files"]:
        with contextlib.suppress(OSError), open(path, "rb"):
            return True
    return False


def _other_devices(_want: Request) -> bool:
    ways = [(name, os.O_RDONLY) for name in _DEVICES] + [("zero", os.O_WRONLY), ("urandom", os.O_WRONLY)]
    for name, way in ways:
        with contextlib.suppress(OSError):
            os.close(os.open(f"/dev/{name}", way | os.O_NONBLOCK | os.O_NOCTTY))
            return True
    return False


def _stat_system(want: Request) -> bool:
    return any(map(os.path.lexists, want["system_directories"]))


def _stat_outside(want: Request) -> bool:
    return bool(os.stat(want["run_directory"]).st_mode)


def _write_run_directory(want: Request) -> bool:
    os.close(os.open(want["written_file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return True


def _write_shared_directory(want: Request) -> bool:
    directory = os.open(want["shared_directory"], os.O_RDONLY | os.O_DIRECTORY)
    try:
        there = os.fstat(directory)
        # Our own directory of the same name does not count: it is not the one of the host.
        if [there.st_dev, there.st_ino] != want["shared_identity"]:
            return False
        os.close(os.open(want["shared_name"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory))
        os.unlink(want["shared_name"], dir_fd=directory)
    finally:
        os.close(directory)
    return True


def _chmod_outside(want: Request) -> bool:
    os.chmod(want["touched_file"], 0o640)
    return True


def _utime_outside(want: Request) -> bool:
    os.utime(want["touched_file"], (1, 1))
    return True


def _truncate_outside(want: Request) -> bool:
    os.truncate(want["cut_file"], 0)
    return True


# The network and other processes.


def _said(word: str, family: int, kind: int, address: Any) -> bool:  # noqa: ANN401 - as the family has it
    """Send a token that only the harness and this probe know."""
    with socket.socket(family, kind) as line:
        line.settimeout(_PATIENCE_SECONDS)
        line.connect(address)
        return line.send(word.encode()) > 0


def _tcp_connect(want: Request) -> bool:
    address = ("127.0.0.1", want["tcp_port"])
    return _said(want["words"]["tcp-connect"], socket.AF_INET, socket.SOCK_STREAM, address)


def _udp_send(want: Request) -> bool:
    address = ("127.0.0.1", want["udp_port"])
    return _said(want["words"]["udp-send"], socket.AF_INET, socket.SOCK_DGRAM, address)


def _unix_socket(want: Request) -> bool:
    path, word = want["unix_socket"], want["words"]["unix-socket"]
    if len(path) <= _UNIX_PATH_CHARACTERS:
        return _said(word, socket.AF_UNIX, socket.SOCK_STREAM, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
        return _said(word, socket.AF_UNIX, socket.SOCK_STREAM, short)
    finally:
        os.close(directory)


def _abstract_socket(want: Request) -> bool:
    word, address = want["words"]["abstract-socket"], f"\0{want['abstract_socket']}"
    return _said(word, socket.AF_UNIX, socket.SOCK_STREAM, address)


def _netlink_socket(_want: Request) -> bool:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return True


def _fork(_want: Request) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


# Memory and disk.


def _large_allocation(want: Request) -> bool:
    # A read-only mapping: a setting of the machine, and not our limit, decides about writable memory.
    mmap.mmap(-1, want["memory_bytes"], mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ).close()
    return True


def _large_file(want: Request) -> bool:
    descriptor = os.open("large", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.unlink("large")
        # One byte after a hole: the limit counts the offset, and the disk is not filled.
        return os.pwrite(descriptor, b"x", want["file_bytes"]) == 1
    finally:
        os.close(descriptor)


def _memfd(_want: Request) -> bool:
    os.close(os.memfd_create("probe"))
    return True


# What the probe is given.


def _environment(_want: Request) -> bool:
    return dict(os.environ) != {**_ENVIRONMENT, "TMPDIR": os.getcwd()}


def _open_room(_want: Request) -> bool:
    return bool(os.stat(".").st_mode & 0o077)


# The kernel.


def _hostname(want: Request) -> bool:
    return bool(os.uname().nodename == want["hostname"])


def _new_privileges(_want: Request) -> bool:
    return bool(_LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)


def _capabilities(_want: Request) -> bool:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    return _LIBC.capget(header, sets) == 0 and any(sets)


def _descriptors(_want: Request) -> bool:
    for number in range(3, 1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            return True
    return False


def _unshare_user(_want: Request) -> bool:
    return bool(_LIBC.unshare(_CLONE_NEWUSER) == 0)


def _named(*attempts: Try) -> dict[str, Try]:
    """Return attempts by the names that they have in a proof."""
    return {attempt.__name__.strip("_").replace("_", "-"): attempt for attempt in attempts}


_OF_HARNESS = _named(_harness_environment, _harness_memory, _harness_descriptor, _process_vm_read, _ptrace)
_OF_HARNESS |= _named(_signal_harness, _prlimit_harness, _pidfd_harness)
_OF_FILES = _named(_private_file, _sibling_directory, _system_file, _list_root, _stat_outside)
_OF_FILES |= _named(_list_programs, _installed_packages, _other_devices, _stat_system)
_OF_FILES |= _named(_write_run_directory, _write_shared_directory)
_OF_FILES |= _named(_chmod_outside, _utime_outside, _truncate_outside)
_OF_NETWORK = _named(_tcp_connect, _udp_send, _unix_socket, _abstract_socket, _netlink_socket)
_OF_SIZE = _named(_fork, _large_allocation, _large_file, _memfd)
_OF_KERNEL = _named(_hostname, _new_privileges, _capabilities)
# Descriptors come first, because no try has opened a file yet.
TRIES = (
    _named(_descriptors, _environment, _open_room)
    | _OF_HARNESS
    | _OF_FILES
    | _OF_NETWORK
    | _OF_SIZE
    | _OF_KERNEL
)
# These change the probe itself, so they come after the harness has inspected it.
LAST_TRIES = _named(_unshare_user)
SHELL = "exec-shell"


# What a rubric needs, and has in every class.


def _working_directory(want: Request) -> bool:
    with open("note", "w", encoding="ascii") as file:
        file.write(want["token"])
    with open("note", encoding="ascii") as file:
        return bool(file.read() == want["token"])


def _thread_of_its_own(_want: Request) -> bool:
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(done.release, ())
    return done.acquire(timeout=_WAIT_SECONDS)


def _socket_pair(_want: Request) -> bool:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        return other.recv(1) == b"x"


def _random(_want: Request) -> bool:
    return len(os.urandom(8)) == 8  # noqa: PLR2004 - the number that was asked for


def _own_source(_want: Request) -> bool:
    with open("rubric.py", "rb") as file:
        return bool(file.read(1))


def _system_calls(_want: Request) -> bool:
    return bool(_LIBC.getpid() == os.getpid())


# Without its own system calls the probe would fail because it has no way to try.
OPEN = _named(_working_directory, _socket_pair, _random, _own_source, _system_calls, _thread_of_its_own)
RELEASED = "released"


def tried(attempt: Try, want: Request) -> bool:
    """Make one attempt; an attempt that fails in any way has reached nothing."""
    try:
        return attempt(want)
    except (OSError, ValueError, LookupError, AttributeError, MemoryError, RuntimeError):
        return False


def wait_for_release(position: int) -> bool:
    """Report that we are ready for inspection, and wait for the byte after the request."""
    os.write(1, b"\n")
    deadline = time.monotonic() + _WAIT_SECONDS
    while not os.pread(0, 1, position) and time.monotonic() < deadline:
        time.sleep(0.0005)
    return bool(os.pread(0, 1, position))


def main() -> None:
    """Try everything, wait while the harness inspects us, and answer."""
    line = os.pread(0, 1 << 16, 0).partition(b"\n")[0]
    want: Request = json.loads(line)
    reached = {name: tried(attempt, want) for name, attempt in (TRIES | OPEN).items()}
    reached[RELEASED] = wait_for_release(len(line) + 1)
    reached |= {name: tried(attempt, want) for name, attempt in LAST_TRIES.items()}
    # If a shell can be started, it prints the answer instead of us.
    shell = json.dumps({**reached, SHELL: True})
    with contextlib.suppress(OSError):
        os.execve("/bin/sh", ["sh", "-c", 'printf %s "$1"', "sh", shell], {})  # noqa: S606 - the very try
    os.write(1, json.dumps({**reached, SHELL: False}).encode())


if __name__ == "__main__":
    main()
