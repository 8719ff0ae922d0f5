"""A clean interpreter that makes one confined copy of itself for every request, and keeps no data of any.

A request holds a deadline and descriptors; only the copy reads the files behind the descriptors. The zygote
has one thread and serves one request at a time: any other process below it was left by the copy.
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
# How long the harness may take to answer whether a deadline stands. Only a busy machine delays its answer.
_WORD_SECONDS = 10.0


def told(error: BaseException) -> protocol.Failed:
    """Return the message that tells the harness which step failed and why."""
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
        """Serve until the harness sends `leave` or has ended. In a confined copy, return True."""
        while True:
            request, descriptors = self._control.receive()
            if protocol.LEAVE in request:
                return False
            if protocol.SECONDS not in request:
                continue  # a cancellation that was sent before our answer arrived
            reason, reasons = os.pipe()
            try:
                copy = syscalls.fork_into(self._lockdown.fork_flags)
            except syscalls.Refused as refused:
                # Other processes use up a limit. The harness asks again until its time to wait is over.
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
        """Confine this copy, and execute a fresh interpreter if that is asked for. No foreign code has run.

        Only a probe may be inspected from outside, as part of its proof. The memory and the case of a rubric
        are hidden from other programs of the harness's user, because an agent is one of these programs.
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
        except BaseException as error:  # noqa: BLE001 - after any failure untrusted code must not run
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
        """Wait for the end, a message or the deadline; return whether it was cancelled, and whether late."""
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._control.descriptor, select.POLLIN)
        while True:
            remaining = max(deadline - time.monotonic(), 0.0)
            # A message may have come together with the request. It is then in the buffer, not in the socket.
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
        """Stop the copy and ask for how long it may go on; None if its result is no longer wanted."""
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        self._control.send({protocol.DUE: True})
        if not select.select([self._control.descriptor], [], [], _WORD_SECONDS)[0]:
            return 0.0
        more: float | None = self._control.receive()[0].get(protocol.MORE)
        if more:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        return more

    def _end_leftovers(self) -> int:
        """End the processes that a copy left behind, although the filter forbids them; count them."""
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
        return leaked + 1  # one is still there
