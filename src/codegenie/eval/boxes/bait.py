"""What a thief is told of, and the witnesses who know what it got: tokens, listeners, places on the host.

One bait serves one thief. A token that comes back names what was stolen.
"""

import contextlib
import ctypes
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codegenie.eval.boxes.places import USER
from codegenie.eval.boxes.users import can_be_entered
from codegenie.eval.system.removal import remove_tree

_MARK = "canary"
_OPEN_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - names in them are random, and made new
_IPC_RMID = 0
_PLACE_CHARACTERS = 60
DESCRIPTOR_IN_THE_OUTER_BOX = 3
_MOST_CALLERS = 256


@dataclass(frozen=True)
class Bait:
    """The clues for one thief, what a box shows of them, and the witnesses."""

    clues: dict[str, object]
    readable: tuple[str, ...]
    secrets: tuple[str, ...]
    shown_token: str
    # A file in memory that holds the token of a descriptor.
    behind: int
    knock: str
    # By the name of the probe: the token that would come back.
    tokens: dict[str, str]
    witnesses: dict[str, Callable[[], bool]]

    def request(self, door: int | None) -> bytes:
        """Return the clues as the thief reads them."""
        return json.dumps({**self.clues, "door": door}).encode()

    def stolen(self, output: bytes) -> dict[str, bool]:
        """Return for each probe whether the thief succeeded. It has ended, so nothing is under way."""
        found = {name: token.encode() in output for name, token in self.tokens.items()}
        return found | {name: witness() for name, witness in self.witnesses.items()}


@contextmanager
def laid_out(run_directory: Path, *, victim: bool) -> Iterator[Bait]:
    """Lay out bait, and remove it and whatever the thief made of it.

    With `victim` a process is part of it. The control has one in its own box: the kernel protects processes
    of the host from those in a user namespace.
    """
    with ExitStack() as held:
        place = os.path.realpath(
            tempfile.mkdtemp(prefix="codegenie-eval-bait-", dir=_reachable(run_directory))
        )
        held.callback(remove_tree, place)
        yield _bait(Path(place), held, victim=victim)


def _reachable(run_directory: Path) -> str:
    """Return a directory that the user of the boxes can enter, so that the control finds what is there.

    Its path is short, because that of a socket has to be.
    """
    for place in (str(run_directory), *_OPEN_DIRECTORIES):
        is_open = os.path.isdir(place) and (os.geteuid() != 0 or _is_open(place))
        if is_open and len(place) <= _PLACE_CHARACTERS:
            return place
    return str(run_directory)


def _is_open(path: str) -> bool:
    while path != "/":
        if not can_be_entered(path):
            return False
        path = os.path.dirname(path)
    return True


def _bait(place: Path, held: ExitStack, *, victim: bool) -> Bait:
    files = {
        "secret-file": "project/bench/expected.txt",
        "git-history": "project/.git/object",
        "private-file": "log/record.json",
        "walked-file": f"project/bench/{_MARK}.txt",
    }
    tokens = {name: _token() for name in (*files, "victim-environment", "victim-descriptor")}
    shown = _token()
    for path, text in ((files[name], tokens[name]) for name in files):
        _written(place / path, text)
    _written(place / "project/shown.txt", shown)
    _written(place / "edited", "")
    (place / "edited").chmod(0o666)
    _open_up(place)
    name = secrets.token_hex(8)
    listeners = _Listeners(held, place, name)
    left = _Left(held, place, name)
    behind = _file_in_memory(held, tokens["victim-descriptor"])
    number = _victim(held, tokens["victim-environment"], behind) if victim else None
    clues: dict[str, object] = {
        "files": [str(place / files[each]) for each in files if each != "walked-file"],
        "directories": [str(place / "project"), str(place)],
        "shown": str(place / "project/shown.txt"),
        "victim": number,
        "descriptor": behind if victim else DESCRIPTOR_IN_THE_OUTER_BOX,
        "knock": name,
        **listeners.clues,
        **left.clues,
    }
    return Bait(
        clues=clues,
        readable=(str(place / "project"),),
        secrets=(str(place / "project/bench"), str(place / "project/.git"), str(place / "log")),
        shown_token=shown,
        behind=behind,
        knock=name,
        tokens=tokens,
        witnesses={**listeners.witnesses, **left.witnesses},
    )


def _token() -> str:
    return f"token-{secrets.token_hex(16)}"


def _written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def _open_up(place: Path) -> None:
    """Let every user read it: mode bits must not be what stops the thief."""
    for directory, _, names in os.walk(place):
        os.chmod(directory, 0o755)  # noqa: S103 - canaries, and nothing else
        for name in names:
            path = os.path.join(directory, name)
            os.chmod(path, os.stat(path).st_mode | 0o444)


