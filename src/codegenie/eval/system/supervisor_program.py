"""The supervisor: starts one process tree at a time, waits for it, ends all of it and reports how it ended.

This file is a program and is run by path; no module imports it. From the harness it imports `protocol`, which
lists the messages on its socket (descriptor 0), and `removal`. The harness holds one supervisor per slot.

Why this is a process: on Linux the supervisor is a subreaper. Every process that a child leaves behind,
through setsid and any number of forks, becomes a child of the supervisor. A supervisor serves one case at a
time, so a leaked process certainly belongs to that case. Children inherit the limits that the supervisor sets
on itself, so no code of ours runs in the child between fork and exec. The supervisor holds no secret. When
the harness dies, it reads the end of its socket, ends all its processes and removes the run directory.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

# At the end of the path: it is needed only where the harness is not installed.
sys.path.append(os.path.abspath(os.path.join(__file__, *[".."] * 4)))

from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control, Gone
from codegenie.eval.system.removal import Unfinished, remove_tree

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38
_CONTROL = 0
_LARGEST_PART = 1 << 16
_END_SECONDS = 5.0
_REMOVAL_SECONDS = 5.0
_WORD_SECONDS = 10.0  # for the harness, which may be busy, to answer whether a deadline stands
# At the soft limit the process gets SIGXCPU, at the hard limit SIGKILL. The distance tells the two apart.
_CPU_SECONDS_TO_HARD_LIMIT = 5
_LIMITS = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
_RESTORED_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM]


def become_reaper() -> bool:
    """Ask the kernel to make every orphan below us our child; False if the system cannot do this."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def renounce_privileges() -> bool:
    """Let no set-user-id program below us gain privileges: it could outlive us, or take over our files."""
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> bool:
    linux = sys.platform.startswith("linux")
    return linux and bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def limit_self(limits: dict[str, int]) -> None:
    """Lower our own limits, soft and hard; every child inherits them."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), _lowered(name, value))


def limit_child(pid: int, limits: dict[str, int]) -> None:
    """Lower the limits of one child, if the system can do this: we could not raise our own again."""
    for name, value in limits.items() if hasattr(resource, "prlimit") else ():
        resource.prlimit(pid, getattr(resource, name), _lowered(name, value))


def _lowered(name: str, value: int) -> tuple[int, int]:
    """Return a soft and a hard limit, at most as high as our own."""
    _, ours = resource.getrlimit(getattr(resource, name))
    hard = value + (_CPU_SECONDS_TO_HARD_LIMIT if name == "RLIMIT_CPU" else 0)
    hard = hard if ours == resource.RLIM_INFINITY else min(hard, ours)
    return min(value, hard), hard


def forget_inherited_signals() -> None:
    """Reset the signals that the harness's parent ignored or blocked: a rubric would inherit them.

    With SIGCHLD ignored or blocked we would also miss the end of a child.
    """
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def condition() -> list[object]:
    """Return the properties that a child inherits from us and that any process of the user may change."""
    found: list[object] = [resource.getrlimit(limit) for limit in _LIMITS]
    found.append(os.getpriority(os.PRIO_PROCESS, 0))
    if hasattr(os, "sched_getaffinity"):
        found += [os.sched_getaffinity(0), os.sched_getscheduler(0)]
    return found


def _out_of_the_way(descriptor: int) -> int:
    """Move a descriptor above those that a child gets, and mark it as not inheritable."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Tree:
    """The one process tree that is being supervised."""

    def __init__(self, leader: int, *, reaper: bool) -> None:
        self.leader = leader
        self._reaper = reaper

    def leader_status(self) -> os.waitid_result | None:
        """Read how the leader ended without reaping it: its number stays taken until the group has ended."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.leader, flags)

    def survivors(self) -> list[int]:
        """Return the processes that are still below us, without the leader.

        A process that has ended is reaped and still returned: just before its end it may have left a child
        that was not listed yet. Only a list that holds no process but the leader shows that none is left.
        """
        if not self._reaper:
            return self._group_survivors()
        others = [pid for pid in _children() if pid != self.leader]
        for pid in others:
            os.waitpid(pid, os.WNOHANG)
        return others

    def _group_survivors(self) -> list[int]:
        # A zombie leader counts as alive until it is reaped; without /proc the two cannot be told apart.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.leader, os.WNOHANG)
        try:
            os.killpg(self.leader, 0)
        except (ProcessLookupError, PermissionError):
            return []
        return [self.leader]

    def end(self) -> bool:
        """Kill and reap all processes; False if one is still alive after five seconds."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, signal.SIGKILL)
            if not _reap_all():
                return True
            for pid in _children() if self._reaper else []:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)


def _children() -> Iterator[int]:
    try:
        listed = _read(f"/proc/self/task/{os.getpid()}/children").split()
    except OSError:
        listed = [
            name.encode() for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()
        ]
    return map(int, listed)


