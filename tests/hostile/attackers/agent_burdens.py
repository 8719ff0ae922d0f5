"""What a hostile agent burdens its box with: processes, files, memory, output, traps and failures.

It lies beside the program of the agent, which imports it by its name. Standard library only.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

_MIB = 1 << 20
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None, use_errno=True)
Clues = dict[str, Any]


def _limited(number: int, kind: int, most: int) -> None:
    """Lower a limit of another process, if that is possible."""
    with contextlib.suppress(OSError):
        resource.prlimit(number, kind, (most, most))


def _renamed(name: str) -> None:
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _sleeps(name: str) -> NoReturn:
    _renamed(name)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
    os._exit(0)


def leaves_daemon(clues: Clues) -> None:
    """Leave a process that has another session, another parent and ignores the request to end."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, b"!")
            _sleeps(clues["names"]["daemon"])
        os._exit(0)
    os.read(reading, 1)


def ignores_end(clues: Clues) -> None:
    """Work beyond the deadline, whoever asks it to end."""
    _sleeps(clues["names"]["late"])


def bombs(clues: Clues) -> None:
    """Start processes until there are 512 of them, or no more."""
    for _ in range(512):
        try:
            if os.fork() == 0:
                os.setsid()
                _sleeps(clues["names"]["bomb"])
        except OSError:
            break


def _stay(clues: Clues, what: str) -> None:
    """Keep what is filled until somebody looks."""
    time.sleep(clues["stays"][what])


def fills_disk(clues: Clues) -> None:
    """Write more than the workspace may hold, in files that are each small enough."""
    for number in range(clues["disk_bytes"] // _MIB):
        with open(f"large-{number}", "wb", buffering=0) as file:
            file.write(bytes(_MIB))
    _stay(clues, "disk")


def fills_inodes(clues: Clues) -> None:
    """Make more entries than the workspace may hold."""
    for number in range(clues["entries"]):
        with open(f"small-{number}", "wb"):
            pass
    _stay(clues, "disk")


def fills_memory(clues: Clues) -> None:
    """Hold memory in several processes, each of which has little."""
    for _ in range(4):
        if os.fork() == 0:
            held = bytearray(os.urandom(1)) * clues["memory_bytes"]
            _stay(clues, "memory")
            os._exit(len(held) * 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def blinds_watch(clues: Clues) -> None:
    """Keep the process that watches it from opening any file, and hold memory then."""
    _limited(os.getppid(), resource.RLIMIT_NOFILE, 5)
    fills_memory(clues)


def fills_segments(clues: Clues) -> None:
    """Hold memory that no process has: segments to which none is attached."""
    _LIBC.shmat.restype, _LIBC.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    for _ in range(4):
        number = _LIBC.shmget(0, clues["memory_bytes"], 0o1600)
        if number < 0:
            sys.exit("there are no segments")
        place = _LIBC.shmat(number, None, 0)
        ctypes.memset(place, 1, clues["memory_bytes"])
        _LIBC.shmdt(place)
    _stay(clues, "memory")


def fills_hidden(clues: Clues) -> None:
    """Write more than the workspace may hold, into a directory that can be written and not be listed."""
    os.mkdir("hidden")
    os.chmod("hidden", 0o300)
    os.chdir("hidden")
    fills_disk(clues)


def fills_nameless(clues: Clues) -> None:
    """Write more than the workspace may hold, into files that have no name any more."""
    held = []
    for _ in range(clues["disk_bytes"] // _MIB):
        held.append(open("nameless", "wb", buffering=0))  # noqa: SIM115 - it is kept open
        os.remove("nameless")
        held[-1].write(bytes(_MIB))
    _stay(clues, "disk")


def floods_stdout(clues: Clues) -> None:
    """Print more than anybody wants to read."""
    piece = b"x" * _MIB
    sys.stdout.flush()
    for _ in range(clues["flood_bytes"] // _MIB):
        os.write(1, piece)


def leaves_traps(clues: Clues) -> None:
    """Leave a tree that acts on whoever looks at it with the usual tools."""
    bite = f"#!/bin/sh\ntouch {clues['marker']}\n"
    texts = {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/config": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = ./bite\n",
        ".gitattributes": "* filter=bite\n",
        "conftest.py": f"open({clues['marker']!r}, 'w')\n",
        "sitecustomize.py": f"open({clues['marker']!r}, 'w')\n",
        "bite.pth": f"import os; open({clues['marker']!r}, 'w')\n",
        **dict.fromkeys(("bite", "git", "python3", "sh", "ls"), bite),
    }
    for path, text in texts.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)  # noqa: S103 - a trap is there to be executed
    for name in (".git/objects", ".git/refs/heads"):
        os.makedirs(name)
    os.mkfifo("pipe")
    os.symlink("/etc/passwd", "link")
    os.symlink("loop", "loop")
    os.makedirs("closed/inner")
    os.chmod("closed", 0)
    with open("sparse", "wb") as sparse:
        os.truncate(sparse.fileno(), 32 * _MIB)
    with open(b"\xff\xfe\n\x1b[2J", "wb"):
        pass
    top = os.open(".", os.O_RDONLY)
    for _ in range(200):
        os.mkdir("deep")
        os.chdir("deep")
    os.fchdir(top)


# How it tries to be asked again, and what it says that it cost.


def exits_75(_clues: Clues) -> None:
    """End with the code for a failure that passes."""
    sys.exit(75)


def says_rate_limit(_clues: Clues) -> None:
    """Say that somebody else is at fault."""
    sys.exit('{"type": "error", "error": {"type": "rate_limit_error", "message": "429 rate limit"}}')


def fills_its_disk(clues: Clues) -> None:
    """Fail because nothing more can be written."""
    with contextlib.suppress(OSError):
        fills_disk({**clues, "stays": {"disk": 0}})
    sys.exit("OSError: [Errno 28] No space left on device")


def ends_its_box(clues: Clues) -> None:
    """Let the kernel end the first process of the box: for time that it uses to reap what has no parent.

    If it is asked again, it does not: an attempt that is void three times would leave no record.
    """
    if os.path.exists(clues["asked_before"]):
        return
    with contextlib.suppress(OSError), open(clues["asked_before"], "w", encoding="ascii"):
        pass
    _limited(os.getppid(), resource.RLIMIT_CPU, 0)
    for _ in range(300):
        child = os.fork()
        if child == 0:
            os.fork()
            os._exit(0)
        os.waitpid(child, 0)


DEEDS = (
    leaves_daemon, ignores_end, bombs, fills_disk, fills_inodes, fills_memory, blinds_watch, fills_segments,
    fills_hidden, fills_nameless, floods_stdout, leaves_traps, exits_75, says_rate_limit, fills_its_disk,
    ends_its_box,
)  # fmt: skip
