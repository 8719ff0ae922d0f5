"""Reads the files that a step is asked for, out of a workspace in which everything has ended.

By descriptor, never through a link, and never waiting: a program may have put anything there.
"""

import os
import stat
from collections.abc import Iterable

from codegenie.eval.limits import LIMITS

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_outputs(workspace: int, paths: Iterable[str], room: int) -> dict[str, str | None]:
    """Return the texts of files by path; None for what is missing, too large, not text or not a file.

    `room` is how many bytes all of them may have.
    """
    found: dict[str, str | None] = {}
    for path in paths:
        content = _content(workspace, path, min(LIMITS.step_file_bytes, room))
        room -= 0 if content is None else len(content)
        found[path] = None if content is None else _text(content)
    return found


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _content(workspace: int, path: str, most: int) -> bytes | None:
    *folders, name = path.split("/")
    descriptor = os.dup(workspace)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        return _regular(descriptor, name, most)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _regular(folder: int, name: str, most: int) -> bytes | None:
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(most)
    finally:
        os.close(descriptor)
