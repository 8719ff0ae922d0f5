"""Which directories the boxes of a run show: if one is replaced during the run, two agents are measured."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from codegenie.eval.errors import SutChanged


class ShownDirectories:
    """The directories at some paths, as device and number of each."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._found = _directories(paths)

    def check(self) -> None:
        """Raise SutChanged if another directory, or none, is at one of the paths now."""
        now = _directories(self._found)
        replaced = next((path for path, which in self._found.items() if now.get(path) != which), None)
        if replaced is not None:
            raise SutChanged(
                f"{replaced} is not the directory that it was when the run was started",
                where="readable",
                hint="start the run again, and do not update the agent during the run",
            )


def _directories(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return which directory is at each path now. What is not a directory, or a link to one, is left out."""
    found = {}
    for path in paths:
        with suppress(OSError):
            status = os.stat(path, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                found[path] = (status.st_dev, status.st_ino)
    return found
