"""The outer box, in which the control of a proof runs: the host as its user sees it, and no wall.

Standard library only. What runs here is hostile, so two things are kept: a pid namespace, because one
kill(-1) would end every process of the user, and as root the user of the boxes.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from codegenie.eval.boxes.rooms import DirectoryRoom
from codegenie.eval.boxes.users import become_agent, can_be_entered
from codegenie.eval.boxes.walls import limits, lower
from codegenie.eval.boxes.world import World
from codegenie.eval.isolation.confinement import syscalls


class OuterWorld(World):
    """Namespaces for process numbers and mounts only; the network and the files are the host's."""

    def flags(self, network: str) -> int:  # noqa: ARG002 - it has that of the host
        """Return the namespaces to be made at the fork."""
        wanted = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS
        return wanted if self.is_privileged else wanted | syscalls.CLONE_NEWUSER

    def enter(self, wanted: dict[str, Any]) -> None:
        """Check that the process numbers are our own, and keep everything else.

        As root, what the view names may lie where only root can go; a way to it is opened in our own mounts.
        """
        if not self.is_privileged:
            self.map_user()
        self.check({"pid", "mnt"})
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        if self.is_privileged:
            _open_ways(wanted["layout"]["opened"])


def _open_ways(paths: Sequence[str]) -> None:
    """Cover directories on the way that others cannot enter by ones that lead to these paths alone."""
    # Held first: what is covered cannot be named any more.
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths}
    private = os.umask(0o022)
    for path, source in sources.items():
        parts = path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(2, len(parts)))
        closed = next((each for each in above if os.path.isdir(each) and not can_be_entered(each)), None)
        if closed is not None:
            flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
            syscalls.mount("tmpfs", closed, "tmpfs", flags, "mode=0755,size=1m")
        if not os.path.lexists(path):
            os.makedirs(path)
            syscalls.mount(f"/proc/self/fd/{source}", path, None, syscalls.MS_BIND | syscalls.MS_REC)
        os.close(source)
    os.umask(private)


class _Nothing:
    """The walls of the outer box: limits, and another user as root."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._limits = limits(wanted["limits"], counted=False)

    def stand_behind(self) -> None:
        """Lower the limits, and give up the rights of root."""
        lower(self._limits)
        if os.geteuid() == 0:
            become_agent()
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


class OuterRoom(DirectoryRoom):
    """Directories below the run directory, in a pid namespace."""

    # The host's /proc is kept, whose numbers are not those of this namespace.
    is_watched = False

    def __init__(self, world: OuterWorld, run_directory: int) -> None:
        super().__init__(run_directory, confined=True)
        self._world = world

    def build(self, wanted: dict[str, Any], parcels: Sequence[int]) -> None:
        """Make the directories in the new namespaces."""
        self._world.enter(wanted)
        super().build(wanted, parcels)

    def wall_in(self, wanted: dict[str, Any], port: int | None) -> None:  # noqa: ARG002 - it reaches every port
        """Take limits for walls."""
        self.walls = _Nothing(wanted)

    def kill_all(self) -> None:
        """Let the kernel end everything in the pid namespace but this process."""
        if os.getpid() == 1:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