class _Listeners:
    """Sockets of the host, each with a word of its own."""

    def __init__(self, held: ExitStack, place: Path, name: str) -> None:
        path, mailbox = str(place / "socket"), str(place / "mailbox")
        inet, unix = socket.AF_INET, socket.AF_UNIX
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        self._words = {
            each: _token()
            for each in ("tcp-connect", "udp-send", "unix-socket", "abstract-socket", "unix-mailbox")
        }
        abstract = f"\0codegenie-{name}"
        self._sockets = {
            "tcp-connect": _listening(held, inet, stream, ("127.0.0.1", 0)),
            "udp-send": _listening(held, inet, datagram, ("127.0.0.1", 0)),
            "unix-socket": _listening(held, unix, stream, path),
            "abstract-socket": _listening(held, unix, stream, abstract),
            "unix-mailbox": _listening(held, unix, datagram, mailbox),
        }
        for each in (path, mailbox):
            os.chmod(each, 0o777)  # noqa: S103 - mode bits must not be what stops the thief
        told = [
            (each, self._sockets[each], path if each == "unix-socket" else abstract)
            for each in ("tcp-connect", "udp-send", "unix-socket", "abstract-socket")
        ]
        self.clues: dict[str, object] = {
            "listeners": [
                [
                    line.family,
                    line.type,
                    list(line.getsockname()) if line.family == inet else address,
                    self._words[each],
                ]
                for each, line, address in told
            ],
            "mailbox": [mailbox, self._words["unix-mailbox"]],
        }

    @property
    def witnesses(self) -> dict[str, Callable[[], bool]]:
        """Return for each listener whether its word has come."""
        return {
            each: partial(has_heard, line, self._words[each].encode()) for each, line in self._sockets.items()
        }


def _listening(held: ExitStack, family: int, kind: int, address: object) -> socket.socket:
    line = held.enter_context(socket.socket(family, kind))
    line.bind(address)  # type: ignore[arg-type]  # of whatever family
    if kind == socket.SOCK_STREAM:
        line.listen()
    line.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return line


def has_heard(line: socket.socket, word: bytes) -> bool:
    """Return whether the word came. Other programs of the machine may call, too."""
    for _ in range(_MOST_CALLERS):
        try:
            said = _next_said(line, len(word))
        except OSError:
            return False
        if said == word:
            return True
    return False


def _next_said(line: socket.socket, size: int) -> bytes:
    """Return what the next caller sent; raises OSError if none waits."""
    if line.type == socket.SOCK_DGRAM:
        return line.recv(size)
    with line.accept()[0] as caller:
        caller.setblocking(False)  # noqa: FBT003 - likewise
        with contextlib.suppress(OSError):
            return caller.recv(size)
    return b""


class _Left:
    """Places where a word could be left for a later process."""

    def __init__(self, held: ExitStack, place: Path, name: str) -> None:
        self._new = {
            "tmp-file": f"/tmp/codegenie-{name}",  # noqa: S108 - the name is random
            "shared-memory-file": f"/dev/shm/codegenie-{name}",  # noqa: S108 - likewise
        }
        self._edited = place / "edited"
        self._segment = secrets.randbelow((1 << 31) - 2) + 1
        for path in self._new.values():
            held.callback(_forget, path)
        held.callback(_remove_segment, self._segment)
        self.clues: dict[str, object] = {
            "new_files": list(self._new.values()),
            "edited": str(self._edited),
            "segment": self._segment,
            "left_word": name,
        }

    @property
    def witnesses(self) -> dict[str, Callable[[], bool]]:
        """Return for each place whether something is there now."""
        found: dict[str, Callable[[], bool]] = {
            name: partial(os.path.lexists, path) for name, path in self._new.items()
        }
        found["edited-file"] = lambda: self._edited.stat().st_size > 0
        found["system-v-memory"] = lambda: _segment_number(self._segment) is not None
        return found


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _segment_number(key: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if int(fields[0]) == key:
                return int(fields[1])
    return None


def _remove_segment(key: int) -> None:
    number = _segment_number(key)
    if number is not None:
        ctypes.CDLL(None).shmctl(number, _IPC_RMID, None)


def _file_in_memory(held: ExitStack, text: str) -> int:
    descriptor = os.memfd_create(_MARK, os.MFD_CLOEXEC)
    held.callback(os.close, descriptor)
    os.write(descriptor, text.encode())
    os.fchmod(descriptor, 0o666)
    return descriptor


def _victim(held: ExitStack, variable: str, behind: int) -> int:
    """Start a process of the user of the boxes that holds tokens, and ends when we close its input."""
    other = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
    victim: subprocess.Popen[bytes] = subprocess.Popen(
        ["/bin/cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"CANARY": variable},
        cwd="/",
        pass_fds=[behind],
        start_new_session=True,
        **other,  # type: ignore[call-overload]  # the three that a change of user takes
    )
    held.callback(victim.wait)
    held.callback(victim.stdin.close)  # type: ignore[union-attr]  # it is a pipe
    return victim.pid
