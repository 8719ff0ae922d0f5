"""The messages between the harness and the processes below it, and the socket that carries them.

Standard library only: the programs that are run by path import this module. Of the harness they also import
`removal` and, if they are confined, `isolation.confinement`, and no other module.

    harness ─┬─ supervisor ── child and its tree        class `subprocess`, agents, the control of a proof
             ├─ guardian ─┬─ zygote ── copy             classes `landlock` and `namespace`: the copy is the
             │            ├─ zygote ── copy             rubric; there is one zygote for each slot
             │            └─ ...
             └─ box server ─┬─ init ── agent and its tree     boxes of every class; there is one init for each
                            └─ ...                            box

Each of these programs has one socket to the harness. A message is one JSON object on one line; descriptors
travel beside it. At most one request is under way on a socket.

| from       | to         | message                                  | meaning                               |
|------------|------------|------------------------------------------|---------------------------------------|
| harness    | supervisor | `Run` with the child's streams           | start this program and wait for it    |
| harness    | guardian   | settings with the run's directory        | once, before anything else            |
| harness    | guardian   | `zygote` with one end of a new socket    | make a zygote that serves this socket |
| guardian   | harness    | `zygote` with its number, or `Failed`    | it was made, or why it was not        |
| zygote     | harness    | `ready`, or `Failed`                     | it can be asked, or why it cannot     |
| harness    | zygote     | `RunConfined` with three streams, a room | make one confined copy and wait       |
| supervisor | harness    | `started` with the number of the child   | so that the harness can end it itself |
| both       | harness    | `due`                                    | the deadline is over: does it stand?  |
| harness    | both       | `more` with seconds                      | go on for so long; 0 ends it          |
| harness    | both       | `cancel`                                 | end what is under way, then answer    |
| both       | harness    | `Ended`, or `Failed`                     | the answer to a request               |
| harness    | box server | settings with the run's directory        | once, before anything else            |
| harness    | box server | `box` with one end of a new socket       | make an init that serves this socket  |
| box server | harness    | `box` with its number, or `Failed`       | it was made, or why it was not        |
| harness    | box server | `sweep`                                  | end what a lost init has left         |
| box server | harness    | `sweep`                                  | nothing of it is left                 |
| harness    | init       | `OpenBox` with the parcels               | build this box                        |
| init       | harness    | `ready` with descriptors, or `Failed`    | it can be asked, or why it cannot     |
| harness    | init       | `RunInBox` with streams                  | execute this and wait for it          |
| init       | harness    | `started`, or `Failed`                   | it was executed, or why it was not    |
| harness    | init       | `terminate`                              | ask the program to end                |
| harness    | init       | `cancel`                                 | end everything in the box             |
| init       | harness    | `BoxEnded`                               | everything but the init has ended     |
| harness    | all        | `leave`                                  | end in order                          |

When the harness dies, each program reads the end of its socket (`Gone`). It ends what it started, and a
supervisor removes the directory of the run.
"""

import contextlib
import json
import socket
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

LEAVE, CANCEL, DUE, MORE, STARTED, ZYGOTE, READY, BOX, SWEEP, TERMINATE = (
    "leave",
    "cancel",
    "due",
    "more",
    "started",
    "zygote",
    "ready",
    "box",
    "sweep",
    "terminate",
)
SECONDS = "seconds"
"""This key is in every request to run a program, and in no other message."""
ERROR = "error"
"""This key is in every answer that says why no program was run."""

_LARGEST_PART = 1 << 12
_DESCRIPTORS = 8


class Run(TypedDict):
    """Start a program. Its streams come with this message, and become its descriptors 0, 1, 2 and so on."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    seconds: float
    limits: dict[str, int]
    # Whether the harness is asked at the deadline, because the machine may have caused the delay.
    patient: bool


class RunConfined(TypedDict):
    """Run the zygote's program in a confined copy. Three streams and the room come with this message."""

    seconds: float
    limits: dict[str, int]
    # The probe of a proof may be inspected from outside; a rubric may not.
    seen: NotRequired[bool]


class Ended(TypedDict):
    """How a process ended: `exit` or `signal`, and neither if it was late or cancelled."""

    wall: float
    leaked: int
    cancelled: bool
    timed_out: bool
    # Whether the sender can be asked again.
    fit: bool
    exit: NotRequired[int]
    signal: NotRequired[int]


class Failed(TypedDict):
    """Why no program was run."""

    error: str
    # Other processes use up a limit at the moment: the harness asks again a little later.
    passing: bool
    errno: NotRequired[int | None]
    # The kernel does not have what the isolation class needs.
    lacking: NotRequired[bool]


class OpenBox(TypedDict):
    """Build a box. Parcels come with this message: the workspace, the home and perhaps the agent's files."""

    network: str
    # What is seen: a new root, or the places that rules allow.
    layout: dict[str, Any]
    limits: dict[str, int]
    # Bytes and entries that each private directory may hold beside what is unpacked there.
    room: list[int]
    # Where the directories of the box are, if the host sees them.
    directory: NotRequired[str]


class RunInBox(TypedDict):
    """Execute a program in the workspace of a box. Its streams come with this message."""

    argv: list[str]
    env: dict[str, str]


class BoxEnded(TypedDict):
    """How a program in a box ended: `exit` or `signal`."""

    wall: float
    left: int
    # Whether all other processes have ended.
    fit: bool
    # The watched cap that it went over.
    over: str | None
    exit: NotRequired[int]
    signal: NotRequired[int]


def line_of(message: object) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message).encode() + b"\n"


class Gone(Exception):  # noqa: N818 - the harness has ended; the only way out of a loop
    """The other end of the control socket is closed."""


class Control:
    """The socket to the harness, in a program below it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._socket = socket.socket(fileno=descriptor)
        self._buffer = b""
        self._descriptors: list[int] = []

    @property
    def has_message(self) -> bool:
        """Whether a whole line was read already and waits in the buffer."""
        return b"\n" in self._buffer

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for one message and its descriptors. Raises `Gone` if the harness has ended."""
        while not self.has_message:
            try:
                data, received, _, _ = socket.recv_fds(self._socket, _LARGEST_PART, _DESCRIPTORS)
            except ConnectionResetError:
                # The harness died with a message of ours unread.
                raise Gone from None
            if not data:
                raise Gone
            self._descriptors += received
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        if self._buffer:
            # Two messages were read together. The kernel reads nothing after a message with descriptors, so
            # the descriptors belong to the second.
            return json.loads(line), []
        descriptors, self._descriptors = self._descriptors, []
        return json.loads(line), descriptors

    def let_go(self) -> None:
        """Give up the socket without closing its descriptor, which another file then replaces."""
        self._socket.detach()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send one message and its descriptors. If the harness has ended, the next read reports it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            line = line_of(message)
            sent = socket.send_fds(self._socket, [line], descriptors) if descriptors else 0
            self._socket.sendall(line[sent:])
