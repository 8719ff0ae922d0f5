"""The user of a box, if root started the harness: an ordinary user stays itself. Standard library only."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from codegenie.eval.boxes.places import USER


@contextmanager
def as_agent() -> Iterator[None]:
    """Let the files that are made meanwhile belong to the agent."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(USER)
    os.seteuid(USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def can_be_entered(directory: str) -> bool:
    """Return whether mode bits let the user of a box walk through a directory of root."""
    there = os.stat(directory)
    return bool(there.st_mode & stat.S_IXOTH or (there.st_gid == USER and there.st_mode & stat.S_IXGRP))


def become_agent() -> None:
    """Take on the user of a box, without any group, for good."""
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
