"""A clean interpreter that makes one confined copy of itself for every request, and keeps nothing of any.

Requests hold a deadline and descriptors; what the descriptors lead to is read by the copy alone. One request
at a time, one thread: whatever is there besides the copy came from it.
"""

import json
import os
import select
import signal
import time
from typing import Any, NoReturn

from codegenie.eval.isolation.confinement import run_as_main, syscalls
from codegenie.eval.isolation.confinement.lockdown import Lockdown, tie_to_parent
from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control

_LARGEST_PART = 1 << 12
_SET_UP_FAILED = 98
_END_SECONDS = 5.0
# For the harness to say whether a deadline stands. It answers at once, unless it is as busy as all others.
_WORD_SECONDS = 10.0


def told(error: BaseException) -> protocol.Failed:
    """Say what the harness has to know of a step that failed."""
    number = error.errno if isinstance(error, OSError) else None
    return protocol.Failed(
        error=f"{type(error).__name__}: {error}",
        errno=number,
        lacking=number in syscalls.LACKING,
        passing=number in syscalls.WORTH_WAITING,
    )


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
            if protocol.LEAVE in request:
                return False
            if protocol.SECONDS not in request:
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
            answer = self._keep(copy, started, request[protocol.SECONDS])
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

    def _keep(self, copy: int, started: float, seconds: float) -> protocol.Ended:
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
        answer = protocol.Ended(
            wall=wall, leaked=leaked, cancelled=cancelled, timed_out=timed_out, fit=leaked == 0
        )
        if cancelled or timed_out:
            return answer
        if os.WIFEXITED(status):
            answer["exit"] = os.WEXITSTATUS(status)
        else:
            answer["signal"] = os.WTERMSIG(status)
        return answer

    def _wait(self, handle: int, deadline: float) -> tuple[bool, bool]:
        """Wait for the end, a word of the harness or the deadline; say whether it was one of the latter."""
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._control.descriptor, select.POLLIN)
        while True:
            remaining = max(deadline - time.monotonic(), 0.0)
            # A word may have come together with the request, and is then in the buffer, not in the socket.
            ready = dict(poll.poll(0 if self._control.has_message else remaining * 1000 + 1))
            late = time.monotonic() - deadline
            if handle in ready and late < 0:
                return False, False
            if self._control.descriptor in ready or self._control.has_message:
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
        self._control.send({protocol.DUE: True})
        if not select.select([self._control.descriptor], [], [], _WORD_SECONDS)[0]:
            return 0.0
        more: float | None = self._control.receive()[0].get(protocol.MORE)
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
