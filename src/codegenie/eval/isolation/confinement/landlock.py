"""Landlock: a process gives up, for the rest of its life, access to all files that its rules do not name."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping

from codegenie.eval.isolation.confinement import syscalls

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14

READ = READ_FILE | READ_DIR
# These rights allow no device, pipe or socket to be made, and no written file to be executed.
WORK = READ | WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE
_FOR_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE

LEAST_ABI = 3
"""The oldest version that is enough where Landlock is the only defense: older ones (before Linux 6.2) do not
control the truncation of files."""

# The number of rights on files, by version.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_VERSION_FLAG = 1
_PATH_BENEATH = 1


def abi() -> int:
    """Return the version of Landlock in the kernel, 0 if it has none."""
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except syscalls.Refused:
        return 0


Place = tuple[int, int]
"""A descriptor of a file or directory, and the rights on it and below it."""


def places(paths: Mapping[str, int]) -> list[Place]:
    """Open those of these paths that exist, for rules. A file gets no directory rights: that is an error."""
    found = []
    for path, rights in paths.items():
        if os.path.exists(path):
            wanted = rights if os.path.isdir(path) else rights & _FOR_A_FILE
            found.append((os.open(path, os.O_PATH | os.O_CLOEXEC), wanted))
    return found


class Ruleset:
    """Rules that a process can apply to itself; everything that they do not name is denied."""

    def __init__(self, version: int, least: int = 1) -> None:
        if version < least:
            raise syscalls.Refused(errno.ENOSYS, f"landlock: version {version}, and {least} is needed")
        self._rights = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
        # Version 4 added TCP, version 6 added abstract sockets and signals.
        size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
        self.descriptor = syscalls.call("landlock_create_ruleset", self._denied()[:size], size, 0)
        os.set_inheritable(self.descriptor, False)  # noqa: FBT003 - the standard library's signature

    def _denied(self) -> bytes:
        """Return what is denied unless a rule allows it: rights on files, on TCP, and the two scopes."""
        return struct.pack("=QQQ", self._rights, 3, 3)

    def allow(self, places: Iterable[Place]) -> None:
        """Allow on each of these places the rights that come with it."""
        for descriptor, rights in places:
            rule = struct.pack("=Qi", rights & self._rights, descriptor)
            syscalls.call("landlock_add_rule", self.descriptor, _PATH_BENEATH, ctypes.c_char_p(rule), 0)

    def take_on(self) -> None:
        """Apply the rules to this process. It must have set PR_SET_NO_NEW_PRIVS before."""
        syscalls.call("landlock_restrict_self", self.descriptor, 0)
