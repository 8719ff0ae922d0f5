"""Maps the one user of a new user namespace, for rubrics and for boxes of agents. Standard library only."""

import os

from codegenie.eval.isolation.confinement import syscalls


def map_user(proc: int, inside: int, ids: tuple[int, int]) -> None:
    """Map user and group of the host to one id of the namespace. `proc` is a descriptor of /proc.

    From here on no group may be dropped: to lose a group can add rights.
    """
    user, group = ids
    # While this process is hidden, the files of /proc/self belong to root and cannot be written.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    _write(proc, "setgroups", "deny")
    _write(proc, "gid_map", f"{inside} {group} 1")
    _write(proc, "uid_map", f"{inside} {user} 1")
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _write(proc: int, name: str, text: str) -> None:
    descriptor = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
