"""What the program in a box gives up just before it is executed: limits, Landlock, the filter of calls.

Standard library only. `Walls` are made once for a box; `stand_behind` is called in the process that will
execute the program. A step that fails raises, and the program is not executed.
"""

import ctypes
import os
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from codegenie.eval.boxes.filter import call_filter
from codegenie.eval.boxes.places import IN_A_NAMESPACE, SHARED_MEMORY
from codegenie.eval.boxes.users import become_agent
from codegenie.eval.isolation.confinement import landlock, syscalls
from codegenie.eval.isolation.confinement.lockdown import tie_to_parent

LEAST_ABI = 6
"""The oldest Landlock that is enough where it is the only wall: before it, signals reach other processes."""

# Before version 2 no file can be moved to another directory under any rule.
_LEAST_ABI_AS_SECOND_WALL = 2
_READ_AND_EXECUTE = landlock.READ | landlock.EXECUTE
_EVERY_RIGHT = (1 << 16) - 1
_MAKE_DEVICES = 1 << 6 | 1 << 11
_OWN = _EVERY_RIGHT & ~_MAKE_DEVICES
_DEVICE_IOCTL = 1 << 15
_USE_DEVICE = landlock.READ_FILE | landlock.WRITE_FILE | _DEVICE_IOCTL
_CONNECT = 2
_NET_PORT_RULE = 2
_SCOPES = 3
_DEVICES_OF_THE_HOST = ("null", "zero", "full", "random", "urandom", "tty")
_PROC_OF_THE_HOST = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"),
    *("sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/osrelease", "sys/kernel/pid_max"),
    *("sys/kernel/random/uuid", "sys/vm/max_map_count", "sys/vm/overcommit_memory"),
)


class _Rules(landlock.Ruleset):
    """Rules that deny files, and of TCP only what is named."""

    def __init__(self, version: int, tcp: int) -> None:
        self._tcp = tcp
        super().__init__(version)

    def _denied(self) -> bytes:
        return struct.pack("=QQQ", self._rights, self._tcp, _SCOPES)

    def allow_paths(self, rights: Mapping[str, int]) -> None:
        """Allow on each path that exists the rights that come with it."""
        found = landlock.places(rights)
        self.allow(found)
        for place, _ in found:
            os.close(place)

    def allow_connections_to(self, port: int) -> None:
        """Allow TCP connections to this port, of whatever address."""
        rule = struct.pack("=QQ", _CONNECT, port)
        syscalls.call("landlock_add_rule", self.descriptor, _NET_PORT_RULE, ctypes.c_char_p(rule), 0)


def limits(wanted: Mapping[str, int], *, counted: bool) -> dict[str, int]:
    """Return the limits of every process of a box. Processes are `counted` only in a user namespace."""
    found = {
        "RLIMIT_DATA": wanted["process_memory_bytes"],
        "RLIMIT_FSIZE": wanted["file_bytes"],
        # One byte: no core file is that small, and a core collector reads this limit as "no core".
        "RLIMIT_CORE": 1,
    }
    # The first process of the box counts, too.
    return {**found, "RLIMIT_NPROC": wanted["processes"] + 1} if counted else found


def lower(named: Mapping[str, int]) -> None:
    """Lower our limits, soft and hard."""
    for name, value in named.items():
        which = getattr(resource, name)
        _, ours = resource.getrlimit(which)
        highest = value if ours == resource.RLIM_INFINITY else min(value, ours)
        resource.setrlimit(which, (highest, highest))


class NoWalls:
    """Class `subprocess`: limits, and nothing is claimed."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._limits = limits(wanted["limits"], counted=False)

    def stand_behind(self) -> None:
        """Lower the limits."""
        lower(self._limits)


class NamespaceWalls:
    """Class `namespace`: the root is the wall, and Landlock is the second one."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._limits = limits(wanted["limits"], counted=True)
        self._calls = call_filter(syscalls.MACHINE, namespaces=True, network=wanted["network"])
        version = landlock.abi()
        self._rules = _Rules(version, tcp=0) if version >= _LEAST_ABI_AS_SECOND_WALL else None
        if self._rules is not None:
            writable = (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.home, IN_A_NAMESPACE.tmp, SHARED_MEMORY)
            # Writes to /proc are those that the kernel allows a user to its own processes.
            rights = {"/": _READ_AND_EXECUTE, **dict.fromkeys(writable, _OWN)}
            rights |= {"/dev": _USE_DEVICE | landlock.READ_DIR, "/proc": landlock.READ | landlock.WRITE_FILE}
            self._rules.allow_paths(rights)

    def stand_behind(self) -> None:
        """Lower the limits, give up all rights, and load rules and filter."""
        lower(self._limits)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if self._rules is not None:
            self._rules.take_on()
        self._calls.load(os.getpid())


class LandlockWalls:
    """Class `landlock`: the rules are the only wall."""

    def __init__(self, wanted: Mapping[str, Any], own: Sequence[int], agent: int, port: int | None) -> None:
        version = landlock.abi()
        if version < LEAST_ABI:
            raise syscalls.Refused(38, f"landlock: version {version}, and {LEAST_ABI} is needed")
        self._limits = limits(wanted["limits"], counted=False)
        self._network = wanted["network"]
        self._calls = call_filter(syscalls.MACHINE, namespaces=False, network=self._network)
        self._rules = _Rules(version, tcp=0 if self._network == "host" else 3)
        self._rules.allow([*((place, _OWN) for place in own), (agent, _READ_AND_EXECUTE)])
        layout = wanted["layout"]
        rights = dict.fromkeys(layout["listed"], landlock.READ_DIR)
        rights |= dict.fromkeys(layout["whole"], _READ_AND_EXECUTE)
        rights |= {f"/dev/{name}": _USE_DEVICE for name in _DEVICES_OF_THE_HOST}
        rights |= {f"/proc/{name}": landlock.READ_FILE for name in _PROC_OF_THE_HOST}
        self._rules.allow_paths(rights)
        if port is not None:
            self._rules.allow_connections_to(port)
        self._parent = os.getpid()

    def stand_behind(self) -> None:
        """Change the user, lower the limits, give up all rights, and load rules and filter."""
        self._rules.allow_paths({f"/proc/{os.getpid()}": landlock.READ | landlock.WRITE_FILE})
        lower(self._limits)
        if os.geteuid() == 0:
            syscalls.drop_bounding_set()
            become_agent()
        tie_to_parent(self._parent)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        self._rules.take_on()
        self._calls.load(os.getpid())
