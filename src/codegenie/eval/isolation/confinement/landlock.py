"""Landlock: which files a process may open, and for what, from now on and for good."""

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
# Neither devices, pipes nor sockets, and nothing that is written can be executed.
WORK = READ | WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE
_FOR_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE

LEAST_ABI = 3
"""What Landlock has to be where it is the only wall: before (Linux 6.2) a file could be cut to nothing."""

# How many rights on files there are, by version.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_VERSION_FLAG = 1
_PATH_BENEATH = 1


def abi() -> int:
    """Return the version of Landlock that the kernel speaks, 0 if none."""
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except syscalls.Refused:
        return 0


Place = tuple[int, int]
"""A descriptor of a file or directory, and the rights on it and below it."""


def places(paths: Mapping[str, int]) -> list[Place]:
    """Open what exists of these paths, for rules; rights of directories on a file are an error."""
    found = []
    for path, rights in paths.items():
        if os.path.exists(path):
            wanted = rights if os.path.isdir(path) else rights & _FOR_A_FILE
            found.append((os.open(path, os.O_PATH | os.O_CLOEXEC), wanted))
    return found


class Ruleset:
    """Rules that can be taken on; everything that they do not name is denied."""

    def __init__(self, version: int, least: int = 1) -> None:
        if version < least:
            raise syscalls.Refused(errno.ENOSYS, f"landlock: version {version}, and {least} is needed")
        self._rights = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
        # TCP from the fourth version on, abstract sockets and signals from the sixth: all denied.
        size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
        attributes = struct.pack("=QQQ", self._rights, 3, 3)[:size]
        self.descriptor = syscalls.call("landlock_create_ruleset", attributes, size, 0)
        os.set_inheritable(self.descriptor, False)  # noqa: FBT003 - the standard library's signature

    def allow(self, places: Iterable[Place]) -> None:
        """Allow on each of these places what it says."""
        for descriptor, rights in places:
            rule = struct.pack("=Qi", rights & self._rights, descriptor)
            syscalls.call("landlock_add_rule", self.descriptor, _PATH_BENEATH, ctypes.c_char_p(rule), 0)

    def take_on(self) -> None:
        """Bind this process to the rules. It must have given up new privileges before."""
        syscalls.call("landlock_restrict_self", self.descriptor, 0)
