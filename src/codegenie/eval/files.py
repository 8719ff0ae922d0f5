"""No-follow walks and reads, private directories and their removal: the ground that effects stand on.

Knows nothing of benches. A directory from outside is walked by descriptor, never by joined path, so
that a symlink swapped in behind our back is refused by the kernel and not by luck.
"""

import errno
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from codegenie.eval.limits import LIMITS, TreeLimits

# Printable ASCII without slashes, and no space at either end: `[id].tsx` is a name, an escape is not.
_PLAIN_NAME = re.compile(r"(?! )[ -.0-\[\]-~]+(?<! )", re.ASCII)
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should a pipe stand where a file stood, opening it must not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
# What opening says of a link, of a socket and of a device without a driver.
_NO_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}
# Of these no tree is guilty; they stay OSErrors, so that nobody blames a bench for them.
_OUR_OWN_TROUBLE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR}
_REMOVAL_ROUNDS = 3


class UnsafeTree(Exception):  # noqa: N818 - a refusal, given its final type by the caller
    """A directory that holds something which we will not open."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def _refusal(error: OSError, path: str, problem: str) -> Exception:
    if error.errno in _OUR_OWN_TROUBLE:
        return error
    return UnsafeTree(path, f"{problem}: {error.strerror}")


class FoundFile(NamedTuple):
    """A regular file, open for reading while the walk stands on it."""

    path: str
    executable: bool
    size: int
    descriptor: int

    def chunks(self) -> Iterable[bytes]:
        """Give the content, exactly `size` bytes; a file that changes while it is read is refused."""
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
        # One byte more than is left: the same call that reads the end also shows that it is the end.
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
        """Return all of it at once, for files whose cap is small."""
        return b"".join(self.chunks())


class _Walk:
    """One walk with its running totals."""

    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._files = 0
        self._directories = 0
        self._bytes = 0

    def files(self, directory: int, prefix: str, depth: int) -> Iterator[FoundFile]:
        for name, status in self._entries(directory, prefix):
            path = prefix + name
            if len(path) > LIMITS.path_characters:
                raise UnsafeTree(
                    f"{path[:80]}…", f"has a path of more than {LIMITS.path_characters} characters"
                )
            if status is None:
                self._count_directory(path[:-1], depth)
                # Without the slash, with which the kernel would follow a link.
                inner = _open_at(name[:-1], directory, path[:-1], _OPEN_DIRECTORY)
                try:
                    yield from self.files(inner, path, depth + 1)
                finally:
                    os.close(inner)
                continue
            self._count(path, status)
            descriptor = _open_at(name, directory, path, _OPEN_FILE)
            try:
                yield _confirmed(descriptor, path, status)
            finally:
                os.close(descriptor)

    def _entries(self, directory: int, prefix: str) -> list[tuple[str, os.stat_result | None]]:
        """List a directory in order of path bytes; a directory's name ends in a slash and has no status."""
        with os.scandir(directory) as scan:
            listed = list(itertools.islice(scan, self._limits.files + 1))
        if len(listed) > self._limits.files:
            raise UnsafeTree(prefix, f"holds more than {self._limits.files} entries")
        return sorted([_plain_entry(entry, prefix) for entry in listed], key=itemgetter(0))

    def _count_directory(self, path: str, depth: int) -> None:
        self._directories += 1
        if depth >= self._limits.depth:
            raise UnsafeTree(path, f"is more than {self._limits.depth} directories deep")
        if self._directories > self._limits.files:
            raise UnsafeTree(path, f"is one directory more than the {self._limits.files} allowed")

    def _count(self, path: str, status: os.stat_result) -> None:
        self._files += 1
        self._bytes += status.st_size
        if self._files > self._limits.files:
            raise UnsafeTree(path, f"is one file more than the {self._limits.files} allowed")
        if status.st_size > self._limits.file_bytes:
            raise UnsafeTree(path, f"is larger than {self._limits.file_bytes} bytes")
        if self._bytes > self._limits.total_bytes:
            raise UnsafeTree(path, f"takes the tree over {self._limits.total_bytes} bytes")


def _plain_entry(entry: os.DirEntry[str], prefix: str) -> tuple[str, os.stat_result | None]:
    """Refuse by name, kind and link count, before anything is opened."""
    name = entry.name
    if not _PLAIN_NAME.fullmatch(name):
        raise UnsafeTree(prefix + ascii(name), "is not a plain ASCII name")
    try:
        if entry.is_dir(follow_symlinks=False):  # said by the listing; no further call
            return name + "/", None
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        raise _refusal(error, prefix + name, "cannot be looked at") from None
    if not stat.S_ISREG(status.st_mode):
        link = stat.S_ISLNK(status.st_mode)
        raise UnsafeTree(
            prefix + name, "is a symbolic link" if link else "is neither a regular file nor a directory"
        )
    if status.st_nlink != 1:
        raise UnsafeTree(prefix + name, "has more than one hard link")
    return name, status


