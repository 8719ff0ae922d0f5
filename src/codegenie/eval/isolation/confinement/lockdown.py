"""The steps, in order, by which a copy of the zygote gives up everything that its program does not need.

A `Lockdown` is made once in the zygote, and so its work is shared by all copies. `confine` then runs in every
copy, before any foreign code. The copy enters its room, lowers its limits, drops its capabilities and applies
Landlock. It loads the filter of system calls last, because the filter forbids the steps before it. A step
that fails raises, and the copy ends without running its program.
"""

import contextlib
import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Mapping

from codegenie.eval.isolation.confinement import landlock, namespaces, syscalls, visible_paths
from codegenie.eval.isolation.confinement.seccomp import CallFilter
from codegenie.eval.system.packed_tree import measure, unpack

_SIGKILL = 9
# At the soft limit the process gets SIGXCPU, at the hard limit SIGKILL. The distance tells the two apart.
_CPU_SECONDS_TO_HARD_LIMIT = 5
# The root directory of the mount.
_INODES_OF_A_MOUNT = 1


def tie_to_parent(parent: int) -> None:
    """Let the kernel end this process with its parent. A change of user undoes this: call it again then."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        raise syscalls.Refused(3, "the parent is gone")


class Lockdown(ABC):
    """The parts of the confinement that all copies of one zygote share, made once."""

    fork_flags = 0

    def __init__(self, settings: Mapping[str, int], readable: Mapping[str, int]) -> None:
        self._settings = settings
        self._readable = {**readable, **visible_paths.DEVICES}
        self._limits = {name: value for name, value in settings.items() if name.startswith("RLIMIT_")}

    @abstractmethod
    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Enter the room and give up all other access, in a copy of the zygote that has one thread.

        `limits` are those of this case, in addition to those of every case.
        """

    def _limit(self, limits: Mapping[str, int]) -> None:
        for name, soft in {**self._limits, **limits}.items():
            which = getattr(resource, name)
            hard = soft + (_CPU_SECONDS_TO_HARD_LIMIT if name == "RLIMIT_CPU" else 0)
            _, ours = resource.getrlimit(which)
            highest = hard if ours == resource.RLIM_INFINITY else min(hard, ours)
            resource.setrlimit(which, (min(soft, highest), highest))

    def _bind_to(self, ruleset: landlock.Ruleset, calls: CallFilter) -> None:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        ruleset.take_on()
        calls.load(os.getpid())


class NamespaceLockdown(Lockdown):
    """Confinement in new namespaces: the room is a private mount, and Landlock is the second defense."""

    fork_flags = syscalls.CLONE_NEWNS

    def __init__(self, settings: Mapping[str, int], readable: Mapping[str, int], *, execution: bool) -> None:
        super().__init__(settings, readable)
        self._calls = CallFilter(metadata=True, execution=execution)
        self._ruleset = landlock.Ruleset(landlock.abi())
        self._ruleset.allow(landlock.places({**self._readable, visible_paths.BOX: landlock.WORK}))

    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Unpack the files of the case into a mount that no other process sees."""
        entries, size = measure(room)
        namespaces.mount_room(
            size + self._settings["scratch_bytes"],
            entries + self._settings["scratch_entries"] + _INODES_OF_A_MOUNT,
        )
        unpack(room)
        self._limit(limits)
        syscalls.drop_capabilities()
        self._bind_to(self._ruleset, self._calls)


class LandlockLockdown(Lockdown):
    """Confinement without namespaces: the room is a directory on disk, and Landlock is the only defense."""

    def __init__(
        self, settings: Mapping[str, int], readable: Mapping[str, int], rooms: int, *, execution: bool
    ) -> None:
        """Take a descriptor of the directory that holds all rooms."""
        super().__init__(settings, readable)
        # Landlock does not control changes of mode or time, and here all files of the host are in reach.
        self._calls = CallFilter(metadata=False, execution=execution)
        self._version = landlock.abi()
        # The zygote applies these rules once, and every copy inherits them. A copy adds only the rules that
        # differ between cases. A rule can only allow, so the entries of the library are listed one by one.
        # These are about two hundred rules, too many to add for every case.
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        outer = landlock.Ruleset(self._version, landlock.LEAST_ABI)
        outer.allow(
            [*landlock.places(visible_paths.without_packages(self._readable)), (rooms, landlock.WORK)]
        )
        outer.take_on()
        self._places = landlock.places(self._readable)
        # An ordinary user has no capability to drop and no right to drop one.
        with contextlib.suppress(syscalls.Refused):
            syscalls.drop_bounding_set()

    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Enter the directory. The rules are made for each case, because one of them names its directory."""
        os.fchdir(room)
        os.environ["TMPDIR"] = os.getcwd()
        ruleset = landlock.Ruleset(self._version, landlock.LEAST_ABI)
        ruleset.allow([*self._places, (room, landlock.WORK)])
        self._limit(limits)
        syscalls.drop_capabilities()
        self._bind_to(ruleset, self._calls)
