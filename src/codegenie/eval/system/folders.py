"""The directories in which the harness keeps its records."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from codegenie.eval.errors import HarnessFailure, SettingsInvalid

_OWN = ".codegenie"
_NOTE = b"# Made by codegenie: records of runs are not part of your sources.\n*\n"


def make_folder(path: Path) -> None:
    """Make a directory and its missing parents, for our user alone, whatever the umask is.

    A new `.codegenie` gets a file that tells git to ignore it. Any other directory that is named with --out
    or --cache belongs to the user and gets no such file.
    """
    if path.is_dir():
        return
    own = next((place for place in (path, *path.parents) if place.name == _OWN), None)
    is_new = own is not None and not os.path.lexists(own)
    for place in reversed((path, *path.parents)):
        _make_private(place)
    if own is None or not is_new:
        return
    # Only a help for the user: if this cannot be written, the next record fails and says what is wrong.
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
        # Another process has made it meanwhile, or a file has this name.
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place)) from None
    else:
        # A umask that removes the owner's own rights would make a directory that not even the owner can use.
        place.chmod(0o700)


def resolved(path: Path) -> Path:
    """Return where a path leads now, through every link in it. A path without links is returned as given.

    Raises HarnessFailure if the link leads nowhere, and SettingsInvalid if the path cannot be followed.
    """
    try:
        real = path.resolve()
        if path.is_symlink() and not real.exists():
            raise HarnessFailure(
                "the link has no target", where=str(path), hint="make the directory that it names"
            )
        return path if real == path.absolute() else real
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or "its symbolic links form a loop"
        raise SettingsInvalid(f"the path cannot be followed: {problem}", where=str(path)) from None
