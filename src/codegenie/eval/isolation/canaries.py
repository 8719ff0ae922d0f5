"""The canaries that the harness plants for the probe, and which of them were reached, as the harness sees it.

The probe's own answer is not enough: a listener knows what arrived, and a directory shows what was written
into it. Each probe has its own canaries and a secret token for each listener. Any user of the machine can
connect to a port, so only a peer that sends the token was the probe.
"""

import contextlib
import ctypes
import errno
import hmac
import itertools
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegenie.eval.errors import IsolationNotProved
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.file_writing import write_private
from codegenie.eval.system.processes import real_interpreter
from codegenie.eval.system.removal import for_entries, remove_tree

# Files that every user may read: if one is hidden, a permission is not the cause.
_SYSTEM_FILES = ("/etc/passwd", "/etc/hosts", "/etc/os-release", "/proc/version")
_SYSTEM_DIRECTORIES = ("/boot", "/etc", "/mnt", "/proc", "/root", "/run", "/srv", "/sys", "/usr/bin", "/var")
_LOOKED_INTO = 16
_STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
# The kernel accepts 107 bytes. A longer path is reached through the descriptor of its directory.
_UNIX_PATH_CHARACTERS = 100
_TOUCHED_MODE = 0o600
# More connections or datagrams than can wait at a listener at once.
_MOST_CALLERS = 2_048
_WORD_BYTES = 16
_REMEDIES = {
    errno.EADDRNOTAVAIL: "the loopback interface is down or has no address: `ip link set lo up`",
    errno.ENETUNREACH: "the loopback interface is down or has no address: `ip link set lo up`",
    errno.ENOSPC: "free space below TMPDIR: its disk or its table of inodes is full",
    errno.EDQUOT: "free space below TMPDIR: a quota is used up",
    errno.EFBIG: "the shell limits the size of files: `ulimit -f unlimited`",
}


@dataclass(frozen=True, slots=True)
class Canaries:
    """The canaries of one probe: the request that names them, and the checks that notice a visit."""

    request: bytes
    listeners: dict[str, socket.socket]
    words: dict[str, str]
    witnesses: dict[str, Callable[[], bool]]
    # Kept alive, so that it stays at the address that the request names.
    memory: object

    def witnessed(self) -> dict[str, bool]:
        """Return for each canary with a witness whether it was reached. Call this after the probe has ended.

        Raises IsolationNotProved if other peers flood a listener.
        """
        called = {
            name: _heard(listener, self.words[name].encode(), name)
            for name, listener in self.listeners.items()
        }
        return called | {name: witness() for name, witness in self.witnesses.items()}


@contextmanager
def planted(run_directory: Path) -> Iterator[Canaries]:
    """Plant canaries for one probe, and remove them afterwards. Raises IsolationNotProved if it cannot."""
    with ExitStack() as held:
        try:
            canaries = _plant(held, str(run_directory))
        except OSError as error:
            raise IsolationNotProved(
                f"the canaries of the proof cannot be planted: {error.strerror}",
                where=error.filename,
                hint=_REMEDIES.get(
                    error.errno or 0,
                    "correct that, and run again: codegenie does not fall back to a weaker class",
                ),
            ) from None
        yield canaries


