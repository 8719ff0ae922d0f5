"""Walks and reads that never follow a symbolic link.

This module does not depend on benches. A directory from outside is walked by descriptors, never by joined
paths: if another process puts a symbolic link into the path meanwhile, the kernel refuses it.
"""

import errno
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from codegenie.eval.limits import LIMITS, TreeLimits

# Printable ASCII without slashes, and no space at either end: `[id].tsx` is allowed, an escape code is not.
_PLAIN_NAME = re.compile(r"(?! )[ -.0-\[\]-~]+(?<! )", re.ASCII)
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a pipe has taken the place of a file, opening it must not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
# The errors of opening a link, a socket and a device without a driver.
_NO_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}
# The cause of these is the machine and not the tree. They stay OSErrors, so that no bench is blamed for them.
_OUR_OWN_TROUBLE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR}


class UnsafeTree(Exception):  # noqa: N818 - a refusal, given its final type by the caller
    """A directory holds an entry that the harness refuses to open."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class TreeTooLarge(UnsafeTree):
    """The whole tree is over a cap. This ends every walk, even one that goes on after other refusals."""


Refusal = Callable[[UnsafeTree], object]
"""Is called with an entry that is refused. It raises, or it returns and the walk goes on after the entry."""


def stop_at(unsafe: UnsafeTree) -> NoReturn:
    """End a walk at the first entry that is refused."""
    raise unsafe


def _refusal(error: OSError, path: str, problem: str) -> Exception:
    if error.errno in _OUR_OWN_TROUBLE:
        return error
    return UnsafeTree(path, f"{problem}: {error.strerror}")


class FoundFile(NamedTuple):
    """A regular file, open for reading until the walk goes on."""

    path: str
    executable: bool
    size: int
    descriptor: int

    def chunks(self) -> Iterable[bytes]:
        """Return the content, exactly `size` bytes. Raises UnsafeTree if the file changes meanwhile."""
        return self._pieces() if self.size >= _CHUNK else (self._rest(self.size),)

    def _pieces(self) -> Iterator[bytes]:
        remaining = self.size
        while remaining >= _CHUNK:
            chunk = os.read(self.descriptor, _CHUNK)
            if not chunk:
                raise UnsafeTree(self.path, "became shorter while it was read")
            remaining -= len(chunk)
            yield chunk
        yield self._rest(remaining)

    def _rest(self, remaining: int) -> bytes:
        # One byte more than expected: the call that reads the last byte also shows that no more follow.
        rest = os.read(self.descriptor, remaining + 1)
        while rest and len(rest) < remaining:
            more = os.read(self.descriptor, remaining + 1 - len(rest))
            if not more:
                break
            rest += more
        if len(rest) != remaining:
            raise UnsafeTree(self.path, "changed its size while it was read")
        return rest

    def content(self) -> bytes:
        """Return the whole content at once, for files whose cap fits into memory."""
        return self._rest(self.size)


class _FoundDirectory(NamedTuple):
    """A directory, open until the walk has left it."""

    descriptor: int


class _Walk:
    """One walk with its running totals."""

    def __init__(self, limits: TreeLimits, refused: Refusal) -> None:
        self._limits = limits
        self._refused = refused
        self._files = 0
        self._directories = 0
        self._bytes = 0

    def files(self, directory: int, prefix: str, depth: int) -> Iterator[FoundFile]:
        for name in self._names(directory, prefix):
            path = prefix + name
            try:
                opened = self._opened(name, directory, path, depth)
            except TreeTooLarge:
                raise
            except UnsafeTree as unsafe:
                self._refused(unsafe)
                continue
            try:
                if isinstance(opened, FoundFile):
                    yield opened
                else:
                    yield from self.files(opened.descriptor, path, depth + 1)
            finally:
                os.close(opened.descriptor)

    def _opened(self, name: str, directory: int, path: str, depth: int) -> FoundFile | _FoundDirectory:
        """Open a file or a directory, after all checks of its name and kind."""
        if len(path) > LIMITS.path_characters:
            raise UnsafeTree(f"{path[:80]}…", f"has a path of more than {LIMITS.path_characters} characters")
        if name[-1] == "/":
            self._count_directory(path[:-1], depth)
            # Without the final slash: with it the kernel would follow a link.
            return _FoundDirectory(_open_at(name[:-1], directory, path[:-1], _OPEN_DIRECTORY))
        descriptor = _open_at(name, directory, path, _OPEN_FILE)
        try:
            return self._counted(descriptor, path)
        except UnsafeTree:
            os.close(descriptor)
            raise

    def _names(self, directory: int, prefix: str) -> list[str]:
        """List a directory in order of path bytes; the names of directories end in a slash."""
        with os.scandir(directory) as scan:
            listed = list(itertools.islice(scan, self._limits.files + 1))
        if len(listed) > self._limits.files:
            raise TreeTooLarge(prefix, f"holds more than {self._limits.files} entries")
        plain, unsafe = [], []
        for entry in listed:
            try:
                plain.append(_plain_name(entry, prefix))
            except UnsafeTree as odd:
                unsafe.append(odd)
        # Sorted, so that two walks of one directory report the same entry first.
        for refusal in sorted(unsafe, key=str):
            self._refused(refusal)
        return sorted(plain)

    def _count_directory(self, path: str, depth: int) -> None:
        self._directories += 1
        if self._directories > self._limits.files:
            raise TreeTooLarge(path, f"is one directory more than the {self._limits.files} allowed")
        if depth >= self._limits.depth:
            raise UnsafeTree(path, f"is more than {self._limits.depth} directories deep")

    def _counted(self, descriptor: int, path: str) -> FoundFile:
        found = _plain_file(descriptor, path, self._limits.file_bytes)
        self._files += 1
        self._bytes += found.size
        if self._files > self._limits.files:
            raise TreeTooLarge(path, f"is one file more than the {self._limits.files} allowed")
        if self._bytes > self._limits.total_bytes:
            raise TreeTooLarge(path, f"makes the tree larger than {self._limits.total_bytes} bytes")
        return found


def _plain_name(entry: os.DirEntry[str], prefix: str) -> str:
    """Refuse an entry by name or kind before it is opened. The listing holds both, without another call."""
    name = entry.name
    if not _PLAIN_NAME.fullmatch(name):
        raise UnsafeTree(prefix + ascii(name), "is not a plain ASCII name")
    try:
        if entry.is_file(follow_symlinks=False):
            return name
        if entry.is_dir(follow_symlinks=False):
            return name + "/"
        link = entry.is_symlink()
    except OSError as error:
        raise _refusal(error, prefix + name, "cannot be examined") from None
    raise UnsafeTree(
        prefix + name, "is a symbolic link" if link else "is neither a regular file nor a directory"
    )


def _open_at(name: str, directory: int, path: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise _refusal(error, path, "cannot be opened") from None


def _plain_file(descriptor: int, path: str, limit: int) -> FoundFile:
    """Check that an open file is regular, has one name and is within its cap.

    The descriptor is checked and not the name, because the name may now mean another file.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(path, "was replaced while it was opened")
    if status.st_nlink != 1:
        raise UnsafeTree(path, "has more than one hard link")
    if status.st_size > limit:
        raise UnsafeTree(path, f"is larger than {limit} bytes")
    return FoundFile(path, bool(status.st_mode & 0o111), status.st_size, descriptor)


