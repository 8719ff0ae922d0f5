"""The box server: makes the first process of every box of a run, and cleans up if the harness dies.

This file is a program and is run by path. It holds no secret, has one thread and sees the host as the harness
does. Each box has its own socket to the harness. When the harness dies, the box server reads the end of its
socket. It then ends every box and becomes a supervisor, which removes the run directory.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

# At the end of the path: it is needed only where the harness is not installed.
sys.path.append(os.path.abspath(os.path.join(__file__, *[".."] * 4)))

from codegenie.eval.boxes.filter import call_filter
from codegenie.eval.boxes.init import Init
from codegenie.eval.boxes.outer import OuterRoom, OuterWorld
from codegenie.eval.boxes.places import OUTER
from codegenie.eval.boxes.request import Network
from codegenie.eval.boxes.rooms import DirectoryRoom, NamespaceRoom, Room
from codegenie.eval.boxes.watching import children_of, descendants
from codegenie.eval.boxes.world import World
from codegenie.eval.isolation.confinement import syscalls
from codegenie.eval.isolation.confinement.own_process import forget_inherited_signals, hide, leave_room
from codegenie.eval.isolation.confinement.zygote import told
from codegenie.eval.system import protocol
from codegenie.eval.system.protocol import Control, Gone

_CONTROL = 0
_PR_SET_CHILD_SUBREAPER = 36
_END_SECONDS = 10.0
_RESERVED = 16


class BoxServer:
    """Makes boxes of one class."""

    def __init__(self, settings: dict[str, Any], directory: int, control: Control) -> None:
        self._settings = settings
        self._directory = directory
        self._control = control
        self._inits: set[int] = set()
        kinds = {"namespace": World, OUTER: OuterWorld}
        self._world = kinds[settings["class"]]() if settings["class"] in kinds else None
        if settings["class"] == "namespace":
            # The mount point of a root is found from here: a descriptor would lead into the old namespace.
            os.fchdir(directory)
        # What a lost init leaves becomes our child, and can be ended.
        syscalls.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> None:
        """Make a box for every socket that arrives, until the harness sends `leave` or has ended."""
        while True:
            request, descriptors = self._control.receive()
            if protocol.LEAVE in request:
                return
            self._reap()
            if protocol.SWEEP in request:
                self._control.send({protocol.SWEEP: self._end_orphans()})
                continue
            self._prepare_filter(request[protocol.BOX])
            flags = 0 if self._world is None else self._world.flags(request[protocol.BOX])
            try:
                number = syscalls.fork_patiently(flags)
            except syscalls.Refused as refused:
                self._control.send(told(refused))
                os.close(descriptors[0])
                continue
            if number == 0:
                self._serve_as_init(descriptors[0])
            os.close(descriptors[0])
            self._inits.add(number)
            self._control.send({protocol.BOX: number})

    def end_all(self) -> None:
        """End every box. Without a pid namespace a box ends itself, because its socket has ended, too."""
        if self._world is not None:
            for number in self._inits:
                os.kill(number, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while self._inits and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)
        self._end_orphans()

    def become_cleaner(self) -> NoReturn:
        """Become a supervisor whose harness has ended: it removes the run directory."""
        *program, settings = self._settings["cleaner"]
        directory = os.readlink(f"/proc/self/fd/{self._directory}")
        os.execv(program[0], [*program, json.dumps({**json.loads(settings), "directory": directory})])  # noqa: S606 - there is no shell in reach

    def _prepare_filter(self, network: Network) -> None:
        """Make the filter here, so that the box finds it made."""
        kind = self._settings["class"]
        if kind in {"namespace", "landlock"}:
            call_filter(syscalls.MACHINE, namespaces=kind == "namespace", network=network)

    def _reap(self) -> None:
        """Reap what has ended. Until then the kernel gives its number to no other process."""
        with contextlib.suppress(ChildProcessError):
            while (number := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._inits.discard(number)

    def _end_orphans(self) -> bool:
        """End the processes below us that belong to no living box; False if one is still there.

        They became our children when their box was lost. What is below a living init is never looked at: a
        process that it starts meanwhile would be taken for one of them.
        """
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            lost = [number for number in children_of(os.getpid()) if number not in self._inits]
            orphans = [number for child in lost for number in (child, *descendants(child))]
            if not orphans:
                return True
            for number in orphans:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.002)
        return False

    def _serve_as_init(self, channel: int) -> NoReturn:
        self._control.let_go()
        os.dup2(1, _CONTROL)  # keep number 0 in use: the next file to get it would become standard input
        control = Control(channel)
        try:
            init = Init(control, self._room())
            init.open()
            # The garbage collector now skips the objects that all boxes share. Their pages are not copied.
            gc.freeze()
            try:
                init.serve()
            finally:
                init.end_all()
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001 - the harness has to know every failure
            control.send(told(error))
        os._exit(0)

    def _room(self) -> Room:
        if self._world is None:
            return DirectoryRoom(self._directory, confined=self._settings["class"] == "landlock")
        if isinstance(self._world, OuterWorld):
            return OuterRoom(self._world, self._directory)
        os.close(self._directory)
        return NamespaceRoom(self._world)


def main() -> None:
    """Serve, and clean up if the harness dies without `leave`."""
    os.umask(0o077)
    # A program gets its streams under these numbers, so no descriptor of ours may have one.
    while os.dup(1) < _RESERVED:
        pass
    forget_inherited_signals()
    control = Control(_CONTROL)
    settings, (directory,) = control.receive()
    try:
        hide()
        leave_room(settings["most_tasks"])
        server = BoxServer(settings, directory, control)
    except OSError as error:
        control.receive()  # the first request: the harness takes the next message as the answer to it
        control.send(told(error))
        return
    gc.freeze()
    try:
        server.serve()
    except Gone:
        server.end_all()
        server.become_cleaner()


if __name__ == "__main__":
    main()
