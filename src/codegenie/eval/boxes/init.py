"""The first process of a box: it builds the box, executes one program at a time in it, and ends what is left.

Standard library only. It has its own socket to the harness, one thread, and no timer but for the watch: the
harness keeps the deadline. When the harness dies, it reads the end of its socket and ends everything.
"""

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any, NoReturn

from codegenie.eval.boxes.rooms import Room
from codegenie.eval.boxes.watching import (
    Stillness,
    descendants,
    in_segments,
    is_larger,
    memory_of,
    used,
    without_a_name,
)
from codegenie.eval.isolation.confinement import syscalls
from codegenie.eval.isolation.confinement.zygote import told
from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control

_LARGEST_PART = 1 << 12
_SET_UP_FAILED = 98
_END_SECONDS = 5.0
# For processes that are about to end when the program ends, as those of a pipeline.
_STRAGGLER_SECONDS = 0.05
_WATCH_SECONDS = 1.0
_WALK_EVERY = 5
_BACKLOG = 64
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Init:
    """Builds one box and serves it."""

    def __init__(self, control: Control, room: Room) -> None:
        self._control = control
        self._room = room
        self._wanted: dict[str, Any] = {}
        self._stillness = Stillness()
        self._is_walked = False
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The program in the box may send it to us. The kernel keeps signals without a handler from the first
        # process of a pid namespace.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def open(self) -> None:
        """Build the box that the first message asks for, and hand out its descriptors."""
        self._wanted, parcels = self._control.receive()
        self._room.build(self._wanted, parcels)
        for parcel in parcels:
            os.close(parcel)
        listener = _listener() if self._wanted["network"] == "broker" else None
        port = None if listener is None else listener.getsockname()[1]
        self._room.wall_in(self._wanted, port)
        handed = [self._room.workspace, self._room.home, *([] if listener is None else [listener.fileno()])]
        self._control.send({protocol.READY: {"port": port, "directory": self._room.directory}}, handed)
        os.close(self._room.home)
        if listener is not None:
            listener.close()

    def serve(self) -> None:
        """Execute programs until the harness sends `leave`. Raises Gone if the harness has ended."""
        while True:
            request, descriptors = self._control.receive()
            if protocol.LEAVE in request:
                return
            if "argv" not in request:
                continue  # it was meant for a program that has ended meanwhile
            started = time.monotonic()
            leader, failure = self._execute(request, descriptors)
            if failure is not None:
                self._reap_all()
                self._control.send(failure)
                continue
            self._control.send({protocol.STARTED: leader})
            self._control.send(self._keep(leader, started))

    def end_all(self) -> bool:
        """End every other process of the box; False if one is still there after five seconds."""
        deadline = time.monotonic() + _END_SECONDS
        while self._reap_all():
            self._room.kill_all()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def _execute(self, request: dict[str, Any], streams: list[int]) -> tuple[int, protocol.Failed | None]:
        """Fork and execute; return the process, and why it was not executed if it was not."""
        reason, reasons = os.pipe2(os.O_CLOEXEC)
        try:
            leader = os.fork()
        except OSError as error:
            for descriptor in (reason, reasons, *streams):
                os.close(descriptor)
            return 0, told(error)
        if leader == 0:
            self._become(request, streams, reasons)
        for descriptor in (reasons, *streams):
            os.close(descriptor)
        said = b"".join(iter(lambda: os.read(reason, _LARGEST_PART), b""))
        os.close(reason)
        return leader, json.loads(said) if said else None

    def _become(self, request: dict[str, Any], streams: list[int], reasons: int) -> NoReturn:
        """Execute the program behind the walls. The pipe of reasons closes when it is executed."""
        step = "set-up"
        try:
            signal.set_wakeup_fd(-1)
            for number in (*_IGNORED_BY_PYTHON, signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.fchdir(self._room.workspace)
            # The low numbers were reserved, so that no stream has the number that another one gets.
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.umask(0o022)
            syscalls.close_from(len(streams), when_replaced=True)
            self._room.walls.stand_behind()
            step = "exec"
            os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - there is no shell in reach
        except BaseException as error:  # noqa: BLE001 - after any failure the program must not run
            os.write(reasons, json.dumps({**told(error), "step": step}).encode())
        os._exit(_SET_UP_FAILED)

    def _keep(self, leader: int, started: float) -> protocol.BoxEnded:
        """Wait for the end of the program, then end all that it left."""
        status, over = self._wait(leader)
        wall = time.monotonic() - started
        left = self._stragglers() if over is None else 0
        answer = protocol.BoxEnded(wall=wall, left=left, fit=self.end_all(), over=over)
        if status is not None:
            _put_status(answer, status)
        return answer

    def _wait(self, leader: int) -> tuple[int | None, str | None]:
        """Return how the program ended, and the cap for which it has to be ended."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._control.descriptor, select.POLLIN)
        looks = 0
        due = time.monotonic() + _WATCH_SECONDS
        while True:
            status = self._reap(leader)
            if status is not None:
                return status, None
            waiting = 0.0 if self._control.has_message else max(due - time.monotonic(), 0.0)
            ready = dict(poll.poll(waiting * 1000 + 1))
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, _LARGEST_PART)
            if (self._control.descriptor in ready or self._control.has_message) and self._is_cancelled(
                leader
            ):
                return None, None
            if time.monotonic() >= due:
                looks += 1
                due = time.monotonic() + _WATCH_SECONDS
                over = self._over(looks)
                if over is not None:
                    return None, over

    def _is_cancelled(self, leader: int) -> bool:
        """Read one message: the program is asked to end, or everything has to end now."""
        request, _ = self._control.receive()
        if protocol.TERMINATE in request:
            # The leader was not reaped, so its number is still its own.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGTERM)
        return protocol.CANCEL in request

    def _over(self, looks: int) -> str | None:
        if not self._room.is_watched:
            return None
        is_still = self._stillness.lasts()
        if not is_still and self._takes_too_much_memory():
            return "memory"
        self._is_walked = self._is_walked and is_still
        if looks % _WALK_EVERY == 0 and not self._is_walked:
            if self._takes_too_much_room():
                return "workspace"
            # What was written before the walk is known; nothing is written before something runs again.
            self._is_walked = is_still
        return None

    def _takes_too_much_memory(self) -> bool:
        processes = descendants(os.getpid())
        memory = memory_of(processes) + used(self._room.mounts)
        memory += in_segments() if self._room.has_own_segments else 0
        self._stillness.looked(processes)
        return bool(memory > self._wanted["limits"]["memory_total_bytes"])

    def _takes_too_much_room(self) -> bool:
        most_bytes, most_entries = self._wanted["room"]
        if any(is_larger(directory, most_bytes, most_entries) for directory in self._room.walked):
            return True
        return bool(self._room.walked) and without_a_name(descendants(os.getpid())) > most_bytes

    def _reap(self, leader: int) -> int | None:
        """Reap what has ended; return how the leader ended, if it did."""
        found = None
        with suppress(ChildProcessError):
            while True:
                number, status = os.waitpid(-1, os.WNOHANG)
                if number == 0:
                    return found
                if number == leader:
                    found = status
        return found

    def _reap_all(self) -> bool:
        """Reap what has ended; return whether any process is left."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
            return True
        return False

    def _stragglers(self) -> int:
        """Count the processes that the program left and that do not end by themselves at once."""
        deadline = time.monotonic() + _STRAGGLER_SECONDS
        while self._reap_all():
            left = descendants(os.getpid()) if self._room.is_watched else []
            if time.monotonic() > deadline:
                return len(left)
            time.sleep(0.002)
        return 0


def _put_status(answer: protocol.BoxEnded, status: int) -> None:
    if os.WIFEXITED(status):
        answer["exit"] = os.WEXITSTATUS(status)
    else:
        answer["signal"] = os.WTERMSIG(status)


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener
