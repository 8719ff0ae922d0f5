"""The steps by which a copy of the zygote gives up everything that its program does not need, in order."""

import contextlib
import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Mapping

from codegenie.eval.isolation.confinement import landlock, namespaces, syscalls, visible_paths
from codegenie.eval.isolation.confinement.seccomp import CallFilter
from codegenie.eval.system.packed_tree import measure, unpack

_SIGKILL = 9
# A soft limit is reported (SIGXCPU), a hard one is not (SIGKILL); the distance tells the two apart.
_CPU_SECONDS_TO_HARD_LIMIT = 5
# One for the root of the mount.
_INODES_OF_A_MOUNT = 1


def tie_to_parent(parent: int) -> None:
    """End when the parent ends; to be repeated after every change of user, which unties us."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        raise syscalls.Refused(3, "the parent is gone")


class Lockdown(ABC):
    """What every confined process of one zygote has in common, made once."""

    fork_flags = 0

    def __init__(self, settings: Mapping[str, int], readable: Mapping[str, int]) -> None:
        self._settings = settings
        self._readable = {**readable, **visible_paths.DEVICES}
        self._limits = {name: value for name, value in settings.items() if name.startswith("RLIMIT_")}

    @abstractmethod
    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Enter the room and give everything up, in a copy of the zygote that has one thread.

        `limits` are those of the case, beside those of all.
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
    """Within a world of our own: the room is a private mount, and Landlock is the second wall."""

    fork_flags = syscalls.CLONE_NEWNS

    def __init__(self, settings: Mapping[str, int], readable: Mapping[str, int], *, execution: bool) -> None:
        super().__init__(settings, readable)
        self._calls = CallFilter(metadata=True, execution=execution)
        self._ruleset = landlock.Ruleset(landlock.abi())
        self._ruleset.allow(landlock.places({**self._readable, visible_paths.BOX: landlock.WORK}))

    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Unpack the parcel into a mount that nobody else sees."""
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
    """Where there are no namespaces: the room is a directory on disk, and Landlock the wall around it."""

    def __init__(
        self, settings: Mapping[str, int], readable: Mapping[str, int], rooms: int, *, execution: bool
    ) -> None:
        """Take the directory below which all rooms lie, as a descriptor."""
        super().__init__(settings, readable)
        # Landlock does not see a change of mode or time, and here everything lies in reach.
        self._calls = CallFilter(metadata=False, execution=execution)
        self._version = landlock.abi()
        # Taken on once, by the zygote, and so by every copy: what differs from case to case is added by each.
        # Entry by entry, for no rule takes away: some two hundred, too many for every case.
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        outer = landlock.Ruleset(self._version, landlock.LEAST_ABI)
        outer.allow(
            [*landlock.places(visible_paths.without_packages(self._readable)), (rooms, landlock.WORK)]
        )
        outer.take_on()
        self._places = landlock.places(self._readable)
        # Without root there is nothing to drop, and no right to.
        with contextlib.suppress(syscalls.Refused):
            syscalls.drop_bounding_set()

    def confine(self, room: int, limits: Mapping[str, int]) -> None:
        """Enter the directory; the rules are made anew, for one of them names it."""
        os.fchdir(room)
        os.environ["TMPDIR"] = os.getcwd()
        ruleset = landlock.Ruleset(self._version, landlock.LEAST_ABI)
        ruleset.allow([*self._places, (room, landlock.WORK)])
        self._limit(limits)
        syscalls.drop_capabilities()
        self._bind_to(ruleset, self._calls)
