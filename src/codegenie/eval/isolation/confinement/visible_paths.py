"""The files that a confined interpreter needs: itself, its library, its shared objects, devices."""

import os
from collections.abc import Iterator, Mapping

from codegenie.eval.isolation.confinement.landlock import EXECUTE, READ, READ_DIR, READ_FILE, WRITE_FILE

BOX = "/box"
ROOM = "/box/case"
"""Where the private directory is mounted. Landlock's rule is on the parent, because a rule on the mount point
itself does not apply to what is mounted there."""

DEVICES = {"/dev/null": READ_FILE | WRITE_FILE, "/dev/zero": READ_FILE, "/dev/urandom": READ_FILE}

# The directory in which programs look for their loader, and data that the standard library reads.
_ALSO = ("/lib64", "/usr/lib/locale", "/usr/share/zoneinfo")
_LINKS = ("/lib", "/lib64")
_NOT_OURS = ("site-packages", "dist-packages")


def readable(interpreter: str) -> dict[str, int]:
    """Return the readable paths with the rights on them. No path lies below another.

    They are neither the whole of /usr/lib nor installed packages: a secret may lie there.
    """
    objects = _shared_objects()
    # An interpreter with its own prefix has a shared object in the directory above its library. Only that
    # file is readable, not the whole directory.
    above = {path for path in objects if _standard_library().startswith(f"{os.path.dirname(path)}/")}
    places = (*_directories(objects - above), *_ALSO)
    directories = {os.path.realpath(path) for path in places if os.path.isdir(path)}
    paths = {path: READ for path in sorted(directories) if not _inside(path, directories)}
    paths |= dict.fromkeys(above, READ_FILE)
    programs = (interpreter, *(path for path in objects if os.path.basename(path).startswith("ld-")))
    return paths | dict.fromkeys(programs, READ_FILE | EXECUTE)


def without_packages(paths: Mapping[str, int]) -> dict[str, int]:
    """Return the readable paths, with the library entry by entry if packages lie below it."""
    library = _standard_library()
    if not masked() or library not in paths:
        return dict(paths)
    entries = {f"{library}/{name}": READ for name in os.listdir(library) if name not in _NOT_OURS}
    return {**paths, library: READ_DIR, **entries}


def masked() -> list[str]:
    """Return the directories below the library that hold installed packages."""
    places = (f"{_standard_library()}/{name}" for name in _NOT_OURS)
    return [path for path in places if os.path.isdir(path)]


def links() -> dict[str, str]:
    """Return the links by which programs name their loader."""
    return {path: os.readlink(path) for path in _LINKS if os.path.islink(path)}


def _standard_library() -> str:
    return os.path.dirname(os.path.realpath(os.__file__))


def _directories(objects: set[str]) -> Iterator[str]:
    yield _standard_library()
    yield from map(os.path.dirname, objects)


def _shared_objects() -> set[str]:
    """Return the shared objects that this interpreter has loaded. A copy finds others beside them."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        fields = [line.rstrip("\n").split(None, 5) for line in maps]
    files = {name for _, rights, *_, name in fields if "x" in rights and name.startswith("/")}
    return {os.path.realpath(path) for path in files if ".so" in os.path.basename(path)}


def _inside(path: str, others: set[str]) -> bool:
    return any(path.startswith(f"{other}/") for other in others)
