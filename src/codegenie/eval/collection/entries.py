"""Opens the entries of a workspace by descriptor, as what they are, and never through a link.

Nothing here waits: a pipe, a socket and a device are known by their status and are not opened. If an entry is
replaced between two calls, the second call looks again at what it got.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_FOLDER = 0o700
_OWN_FILE = 0o600
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class OpenFile(NamedTuple):
    """A regular file, open for reading, and its status before its mode was changed to open it."""

    descriptor: int
    status: os.stat_result


class NotAFile(Exception):  # noqa: N818 - says what was found instead
    """What was to be opened is another kind of entry."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def text_of(name: str) -> str:
    """Return a name that the system gave as UTF-8, whatever the locale is. Odd bytes become surrogates."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def bytes_of(name: str) -> bytes:
    """Return the bytes of a name that `text_of` returned."""
    return name.encode("utf-8", "surrogateescape")


def status_of(folder: int, name: str) -> os.stat_result | None:
    """Return the status of an entry itself; None if there is none.

    Raises OSError if it cannot be examined.
    """
    try:
        return os.stat(bytes_of(name), dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def kind_of(status: os.stat_result) -> str:
    """Return what an entry is: file, folder, symlink, fifo, socket or device."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "device")


def link_target(folder: int, name: str) -> str:
    """Return where a link points. Raises OSError if it is not a link."""
    return os.readlink(bytes_of(name), dir_fd=folder).decode("utf-8", "replace")


class Listing(NamedTuple):
    """The names in a folder, in order, and those of them that may be folders themselves."""

    names: list[str]
    folders: set[str]
    # Whether there are more names than were asked for.
    has_more: bool


def names_in(folder: int, most: int) -> Listing:
    """List a folder. If it has more than `most` entries, some are left out."""
    names: list[str] = []
    folders: set[str] = set()
    has_more = False
    with os.scandir(folder) as listing:
        for entry in listing:
            if len(names) == most:
                has_more = True
                break
            names.append(text_of(entry.name))
            if _may_be_folder(entry):
                folders.add(names[-1])
    return Listing(sorted(names), folders, has_more)


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Read it from the list itself. Only a file system that does not list kinds is asked for the entry."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return True


def open_folder(parent: int, name: str) -> int:
    """Open a folder so that its entries can be examined, also if its owner has closed it.

    Raises OSError if it is not a folder, or cannot be opened.
    """
    try:
        descriptor = os.open(bytes_of(name), _FOLDER, dir_fd=parent)
    except PermissionError:
        _open_up(parent, name, _OWN_FOLDER)
        descriptor = os.open(bytes_of(name), _FOLDER, dir_fd=parent)
    # A folder that can be listed but not searched would hide what its entries are.
    with suppress(OSError):
        if os.fstat(descriptor).st_mode & _OWN_FOLDER != _OWN_FOLDER:
            os.fchmod(descriptor, _OWN_FOLDER)
    return descriptor


def open_workspace(workspace: int) -> int:
    """Open the folder that a descriptor stands for, once more and for reading."""
    try:
        return open_folder(workspace, ".")
    except PermissionError:
        _own_mode(workspace, _OWN_FOLDER)
        return open_folder(workspace, ".")


def open_file(folder: int, name: str, before: os.stat_result) -> OpenFile:
    """Open a regular file, which had the status `before`; the caller closes it.

    Raises NotAFile if it is something else by now, and OSError.
    """
    descriptor = _open_plain(folder, name)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise NotAFile(kind_of(status))
    # The mode is that of before: it may have been changed here, so that the file could be opened.
    return OpenFile(descriptor, before if _same(before, status) else status)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino, one.st_size) == (other.st_dev, other.st_ino, other.st_size)


def _open_plain(folder: int, name: str) -> int:
    try:
        return os.open(bytes_of(name), _FILE, dir_fd=folder)
    except PermissionError:
        _open_up(folder, name, _OWN_FILE)
        return os.open(bytes_of(name), _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAFile("symlink") from None
        raise


def _open_up(folder: int, name: str, mode: int) -> None:
    """Give the owner back the right to read. Raises OSError if this process is not the owner."""
    place = os.open(bytes_of(name), _PLACE, dir_fd=folder)
    try:
        _own_mode(place, mode)
    finally:
        os.close(place)


def _own_mode(place: int, mode: int) -> None:
    # The path of a descriptor means the entry itself. A name could mean a link to another file by now.
    if not stat.S_ISLNK(os.fstat(place).st_mode):
        os.chmod(f"/proc/self/fd/{place}", mode)
