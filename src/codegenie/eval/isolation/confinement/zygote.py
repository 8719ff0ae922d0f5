"""A clean interpreter that makes one confined copy of itself for every request, and keeps nothing of any.

Requests hold a deadline and descriptors; what the descriptors lead to is read by the copy alone. One request
at a time, one thread: whatever is there besides the copy came from it.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from codegenie.eval.isolation.confinement import run_as_main, syscalls
from codegenie.eval.isolation.confinement.lockdown import Lockdown, tie_to_parent

_LARGEST_PART = 1 << 12
_DESCRIPTORS = 4
_SET_UP_FAILED = 98
_END_SECONDS = 5.0
# For the harness to say whether a deadline stands. It answers at once, unless it is as busy as all others.
_WORD_SECONDS = 10.0


def told(error: BaseException) -> dict[str, Any]:
    """Say what the harness has to know of a step that failed."""
    number = error.errno if isinstance(error, OSError) else None
    said = {"error": f"{type(error).__name__}: {error}", "errno": number}
    return {
        **said,
        "lacking": number in syscalls.LACKING,
        # Others have taken what it needs; the harness asks again a little later.
        "passing": number in syscalls.WORTH_WAITING,
    }


class Gone(Exception):  # noqa: N818 - the harness went away; the only way out of the loop
    """The other end of the control socket is closed."""


class Control:
    """The socket to the harness: one JSON line each way, descriptors beside it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._socket = socket.socket(fileno=descriptor)
        self._buffer = b""
        self._descriptors: list[int] = []

    @property
    def has_word(self) -> bool:
        """Whether a whole line was read already and not yet taken."""
        return b"\n" in self._buffer

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for one request and the descriptors that came with it."""
        while not self.has_word:
            try:
                data, received, _, _ = socket.recv_fds(self._socket, _LARGEST_PART, _DESCRIPTORS)
            except ConnectionResetError:
                raise Gone from None
            if not data:
                raise Gone
            self._descriptors += received
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        if self._buffer:
            # Two messages were read together: nothing is read behind one that brings descriptors, so they
            # belong to the second.
            return json.loads(line), []
        descriptors, self._descriptors = self._descriptors, []
        return json.loads(line), descriptors

    def let_go(self) -> None:
        """Leave the descriptor to whatever takes its place."""
        self._socket.detach()

    def send(self, answer: dict[str, Any]) -> None:
        """Send one line; a harness that is gone is found out by the next read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(json.dumps(answer).encode() + b"\n")


class Zygote:
    """The loop: one request, one confined copy, one answer."""

    def __init__(self, lockdown: Lockdown, program: dict[str, Any], control: Control) -> None:
        self._lockdown = lockdown
        self._program = program
        self._control = control
        self._number = os.getpid()

    def serve(self) -> bool:
        """Serve until the harness says so or is gone; True in a copy, which is confined and has to run."""
        while True:
            request, descriptors = self._control.receive()
            if "leave" in request:
                return False
            if "seconds" not in request:
                continue  # a cancellation that crossed our answer
            reason, reasons = os.pipe()
            try:
                copy = syscalls.fork_into(self._lockdown.fork_flags)
            except syscalls.Refused as refused:
                # Others have taken what it needs; the harness asks again, for as long as it has patience.
                for descriptor in (reason, reasons, *descriptors):
                    os.close(descriptor)
                self._control.send(told(refused))
                continue
            started = time.monotonic()
            if copy == 0:
                self._become(descriptors, reasons, request)
                return True
            for descriptor in (reasons, *descriptors):
                os.close(descriptor)
            answer = self._keep(copy, started, request["seconds"])
            said = os.read(reason, _LARGEST_PART)
            os.close(reason)
            self._control.send(json.loads(said) if said else answer)

    def _become(self, descriptors: list[int], reasons: int, request: dict[str, Any]) -> None:
        """Confine ourselves, and take a fresh interpreter if that is asked for. Nothing foreign has run.

        Only a probe may be looked into from outside, to prove what it is. Into a rubric other programs of the
        harness's user cannot look, and an agent is one of these: neither its case nor its memory is seen.
        """
        try:
            # In a pid namespace of our own the zygote is its first process.
            tie_to_parent(self._number)
            os.setsid()
            self._control.let_go()
            *streams, room = descriptors
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            if "seen" in request:
                syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
            self._lockdown.confine(room, request["limits"])
            cold = self._program["spawn"] == "cold"
            syscalls.close_from(3, when_replaced=cold)
            if cold:
                self._replace()
        except BaseException as error:  # noqa: BLE001 - whatever it is, untrusted code must not run
            os.write(reasons, json.dumps(told(error)).encode())
            os._exit(_SET_UP_FAILED)

    def _replace(self) -> NoReturn:
        arguments = run_as_main.arguments(self._program["interpreter"], self._program["name"])
        os.execv(arguments[0], arguments)  # noqa: S606 - there is no shell in reach

    def _keep(self, copy: int, started: float, seconds: float) -> dict[str, Any]:
        handle = os.pidfd_open(copy)
        try:
            cancelled, timed_out = self._wait(handle, started + seconds)
            wall = time.monotonic() - started
            if cancelled or timed_out:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
        _, status = os.waitpid(copy, 0)
        leaked = self._end_leftovers()
        answer = {"wall": wall, "leaked": leaked, "cancelled": cancelled, "timed_out": timed_out}
        answer["fit"] = leaked == 0
        if not cancelled and not timed_out:
            answer |= (
                {"exit": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}
            )
        return answer

    def _wait(self, handle: int, deadline: float) -> tuple[bool, bool]:
        """Wait for the end, a word of the harness or the deadline; say whether it was one of the latter."""
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._control.descriptor, select.POLLIN)
        while True:
            remaining = max(deadline - time.monotonic(), 0.0)
            # A word may have come together with the request, and is then in the buffer, not in the socket.
            ready = dict(poll.poll(0 if self._control.has_word else remaining * 1000 + 1))
            late = time.monotonic() - deadline
            if handle in ready and late < 0:
                return False, False
            if self._control.descriptor in ready or self._control.has_word:
                self._control.receive()
                return True, False
            if late < 0:
                continue
            more = self._time_withheld(handle)
            if more is None:
                return True, False
            if handle in ready or more == 0.0:
                return False, late > more
            deadline = time.monotonic() + more

    def _time_withheld(self, handle: int) -> float | None:
        """Stop the copy and ask for how long it may go on; None if it is no longer wanted at all."""
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        self._control.send({"due": True})
        if not select.select([self._control.descriptor], [], [], _WORD_SECONDS)[0]:
            return 0.0
        more: float | None = self._control.receive()[0].get("more")
        if more:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        return more

    def _end_leftovers(self) -> int:
        """End what a copy left behind, which the filter forbids; count it."""
        leaked = 0
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return leaked
            if pid == 0:
                if self._number == 1:
                    os.kill(-1, signal.SIGKILL)
                time.sleep(0.001)
            leaked += pid != 0
        return leaked + 1  # and it is still there
