"""Removal of directories in which hostile code has worked. Standard library only."""

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


class Unfinished(Exception):  # noqa: N818 - there is more to do, and nothing is wrong
    """A removal was told to stop; the rest of the directory is still in its place."""


GoOn = Callable[[], bool]
"""Is called before each entry, and returns whether the removal may go on."""


def without_end() -> bool:
    """Let a removal take as long as it needs."""
    return True


def for_entries(most: int) -> GoOn:
    """Let a removal remove this many entries."""
    left = iter(range(most))
    return lambda: next(left, None) is not None


def remove_tree(root: str, go_on: GoOn = without_end) -> None:
    """Remove a directory in which hostile code has worked: any depth, any mode bits, no link followed.

    If `root` itself is a link, the link is removed and its target stays. Raises Unfinished if `go_on` returns
    False.
    """
    # Several rounds: the next round handles what another process writes or removes meanwhile.
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
    """Move inner directories up to the top, so that ten thousand levels need no recursion."""
    # A random name, so that hostile code cannot have taken it already.
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
        # Only a directory gives this error; a link gives another one. The mode bits deny us access.
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _unlink_files(directory: int, go_on: GoOn) -> list[str]:
    """Remove all other entries while the directory is listed, and return the names of the directories."""
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
    """Removes directories on its own thread, so that no case waits for the files that hostile code left."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def sweep(self, path: str) -> None:
        """Remove a directory later. What cannot be removed stays in its place."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="codegenie-sweeper", daemon=True)
            self._thread.start()
        self._waiting.put(path)

    def close(self) -> None:
        """Stop at once. The rest is removed together with the run directory."""
        self._stopped = True
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (path := self._waiting.get()) is not None and not self._stopped:
            with suppress(OSError, Unfinished):
                remove_tree(path, lambda: not self._stopped)
