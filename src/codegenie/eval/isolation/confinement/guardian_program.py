"""The guardian, the first process below the harness: it makes zygotes, and cleans up if the harness dies.

This file is a program and is run by path. It holds no secret, has one thread and sees the host as the harness
does. Each zygote has its own socket to the harness. When the harness dies, the guardian reads the end of its
socket. It then ends every zygote and becomes a supervisor, which removes the run directory.
"""

import contextlib
import gc
import json
import os
import signal
import sys
from typing import Any, NoReturn

# At the end of the path: it is needed only where the harness is not installed.
sys.path.append(os.path.abspath(os.path.join(__file__, *[".."] * 5)))

from codegenie.eval.isolation.confinement import syscalls, visible_paths
from codegenie.eval.isolation.confinement.lockdown import (
    LandlockLockdown,
    Lockdown,
    NamespaceLockdown,
    tie_to_parent,
)
from codegenie.eval.isolation.confinement.namespaces import World
from codegenie.eval.isolation.confinement.own_process import forget_inherited_signals, hide, leave_room
from codegenie.eval.isolation.confinement.run_as_main import Program
from codegenie.eval.isolation.confinement.zygote import Zygote, told
from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control, Gone

_CONTROL = 0


class Guardian:
    """Makes zygotes of one class."""

    def __init__(self, settings: dict[str, Any], directory: int, control: Control) -> None:
        self._settings = settings
        self._directory = directory
        self._control = control
        self._zygotes: list[int] = []
        interpreter = settings["program"]["interpreter"]
        # Without this program's own directory in front, and without what was appended above.
        path_of_the_standard_library = sys.path[1:-1]
        self._program = {**settings["program"], "path": path_of_the_standard_library}
        self._readable = visible_paths.readable(interpreter)
        self._world = World(interpreter) if settings["class"] == "namespace" else None
        # Read only where it is needed. In a namespace it would give every copy a process number of the host.
        self._number = os.getpid() if self._world is None else 0
        if self._world is not None:
            # This comes before the new mount namespace exists. A descriptor points into the old namespace,
            # and a process in the new one cannot mount there. The working directory moves with the process.
            os.fchdir(directory)
        self._prepared: Program | None = None

    def serve(self) -> Program | None:
        """Make a zygote for every socket that arrives, until the harness sends `leave` or has ended.

        In the guardian this returns None. It also returns once in every confined copy, with the program to
        run. The program therefore finds almost no frames below it on the stack.
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
        """Become a supervisor whose harness has ended: it removes the run directory.

        The path of the directory is read only now. A path that is read earlier would be in the memory of
        every copy.
        """
        *program, told = self._settings["cleaner"]
        told = {**json.loads(told), "directory": os.readlink(f"/proc/self/fd/{self._directory}")}
        os.execv(program[0], [*program, json.dumps(told)])  # noqa: S606 - there is no shell in reach

    def end_all(self) -> None:
        """End every zygote. With the first process of a pid namespace the kernel ends all its others."""
        for number in self._zygotes:
            os.kill(number, signal.SIGKILL)

    def _forget_the_dead(self) -> None:
        """Reap zygotes that have ended. Until then the kernel gives their numbers to no other process."""
        with contextlib.suppress(ChildProcessError):
            while (number := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._zygotes.remove(number)

    def _serve_as_zygote(self, channel: int) -> None:
        """Serve one slot in new namespaces. The zygote ends in this function; only its copies return."""
        self._control.let_go()
        os.dup2(1, _CONTROL)  # keep number 0 in use: the next file to get it would become standard input
        control = Control(channel)
        try:
            lockdown = self._enter()
            if self._program["spawn"] == "zygote":
                self._prepared = Program(
                    interpreter=self._program["interpreter"],
                    name=self._program["name"],
                    path=self._program["path"],
                )
            zygote = Zygote(lockdown, self._program, control)
            # The garbage collector now skips the objects that all copies share. Their pages are not copied.
            gc.freeze()
            control.send({protocol.READY: True})
            if zygote.serve():
                return
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001 - the harness has to know every failure
            control.send(told(error))
        os._exit(0)

    def _enter(self) -> Lockdown:
        limits, execution = self._settings["limits"], self._program["spawn"] == "cold"
        if self._world is not None:
            self._world.enter()
        # Only now: a change of user removes the tie between a process and its parent.
        tie_to_parent(self._number)
        try:
            if self._world is not None:
                return NamespaceLockdown(limits, self._readable, execution=execution)
            return LandlockLockdown(limits, self._readable, self._directory, execution=execution)
        finally:
            # This descriptor leads to the run directory, and no copy may have it.
            os.close(self._directory)


def main() -> Program | None:
    """Serve, and clean up if the harness dies without `leave`; in a confined copy, return its program."""
    os.umask(0o077)
    forget_inherited_signals()
    control = Control(_CONTROL)
    settings, (directory,) = control.receive()
    try:
        hide()
        leave_room(settings["most_tasks"])
        guardian = Guardian(settings, directory, control)
    except OSError as error:
        control.receive()  # the first request: the harness takes the next message as the answer to it
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
