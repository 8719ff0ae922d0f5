"""Removal of directories in which hostile code has worked: the ground beside `files`."""

import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVAL_ROUNDS = 3


class Unfinished(Exception):  # noqa: N818 - says that there is more to do, and nothing is wrong
    """A removal that was not to go on has ended; what is left lies where it was."""


GoOn = Callable[[], bool]
"""Is asked before each entry whether a removal may go on."""


def without_end() -> bool:
    """Let a removal take what it takes."""
    return True


def for_entries(most: int) -> GoOn:
    """Let a removal take so many entries."""
    left = iter(range(most))
    return lambda: next(left, None) is not None


def remove_tree(root: str, go_on: GoOn = without_end) -> None:
    """Remove a directory in which hostile code has worked: any depth, any mode bits, no link followed.

    Should a link stand where `root` was, the link goes and what it names stays.
    """
    # Several rounds: what somebody writes or removes meanwhile is met by the next.
    for rounds_left in reversed(range(_REMOVAL_ROUNDS)):
        try:
            _remove(root, go_on)
        except OSError:
            if not rounds_left:
                raise
        else:
            return


def _remove(root: str, go_on: GoOn) -> None:
    try:
        top = _open_for_removal(root, None)
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        os.unlink(root)
        return
    try:
        _empty(top, go_on)
    finally:
        os.close(top)
    os.rmdir(root)


def _empty(top: int, go_on: GoOn) -> None:
    """Move inner directories up beside each other, so that ten thousand levels need no recursion."""
    # A random name: what hostile code left behind may not stand in the way of the move.
    fresh = f".removing-{os.urandom(8).hex()}"
    moved = itertools.count()
    waiting = _unlink_files(top, go_on)
    while waiting:
        name = waiting.pop()
        inner = _open_for_removal(name, top)
        try:
            for directory in _unlink_files(inner, go_on):
                target = f"{fresh}-{next(moved)}"
                _move(directory, inner, target, top)
                waiting.append(target)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _open_for_removal(name: str, parent: int | None) -> int:
    try:
        descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    except PermissionError:
        # Only a directory answers so; a link is refused as such. Its own mode bits keep us out.
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _unlink_files(directory: int, go_on: GoOn) -> list[str]:
    """Remove everything but directories, while it is listed, and name the directories."""
    directories = []
    with os.scandir(directory) as scan:
        for entry in scan:
            if not go_on():
                raise Unfinished
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory)
    return directories


def _move(name: str, source: int, target: str, top: int) -> None:
    try:
        os.rename(name, target, src_dir_fd=source, dst_dir_fd=top)
    except PermissionError:
        # Moving a directory writes its "..", which needs permission on the directory itself.
        os.chmod(name, stat.S_IRWXU, dir_fd=source)
        os.rename(name, target, src_dir_fd=source, dst_dir_fd=top)


class Sweeper:
    """Removes directories on a thread of its own, so that nobody waits for what hostile code left."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def sweep(self, path: str) -> None:
        """Remove a directory some time; what cannot be removed stays where it is."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="codegenie-sweeper", daemon=True)
            self._thread.start()
        self._waiting.put(path)

    def close(self) -> None:
        """Stop in the middle of things; whoever owns the directories around them removes the rest."""
        self._stopped = True
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (path := self._waiting.get()) is not None and not self._stopped:
            with suppress(OSError, Unfinished):
                remove_tree(path, lambda: not self._stopped)
