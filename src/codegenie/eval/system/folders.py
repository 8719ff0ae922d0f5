"""The directories in which the harness keeps its records."""

import errno
import os
from contextlib import suppress
from pathlib import Path

_OWN = ".codegenie"
_NOTE = b"# Made by codegenie: records of runs are no part of your sources.\n*\n"


def make_folder(path: Path) -> None:
    """Make a directory and what is missing above it, for us alone whatever the umask says.

    A `.codegenie` that is made tells git to ignore it. Only a directory of that name: what else somebody
    names with --out or --cache is theirs.
    """
    if path.is_dir():
        return
    own = next((place for place in (path, *path.parents) if place.name == _OWN), None)
    is_new = own is not None and not os.path.lexists(own)
    for place in reversed((path, *path.parents)):
        _make_private(place)
    if own is None or not is_new:
        return
    # A courtesy: where it cannot be written, the record that comes next says what is wrong.
    with suppress(OSError), open(own / ".gitignore", "xb", opener=_private) as file:
        file.write(_NOTE)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _make_private(place: Path) -> None:
    if place.is_dir():
        return
    try:
        place.mkdir(0o700)
    except FileExistsError:
        # Another process was faster, or there is something else in its place.
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place)) from None
    else:
        # A umask that takes the owner's own rights away would leave a directory that nobody can use.
        place.chmod(0o700)