def _plant(held: ExitStack, run_directory: str) -> Canaries:
    token, name = os.urandom(16).hex(), os.urandom(16).hex()
    # This directory lies beside the rooms and is named like one: for a probe it is the room of another case.
    # Other processes can see names, in a directory or in /proc/net/unix, so knowing a name proves nothing.
    sibling = f"{run_directory}/rubric-{name[:16]}"
    os.mkdir(sibling, 0o700)
    held.callback(remove_tree, sibling, for_entries(64))
    private, touched, cut = f"{sibling}/private", f"{sibling}/touched", f"{sibling}/cut"
    for path in (private, touched, cut):
        write_private(path, (token.encode(),))
    written = f"{run_directory}/written-{name}"
    held.callback(_forget, written)
    memory = ctypes.create_string_buffer(token.encode())
    listeners = {
        "tcp-connect": _listener(held, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp-send": _listener(held, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "unix-socket": _path_listener(held, f"{sibling}/socket"),
        "abstract-socket": _listener(held, socket.AF_UNIX, socket.SOCK_STREAM, f"\0codegenie-{name}"),
    }
    words = {each: os.urandom(_WORD_BYTES).hex() for each in listeners}
    request = {
        "token": token,
        "private_file": private,
        "sibling_directory": sibling,
        "touched_file": touched,
        "cut_file": cut,
        "written_file": written,
        "unix_socket": f"{sibling}/socket",
        "tcp_port": listeners["tcp-connect"].getsockname()[1],
        "udp_port": listeners["udp-send"].getsockname()[1],
        "abstract_socket": f"codegenie-{name}",
        "words": words,
        "run_directory": run_directory,
        "address": ctypes.addressof(memory),
        **_harness(held, token),
        **_surroundings(name),
    }
    witnesses = {
        "write-run-directory": lambda: os.path.exists(written),
        "chmod-outside": lambda: os.stat(touched).st_mode & 0o777 != _TOUCHED_MODE,
        "utime-outside": lambda: os.stat(touched).st_mtime == 1,
        "truncate-outside": lambda: os.stat(cut).st_size == 0,
    }
    return Canaries(json.dumps(request).encode() + b"\n", listeners, words, witnesses, memory)


def _harness(held: ExitStack, token: str) -> dict[str, Any]:
    """Plant a canary behind a descriptor of our own process, and name the process."""
    descriptor = os.memfd_create("canary", os.MFD_CLOEXEC)
    held.callback(os.close, descriptor)
    os.write(descriptor, token.encode())
    return {
        "pid": os.getpid(),
        "environment_bytes": len(Path("/proc/self/environ").read_bytes()),
        "descriptor": descriptor,
    }


def _surroundings(name: str) -> dict[str, Any]:
    """Return what exists on every machine, and the sizes that a limit must refuse."""
    shared = tempfile.gettempdir()
    there = os.stat(shared)
    return {
        "system_directories": _absent_in_a_world_of_its_own(),
        "package_files": _files_of_packages(),
        "system_file": next(filter(os.path.exists, _SYSTEM_FILES), _SYSTEM_FILES[0]),
        "shared_directory": shared,
        "shared_identity": [there.st_dev, there.st_ino],
        "shared_name": f"codegenie-eval-proof-{name}",
        "hostname": os.uname().nodename,
        "memory_bytes": LIMITS.child_address_space_bytes,
        "file_bytes": LIMITS.child_file_bytes,
    }


def _absent_in_a_world_of_its_own() -> list[str]:
    """Return directories that every host has and a new root has not; no interpreter lies below them."""
    ours = (real_interpreter(), _STANDARD_LIBRARY)
    return [path for path in _SYSTEM_DIRECTORIES if not any(each.startswith(f"{path}/") for each in ours)]


def _files_of_packages() -> list[str]:
    """Return one file of each package directory below the library, if it has any."""
    found = []
    for name in ("site-packages", "dist-packages"):
        for directory, _, files in itertools.islice(os.walk(f"{_STANDARD_LIBRARY}/{name}"), _LOOKED_INTO):
            if files:
                found.append(f"{directory}/{files[0]}")
                break
    return found


def _listener(held: ExitStack, family: int, kind: int, address: Any) -> socket.socket:  # noqa: ANN401
    listener = held.enter_context(socket.socket(family, kind))
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return listener


def _path_listener(held: ExitStack, path: str) -> socket.socket:
    if len(path) <= _UNIX_PATH_CHARACTERS:
        return _listener(held, socket.AF_UNIX, socket.SOCK_STREAM, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
        return _listener(held, socket.AF_UNIX, socket.SOCK_STREAM, short)
    finally:
        os.close(directory)


def _heard(listener: socket.socket, word: bytes, name: str) -> bool:
    """Return whether a peer sent the token. A message has arrived when its sender has ended."""
    for _ in range(_MOST_CALLERS):
        try:
            said = _next_said(listener, len(word))
        except OSError:
            return False
        if hmac.compare_digest(said, word):
            return True
    raise IsolationNotProved(
        f"the proof was disturbed: other programs flood the listener of {name!r}",
        hint="find what connects to the loopback interface, and run again: a weaker class is not used",
    )


def _next_said(listener: socket.socket, size: int) -> bytes:
    """Return what the next peer sent; raises OSError if no peer waits."""
    if listener.type == socket.SOCK_DGRAM:
        return listener.recv(size)
    with listener.accept()[0] as caller:
        caller.setblocking(False)  # noqa: FBT003 - likewise
        with contextlib.suppress(OSError):
            return caller.recv(size)
    return b""


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
