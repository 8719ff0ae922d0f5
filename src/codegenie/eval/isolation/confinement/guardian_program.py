"""The first process below the harness: makes zygotes, and outlives the harness by the time to clean up.

A program of its own, run by path. It holds no secret, has one thread and sees the host as the harness does;
each zygote that it makes has its own socket to the harness. When the harness dies it sees the end of its
socket, takes every zygote with it and turns into a keeper, which removes the directory of the run.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

# Behind everything else: where the harness is not installed, it is still found.
sys.path.append(os.path.abspath(os.path.join(__file__, *[".."] * 5)))

from codegenie.eval.isolation.confinement import syscalls, visible_paths
from codegenie.eval.isolation.confinement.lockdown import (
    LandlockLockdown,
    Lockdown,
    NamespaceLockdown,
    tie_to_parent,
)
from codegenie.eval.isolation.confinement.namespaces import World
from codegenie.eval.isolation.confinement.run_as_main import Program
from codegenie.eval.isolation.confinement.zygote import Zygote, told
from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control, Gone

_CONTROL = 0
_SIGNALS_OF_THE_C_LIBRARY, _BYTES_OF_A_SET = (32, 33), 8


class Guardian:
    """Makes zygotes of one class."""

    def __init__(self, settings: dict[str, Any], directory: int, control: Control) -> None:
        self._settings = settings
        self._directory = directory
        self._control = control
        self._zygotes: list[int] = []
        interpreter = settings["program"]["interpreter"]
        self._program = {**settings["program"], "path": sys.path[1:-1]}
        self._readable = visible_paths.readable(interpreter)
        self._world = World(interpreter) if settings["class"] == "namespace" else None
        # Asked only where it is needed: in a namespace it would tell every copy a number of the host.
        self._number = os.getpid() if self._world is None else 0
        if self._world is not None:
            # Before there is a new mount namespace. A descriptor leads into the old one, where nothing can be
            # mounted from the new one. A working directory is carried over.
            os.fchdir(directory)
        self._prepared: Program | None = None

    def serve(self) -> Program | None:
        """Make a zygote for every socket that comes, until the harness says so or is gone.

        Returns once more in every confined copy, with the program that it has to run: so the program finds
        next to nothing below itself on the stack.
        """
        while True:
            request, descriptors = self._control.receive()
            if protocol.LEAVE in request:
                return None
            self._forget_the_dead()
            try:
                number = syscalls.fork_patiently(0 if self._world is None else self._world.flags)
            except syscalls.Refused as refused:
                self._control.send(told(refused))
                os.close(descriptors[0])
                continue
            if number == 0:
                self._serve_as_zygote(descriptors[0])
                return self._prepared
            os.close(descriptors[0])
            self._zygotes.append(number)
            self._control.send({protocol.ZYGOTE: number})

    def become_cleaner(self) -> NoReturn:
        """Turn into a keeper that finds its harness gone, as we did: it removes the directory of the run.

        Where that lies is asked only now. A path that is known before stands in the memory of every copy.
        """
        *program, told = self._settings["cleaner"]
        told = {**json.loads(told), "directory": os.readlink(f"/proc/self/fd/{self._directory}")}
        os.execv(program[0], [*program, json.dumps(told)])  # noqa: S606 - there is no shell in reach

    def end_all(self) -> None:
        """End every zygote; the first process of a pid namespace takes all others of it with it."""
        for number in self._zygotes:
            os.kill(number, signal.SIGKILL)

    def _forget_the_dead(self) -> None:
        """Let go of zygotes that have ended. Not before: until then nobody else can have their numbers."""
        with contextlib.suppress(ChildProcessError):
            while (number := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._zygotes.remove(number)

    def _serve_as_zygote(self, channel: int) -> None:
        """Serve one slot in a world of its own; a zygote ends here, and only its copies return."""
        self._control.let_go()
        os.dup2(1, _CONTROL)  # never free: what took its place would be taken for a standard stream
        control = Control(channel)
        try:
            lockdown = self._enter()
            if self._program["spawn"] == "zygote":
                self._prepared = Program(*(self._program[key] for key in ("interpreter", "name", "path")))
            zygote = Zygote(lockdown, self._program, control)
            # What every copy shares is never looked through for garbage, and so never copied for that.
            gc.freeze()
            control.send({protocol.READY: True})
            if zygote.serve():
                return
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the harness has to know
            control.send(told(error))
        os._exit(0)

    def _enter(self) -> Lockdown:
        limits, execution = self._settings["limits"], self._program["spawn"] == "cold"
        if self._world is not None:
            self._world.enter()
        # Only now: whatever changes the user of a process unties it from its parent.
        tie_to_parent(self._number)
        try:
            if self._world is not None:
                return NamespaceLockdown(limits, self._readable, execution=execution)
            return LandlockLockdown(limits, self._readable, self._directory, execution=execution)
        finally:
            # A way to the directory of the run, which no copy may have.
            os.close(self._directory)


def _forget_inherited_signals() -> None:
    """Undo what whoever started the harness ignored or blocked: every rubric would inherit it."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            again = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, again)
    for own in _SIGNALS_OF_THE_C_LIBRARY:
        # Its own functions refuse to change these. A program that posix_spawn started, as make does with all,
        # has them ignored. The description of a handler is all zero: the default.
        syscalls.call("rt_sigaction", own, bytes(32), None, _BYTES_OF_A_SET)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _hide() -> None:
    """Keep our memory from other programs of the user, and from a core; what is made of us inherits both.

    A collector of cores on a socket heeds no limit of size: without any kind of memory in the core it got
    53 KB of registers and notes, and nothing of the program (measured on Linux 6.18).
    """
    # First: once we are hidden the file is root's.
    descriptor = os.open("/proc/self/coredump_filter", os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"0")
    os.close(descriptor)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _leave_room(most_tasks: int | None) -> None:
    """Start nothing once the user has so many processes, and let no namespace of ours have more."""
    if most_tasks is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (most_tasks, hard))


def main() -> Program | None:
    """Serve, and clean up if the harness died without a word; in a confined copy, say what is to be run."""
    os.umask(0o077)
    _forget_inherited_signals()
    control = Control(_CONTROL)
    settings, (directory,) = control.receive()
    try:
        _hide()
        _leave_room(settings["most_tasks"])
        guardian = Guardian(settings, directory, control)
    except OSError as error:
        control.receive()  # the first request, and the harness reads what comes as the answer to it
        control.send(told(error))
        return None
    try:
        return guardian.serve()
    except Gone:
        guardian.end_all()
        guardian.become_cleaner()


if __name__ == "__main__":
    program = main()
    if program is not None:
        sys.exit(program.run())
