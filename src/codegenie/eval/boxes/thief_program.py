"""The thief: it tries to take, to send and to leave whatever it is told of. The proof of a box sends it in.

This file is a program and is run by path; standard library only. It prints all bytes that it could read. What
it says about itself counts for nothing: the harness looks for its tokens in what came back, at its listeners,
and at what was left on the host.
"""

import contextlib
import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_LARGEST_READ = 1 << 16
_DEPTH = 3
_MOST_NAMES = 1000
_CALL_SECONDS = 3.0
_IPC_CREAT = 0o1000
_MARK = "canary"
_WAIT_SECONDS = 60.0


def read_by_path(clues: dict[str, Any]) -> Iterator[bytes]:
    """Read every file that it was told of."""
    for path in clues["files"]:
        yield _read(path)


def read_by_walk(clues: dict[str, Any]) -> Iterator[bytes]:
    """Read every file below the directories that it was told of, and above its own."""
    for top in clues["directories"]:
        yield from _below(top, _DEPTH)
    for top in {os.path.realpath(each) for each in ("..", "../..", "/")}:
        yield from _below(top, 1)


def look_into_processes(clues: dict[str, Any]) -> Iterator[bytes]:
    """Read the variables and files of every other process that there is."""
    listed: list[str] = []
    with contextlib.suppress(OSError):
        listed = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    for number in (clues["victim"], 1, os.getppid(), *listed):
        for name in ("environ", f"fd/{clues['descriptor']}"):
            yield _read(f"/proc/{number}/{name}")


def look_at_itself(_clues: dict[str, Any]) -> Iterator[bytes]:
    """Print its own variables and everything behind the descriptors that it inherited."""
    yield "\n".join(f"{name}={value}" for name, value in os.environ.items()).encode()
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            yield os.pread(number, _LARGEST_READ, 0)


def call_out(clues: dict[str, Any]) -> Iterator[bytes]:
    """Send a word to every listener that it was told of."""
    for family, kind, address, word in clues["listeners"]:
        with contextlib.suppress(OSError), socket.socket(family, kind) as line:
            line.settimeout(_CALL_SECONDS)
            where = tuple(address) if isinstance(address, list) else address.encode("latin-1")
            line.connect(where)
            line.sendall(word.encode())
    yield b""


def send_datagrams_from_a_pair(clues: dict[str, Any]) -> Iterator[bytes]:
    """Reach a named datagram socket without a call of `socket`."""
    path, word = clues["mailbox"]
    with contextlib.suppress(OSError):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.sendto(word.encode(), path)
    yield b""


def knock_at_the_door(clues: dict[str, Any]) -> Iterator[bytes]:
    """Use the one way out that a box may have."""
    if clues["door"] is not None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", clues["door"])) as line:
            line.sendall(clues["knock"].encode())
    yield b""


def leave_words(clues: dict[str, Any]) -> Iterator[bytes]:
    """Leave a word where another process could find it later."""
    for path in clues["new_files"]:
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(clues["left_word"])
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(clues["segment"], 4096, _IPC_CREAT | 0o666)
    libc.shmat.restype = ctypes.c_void_p
    if segment >= 0:
        libc.shmat(segment, None, 0)
    yield b""


def edit(clues: dict[str, Any]) -> Iterator[bytes]:
    """Change a file of the host."""
    with contextlib.suppress(OSError), open(clues["edited"], "a", encoding="utf-8") as file:
        file.write(clues["left_word"])
    yield b""


def work(clues: dict[str, Any]) -> Iterator[bytes]:
    """Do what every agent must be able to do: read what is shown, write into the workspace."""
    with open("worked.txt", "wb") as file:
        file.write(_read(clues["shown"]))
    yield b""


TRICKS: list[Callable[[dict[str, Any]], Iterator[bytes]]] = [
    read_by_path,
    read_by_walk,
    look_into_processes,
    look_at_itself,
    call_out,
    send_datagrams_from_a_pair,
    knock_at_the_door,
    leave_words,
    edit,
    work,
]


def _below(top: str, depth: int) -> Iterator[bytes]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(top))[:_MOST_NAMES]
    for name in names:
        path = os.path.join(top, name)
        if name.startswith(_MARK):
            yield _read(path)
        elif depth and os.path.isdir(path) and not os.path.islink(path):
            yield from _below(path, depth - 1)


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        # Never waits: what is read may be a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _LARGEST_READ)
        finally:
            os.close(descriptor)
    return b""


def main() -> None:
    """Try every trick, say so, and wait to be looked at from outside."""
    # Read without moving: a control may come to the same file.
    clues = json.loads(os.pread(0, 1 << 20, 0))
    for trick in TRICKS:
        # A trick that a wall has broken must not keep it from the next one.
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            sys.stdout.buffer.writelines(trick(clues))
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    with open("finished", "w", encoding="utf-8"):
        pass
    deadline = time.monotonic() + _WAIT_SECONDS
    while not os.path.exists("released") and time.monotonic() < deadline:
        time.sleep(0.002)


if __name__ == "__main__":
    main()