def _parent(pid: str) -> int:
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _read(path: str) -> bytes:
    """Read a file of /proc; this costs less than half of `open`, which makes buffers."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, _LARGEST_PART), b""))
    finally:
        os.close(descriptor)


def _reap_all() -> bool:
    """Reap the children that have ended; return whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


class Supervisor:
    """The loop: one request, one tree, one answer."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._control = Control(_CONTROL)
        self._grace = settings["leak_grace_seconds"]
        self._reaper = become_reaper()
        self._condition = condition()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Serve until the harness sends `leave` or has ended."""
        while True:
            request, received = self._control.receive()
            if protocol.LEAVE in request:
                return
            if protocol.SECONDS not in request:
                continue  # a cancellation that was sent before our answer arrived
            started = time.monotonic()
            descriptors = [_out_of_the_way(descriptor) for descriptor in received]
            try:
                leader = self._spawn(request, descriptors)
            except OSError as error:
                passing = isinstance(error, BlockingIOError)
                failed = protocol.Failed(error=f"{type(error).__name__}: {error}", passing=passing)
                self._control.send(failed)
                continue
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self._control.send({protocol.STARTED: leader})
            self._control.send(self._keep(Tree(leader, reaper=self._reaper), started, request))

    def _spawn(self, request: dict[str, Any], descriptors: list[int]) -> int:
        argv = request["argv"]
        streams = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(descriptors)]
        # There is one thread and one request at a time, so we can change our working directory for the child.
        os.chdir(request["cwd"])
        try:
            leader = os.posix_spawn(
                argv[0], argv, request["env"], file_actions=streams, setsid=True, setsigdef=_RESTORED_SIGNALS
            )
        finally:
            os.chdir("/")
        limit_child(leader, request.get("limits", {}))
        return leader

    def _keep(self, tree: Tree, started: float, request: dict[str, Any]) -> protocol.Ended:
        try:
            patient = request.get("patient", False)
            status, cancelled = self._wait(tree, started + request[protocol.SECONDS], patient=patient)
            leaked = self._wait_for_stragglers(tree) if status else 0
            wall = time.monotonic() - started
        finally:
            ended = tree.end()
        answer = protocol.Ended(
            wall=wall,
            leaked=leaked,
            cancelled=cancelled,
            timed_out=status is None and not cancelled,
            # A child may lower our limits or our priority (prlimit, nice). The next child would inherit them.
            fit=ended and condition() == self._condition,
        )
        if status is not None:
            exited = status.si_code == os.CLD_EXITED
            answer["exit" if exited else "signal"] = status.si_status
        return answer

    def _wait(self, tree: Tree, deadline: float, *, patient: bool) -> tuple[os.waitid_result | None, bool]:
        """Wait for the leader's end, the deadline or a message of the harness, never for a pipe."""
        while True:
            status = tree.leader_status()
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                more = self._time_withheld() if patient else 0.0
                if not more or (status is not None and more < -remaining):
                    return None, more is None
                deadline, remaining = time.monotonic() + more, more
            if status is not None:
                return status, False
            # A message may have come together with the request. It is then in the buffer, not in the socket.
            patience = 0 if self._control.has_message else remaining
            readable, _, _ = select.select([self._wake, _CONTROL], [], [], patience)
            if self._wake in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            if _CONTROL in readable or self._control.has_message:
                self._control.receive()
                return None, True

    def _time_withheld(self) -> float | None:
        """Ask for how long a process may go on at its deadline; None if its result is no longer wanted."""
        self._control.send({protocol.DUE: True})
        if not self._control.has_message and not select.select([_CONTROL], [], [], _WORD_SECONDS)[0]:
            return 0.0
        return self._control.receive()[0].get(protocol.MORE)

    def _wait_for_stragglers(self, tree: Tree) -> int:
        """Give the processes that the leader left behind a moment to end; count those that do not."""
        deadline = time.monotonic() + self._grace
        while survivors := tree.survivors():
            if time.monotonic() > deadline:
                return len(survivors)
            time.sleep(0.002)
        return 0


def remove(root: str) -> None:
    """Remove the run directory.

    Several supervisors may do this at once, while processes in it are still ending. So it is tried again.
    """
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while os.path.lexists(root) and time.monotonic() < deadline:
        with contextlib.suppress(OSError, Unfinished):
            remove_tree(root, lambda: time.monotonic() < deadline)
        time.sleep(0.01)


def main() -> None:
    """Set ourselves up, serve, and clean up if the harness ends without `leave`."""
    settings = json.loads(sys.argv[1])
    limit_self(settings["limits"])
    forget_inherited_signals()
    if settings["renounce_privileges"]:
        renounce_privileges()
    os.umask(0o077)
    # Our children cannot read our memory. A program that a child executes can be inspected again.
    _prctl(_PR_SET_DUMPABLE, 0)
    try:
        Supervisor(settings).serve()
    except Gone:
        if settings["directory"] is not None:
            remove(settings["directory"])


if __name__ == "__main__":
    main()
