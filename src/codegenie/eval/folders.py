"""The directories in which the harness keeps its records."""

import os
from contextlib import suppress
from pathlib import Path

_OWN = ".codegenie"
_NOTE = b"# Made by codegenie: records of runs are no part of your sources.\n*\n"


def make_folder(path: Path) -> None:
    """Make a directory and what is missing above it; a `.codegenie` that is made tells git to ignore it.

    Only a directory of that name: what else somebody names with --out or --cache is theirs.
    """
    own = next((place for place in (path, *path.parents) if place.name == _OWN), None)
    is_new = own is not None and not os.path.lexists(own)
    path.mkdir(parents=True, exist_ok=True)
    if own is None or not is_new:
        return
    # A courtesy: where it cannot be written, the record that comes next says what is wrong.
    with suppress(OSError), open(own / ".gitignore", "xb") as file:
        file.write(_NOTE)