def walk_files(root: Path | str, limits: TreeLimits, refused: Refusal = stop_at) -> Iterator[FoundFile]:
    """Yield every file below `root`, open, in order of path bytes, within the limits, never through a link.

    An entry that is refused ends the walk with UnsafeTree, unless `refused` returns: then it is left out.
    """
    with opened_directory(root) as descriptor:
        yield from _Walk(limits, refused).files(descriptor, "", 1)


def open_directory(path: Path | str, parent: int | None = None) -> int:
    """Open a directory, in an open one if `parent` is given. Raises UnsafeTree if it is a link."""
    try:
        return os.open(path, _OPEN_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if parent is None and os.path.islink(path):
            raise UnsafeTree("", "is a symbolic link") from None
        raise _refusal(error, "", "cannot be opened as a directory") from None


@contextmanager
def opened_directory(path: Path | str) -> Iterator[int]:
    """Give a descriptor of a directory, and close it. Raises UnsafeTree if the path is a link."""
    descriptor = open_directory(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_plain_file(directory: int, name: str, limit: int) -> bytes | None:
    """Read a regular file of an open directory; None if it does not exist.

    Raises UnsafeTree if it is not a regular file with one name within its cap.
    """
    try:
        # The kind is checked first, because opening a device can have an effect.
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(error, name, "cannot be examined") from None
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(name, "is not a regular file")
    descriptor = _open_at(name, directory, name, _OPEN_FILE)
    try:
        return _plain_file(descriptor, name, limit).content()
    finally:
        os.close(descriptor)


@contextmanager
def open_plain_file(directory: int, name: str) -> Iterator[int]:
    """Give a descriptor of a regular file with one name in an open directory, or raise UnsafeTree."""
    descriptor = _open_at(name, directory, name, _OPEN_FILE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise UnsafeTree(name, "is not a regular file with one name")
        yield descriptor
    finally:
        os.close(descriptor)


def entry_kinds(directory: int, limit: int) -> dict[str, str]:
    """Return the kind of each entry of an open directory: "file", "directory" or "other".

    Raises UnsafeTree if there are more than `limit` entries.
    """
    try:
        with os.scandir(directory) as scan:
            kinds = {entry.name: _kind(entry) for entry in itertools.islice(scan, limit + 1)}
    except OSError as error:
        raise _refusal(error, "", "cannot be listed") from None
    if len(kinds) > limit:
        raise UnsafeTree("", f"holds more than {limit} entries")
    return kinds


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def read_whole_file(path: Path | str, limit: int) -> bytes | None:
    """Read a regular file within its cap, never through a link or from a pipe; None if it does not exist."""
    try:
        descriptor = os.open(path, _OPEN_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise UnsafeTree(os.path.basename(path), "is not a regular file") from None
    try:
        return read_descriptor(descriptor, os.path.basename(path), limit)
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, name: str, limit: int) -> bytes:
    """Read an open file from its beginning, if it is a regular file within its cap."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(name, "is not a regular file")
    if status.st_size > limit:
        raise UnsafeTree(name, f"is larger than {limit} bytes")
    return FoundFile(name, executable=False, size=status.st_size, descriptor=descriptor).content()