def _open_at(name: str, directory: int, path: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise _refusal(error, path, "cannot be opened") from None


def _confirmed(descriptor: int, path: str, listed: os.stat_result) -> FoundFile:
    """Check on the descriptor what the listing said of the name."""
    status = os.fstat(descriptor)
    if (status.st_ino, status.st_dev) != (listed.st_ino, listed.st_dev) or not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(path, "was exchanged while it was opened")
    return FoundFile(path, bool(status.st_mode & 0o111), listed.st_size, descriptor)


def walk_files(root: Path | str, limits: TreeLimits) -> Iterator[FoundFile]:
    """Yield every file below `root` in order of path bytes, open, capped and never through a link."""
    descriptor = open_directory(root)
    try:
        yield from _Walk(limits).files(descriptor, "", 1)
    finally:
        os.close(descriptor)


def open_directory(path: Path | str) -> int:
    """Open a directory that is not itself a link."""
    try:
        return os.open(path, _OPEN_DIRECTORY)
    except OSError as error:
        if os.path.islink(path):
            raise UnsafeTree("", "is a symbolic link") from None
        raise _refusal(error, "", "cannot be opened as a directory") from None


def read_plain_file(directory: int, name: str, limit: int) -> bytes | None:
    """Read one capped regular file of an open directory; None where there is none."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(error, name, "cannot be looked at") from None
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(name, "is not a regular file")
    if status.st_nlink != 1:
        raise UnsafeTree(name, "has more than one hard link")
    if status.st_size > limit:
        raise UnsafeTree(name, f"is larger than {limit} bytes")
    descriptor = _open_at(name, directory, name, _OPEN_FILE)
    try:
        return _confirmed(descriptor, name, status).content()
    finally:
        os.close(descriptor)


def entry_kinds(directory: int, limit: int) -> dict[str, str]:
    """Name everything in an open directory, at most `limit` entries: "file", "directory" or "other"."""
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


def write_private(path: str, chunks: Iterable[bytes], *, executable: bool = False) -> None:
    """Create a file that only we may use; it must not exist."""
    descriptor = os.open(
        path,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o700 if executable else 0o600,
    )
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def read_whole_file(path: Path, limit: int) -> bytes | None:
    """Read a capped regular file, never through a link and never waiting; None where there is none."""
    try:
        descriptor = os.open(path, _OPEN_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise UnsafeTree(path.name, "is not a regular file") from None
    try:
        return read_descriptor(descriptor, path.name, limit)
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, name: str, limit: int) -> bytes:
    """Read an open file from its beginning, if it is a regular one within its cap."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(name, "is not a regular file")
    if status.st_size > limit:
        raise UnsafeTree(name, f"is larger than {limit} bytes")
    return FoundFile(name, executable=False, size=status.st_size, descriptor=descriptor).content()


@contextmanager
def written_beside(path: Path, content: bytes, *, durable: bool = True) -> Iterator[Path]:
    """Give a new file next to `path` that holds `content`, to be moved or linked into its place."""
    # Chance and not the process id, which comes again after a crash, and in two containers at once.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file whole or not at all; by default it is on the disk when this returns."""
    with written_beside(path, content, durable=durable) as temporary:
        temporary.replace(path)
    if durable:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Put a file's content, or a directory's names, on the disk."""
    descriptor = os.open(path, _OPEN_FILE)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(root: str) -> None:
    """Remove a directory in which hostile code has worked: any depth, any mode bits, no link followed.

    Should a link stand where `root` was, the link goes and what it names stays.
    """
    # Several rounds: what somebody writes or removes meanwhile is met by the next.
    for rounds_left in reversed(range(_REMOVAL_ROUNDS)):
        try:
            _remove(root)
        except OSError:
            if not rounds_left:
                raise
        else:
            return


def _remove(root: str) -> None:
    try:
        top = _open_for_removal(root, None)
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        os.unlink(root)
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(root)


def _empty(top: int) -> None:
    """Move inner directories up beside each other, so that ten thousand levels need no recursion."""
    # A random name: what hostile code left behind may not stand in the way of the move.
    fresh = f".removing-{os.urandom(8).hex()}"
    moved = itertools.count()
    waiting = _unlink_files(top)
    while waiting:
        name = waiting.pop()
        inner = _open_for_removal(name, top)
        try:
            for directory in _unlink_files(inner):
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


def _unlink_files(directory: int) -> list[str]:
    """Remove everything but directories, while it is listed, and name the directories."""
    directories = []
    with os.scandir(directory) as scan:
        for entry in scan:
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
