"""Where a program in a box works: private mounts in new namespaces, or directories on disk.

Standard library only. A room is built by the first process of a box, which then hands out its descriptors.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, Protocol

from codegenie.eval.boxes.places import AGENT, HOME, IN_A_NAMESPACE, SHARED_MEMORY, TEMPORARY, USER, WORK
from codegenie.eval.boxes.users import as_agent
from codegenie.eval.boxes.walls import LandlockWalls, NamespaceWalls, NoWalls
from codegenie.eval.boxes.watching import descendants
from codegenie.eval.boxes.world import World, freeze_agent_files
from codegenie.eval.isolation.confinement import syscalls
from codegenie.eval.isolation.confinement.lockdown import tie_to_parent
from codegenie.eval.system.packed_tree import measure, unpack

_PR_SET_CHILD_SUBREAPER = 36
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SLACK_ENTRIES = 16
_PAGE = 1 << 16


class Walls(Protocol):
    """What a program gives up before it is executed."""

    def stand_behind(self) -> None:
        """Give it up, in the process that will execute the program."""
        ...


class Room(ABC):
    """The private directories of a box."""

    walls: Walls
    workspace: int
    home: int
    # File systems whose content counts as memory, and directories on disk that are walked.
    mounts: Sequence[str] = ()
    walked: Sequence[int] = ()
    # Where it is, if the host sees it.
    directory: str | None = None
    # Whether /proc shows the processes of this box under their numbers.
    is_watched = True
    # Whether segments and queues of System V are those of this box alone.
    has_own_segments = False

    @abstractmethod
    def build(self, wanted: dict[str, Any], parcels: Sequence[int]) -> None:
        """Make the directories and unpack into them."""

    @abstractmethod
    def wall_in(self, wanted: dict[str, Any], port: int | None) -> None:
        """Prepare the walls, and give up what only the set-up needed."""

    @abstractmethod
    def kill_all(self) -> None:
        """Send SIGKILL to every other process of the box."""


class NamespaceRoom(Room):
    """Private mounts with hard caps, in namespaces of their own."""

    mounts = (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.home, IN_A_NAMESPACE.tmp, SHARED_MEMORY)
    has_own_segments = True

    def __init__(self, world: World) -> None:
        self._world = world

    def build(self, wanted: dict[str, Any], parcels: Sequence[int]) -> None:
        """Build and enter the new root. The working directory must be the run directory."""
        places = (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.home, IN_A_NAMESPACE.agent)
        filled = dict(zip(places, parcels, strict=False))
        most_bytes, most_entries = wanted["room"]
        sizes = {path: [most_bytes, most_entries] for path in self.mounts}
        for path, parcel in filled.items():
            entries, size = measure(parcel)
            more = [most_bytes, most_entries] if path in self.mounts else [_PAGE, _SLACK_ENTRIES]
            sizes[path] = [size + more[0], entries + more[1]]
        self._world.enter({**wanted, "sizes": sizes})
        with as_agent():
            for path, parcel in filled.items():
                os.chdir(path)
                unpack(parcel)
            self.workspace, self.home = (os.open(path, _OPEN) for path in places[:2])
        os.chdir("/")
        if IN_A_NAMESPACE.agent in filled:
            freeze_agent_files()

    def wall_in(self, wanted: dict[str, Any], port: int | None) -> None:  # noqa: ARG002 - its network is its own
        """Take on the user of the box."""
        self._world.take_on_user()
        # Only now: a change of user removes the tie between a process and its parent.
        tie_to_parent(0)
        self.walls = NamespaceWalls(wanted)
        syscalls.drop_capabilities()

    def kill_all(self) -> None:
        """Let the kernel end everything in the pid namespace but this process."""
        # Never on the host: there it would end every process of the user.
        if os.getpid() == 1:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)


class DirectoryRoom(Room):
    """Directories below the run directory, whose size is watched. Orphans become children of this process."""

    def __init__(self, run_directory: int, *, confined: bool) -> None:
        self._run_directory = run_directory
        self._confined = confined
        self._agent = -1

    def build(self, wanted: dict[str, Any], parcels: Sequence[int]) -> None:
        """Make the directories, and unpack into them as the user of the box."""
        syscalls.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        os.fchdir(self._run_directory)
        self.directory = wanted["directory"]
        top = os.path.basename(wanted["directory"])
        os.mkdir(top, 0o700)
        if os.geteuid() == 0 and self._confined:
            os.chmod(top, 0o711)  # noqa: S103 - another user works in it, and walks through it
        os.chdir(top)
        for name in (WORK, HOME, TEMPORARY, AGENT):
            os.mkdir(name, 0o700)
        opened = {name: os.open(name, _OPEN) for name in (WORK, HOME, TEMPORARY, AGENT)}
        self._give_away(opened)
        with as_agent() if self._confined else nullcontext():
            for name, parcel in zip((WORK, HOME, AGENT), parcels, strict=False):
                os.fchdir(opened[name])
                unpack(parcel)
        os.chdir("/")
        self.workspace, self.home = opened[WORK], os.dup(opened[HOME])
        self._agent = opened[AGENT]
        self.walked = [opened[WORK], opened[HOME], opened[TEMPORARY]]
        os.close(self._run_directory)

    def wall_in(self, wanted: dict[str, Any], port: int | None) -> None:
        """Prepare the rules. This process keeps its user, so that the program cannot reach it."""
        if self._confined:
            self.walls = LandlockWalls(wanted, self.walked, self._agent, port)
        else:
            self.walls = NoWalls(wanted)

    def kill_all(self) -> None:
        """End every process below this one. What they leave becomes our child, and is found the next time."""
        for number in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)

    def _give_away(self, opened: dict[str, int]) -> None:
        if os.geteuid() == 0 and self._confined:
            for descriptor in opened.values():
                os.fchown(descriptor, USER, USER)
