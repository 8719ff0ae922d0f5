"""No-follow walks and reads, private directories and their removal: the ground that effects stand on.

Knows nothing of benches. A directory from outside is walked by descriptor, never by joined path, so
that a symlink swapped in behind our back is refused by the kernel and not by luck.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.limits import TreeLimits

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.@+=,-][A-Za-z0-9_.@+=, -]*(?<! )", re.ASCII)
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should a pipe stand where a file stood, opening it must not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


class UnsafeTree(Exception):  # noqa: N818 - a refusal, given its final type by the caller
    """A directory that holds something which we will not open."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file, open for reading while the walk stands on it."""

    path: str
    executable: bool
    size: int
    descriptor: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the content, exactly `size` bytes; a file that changes while it is read is refused."""
        remaining = self.size
        while remaining >= _CHUNK:
            chunk = os.read(self.descriptor, _CHUNK)
            if not chunk:
                raise UnsafeTree(self.path, "became shorter while it was read")
            remaining -= len(chunk)
            yield chunk
        # One byte more than is left: the same call that reads the end also shows that it is the end.
        tail = os.read(self.descriptor, remaining + 1)
        while tail and len(tail) < remaining:
            more = os.read(self.descriptor, remaining + 1 - len(tail))
            if not more:
                break
            tail += more
        if len(tail) != remaining:
            raise UnsafeTree(self.path, "changed its size while it was read")
        yield tail

    def content(self) -> bytes:
        """Return all of it at once, for files whose cap is small."""
        return b"".join(self.chunks())


class _Walk:
    """One walk with its running totals."""

    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._files = 0
        self._bytes = 0

    def files(self, directory: int, prefix: str, depth: int) -> Iterator[FoundFile]:
        for name, status in self._entries(directory, prefix):
            path = prefix + name
            if stat.S_ISDIR(status.st_mode):
                if depth >= self._limits.depth:
                    raise UnsafeTree(path, f"is more than {self._limits.depth} directories deep")
                inner = _open_at(name, directory, path, _OPEN_DIRECTORY)
                try:
                    yield from self.files(inner, path + "/", depth + 1)
                finally:
                    os.close(inner)
                continue
            self._count(path, status)
            descriptor = _open_at(name, directory, path, _OPEN_FILE)
            try:
                yield _confirmed(descriptor, path, status)
            finally:
                os.close(descriptor)

    def _entries(self, directory: int, prefix: str) -> list[tuple[str, os.stat_result]]:
        """List a directory in order of path bytes: a directory sorts as if its name ended in a slash."""
        entries: list[tuple[str, os.stat_result]] = []
        with os.scandir(directory) as scan:
            for entry in scan:
                if len(entries) > self._limits.files:
                    raise UnsafeTree(prefix, f"holds more than {self._limits.files} entries")
                entries.append((entry.name, _plain_status(entry, prefix)))
        entries.sort(key=lambda item: item[0] + "/" if stat.S_ISDIR(item[1].st_mode) else item[0])
        return entries

    def _count(self, path: str, status: os.stat_result) -> None:
        self._files += 1
        self._bytes += status.st_size
        if self._files > self._limits.files:
            raise UnsafeTree(path, f"is one file more than the {self._limits.files} allowed")
        if status.st_size > self._limits.file_bytes:
            raise UnsafeTree(path, f"is larger than {self._limits.file_bytes} bytes")
        if self._bytes > self._limits.total_bytes:
            raise UnsafeTree(path, f"takes the tree over {self._limits.total_bytes} bytes")


def _plain_status(entry: os.DirEntry[str], prefix: str) -> os.stat_result:
    """Refuse by name, kind and link count, before anything is opened."""
    if not _PLAIN_NAME.fullmatch(entry.name):
        raise UnsafeTree(prefix + ascii(entry.name), "is not a plain ASCII name")
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return status
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeTree(prefix + entry.name, "is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeTree(prefix + entry.name, "is neither a regular file nor a directory")
    if status.st_nlink != 1:
        raise UnsafeTree(prefix + entry.name, "has more than one hard link")
    return status


def _open_at(name: str, directory: int, path: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise UnsafeTree(path, f"cannot be opened: {error.strerror}") from None


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
        raise UnsafeTree("", f"cannot be opened as a directory: {error.strerror}") from None


def read_plain_file(directory: int, name: str, limit: int) -> bytes | None:
    """Read one capped regular file of an open directory; None where there is none."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
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


def entry_kinds(directory: int) -> dict[str, str]:
    """Name everything in an open directory: "file", "directory" or "other"."""
    kinds = {}
    with os.scandir(directory) as scan:
        for entry in scan:
            status = entry.stat(follow_symlinks=False)
            plain = stat.S_ISREG(status.st_mode)
            kinds[entry.name] = "directory" if stat.S_ISDIR(status.st_mode) else "file" if plain else "other"
    return kinds


def write_private(
    path: str, chunks: Iterator[bytes] | tuple[bytes, ...], *, executable: bool = False
) -> None:
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


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file whole or not at all, durably."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    parent = os.open(path.parent, _OPEN_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def remove_tree(root: str) -> None:
    """Remove a directory in which hostile code has worked: any depth, any mode bits, no link followed.

    Directories found inside are moved up beside each other before they are emptied, so that ten
    thousand levels need neither recursion nor descriptors.
    """
    queue = [root]
    # A random name: what hostile code left behind may not stand in the way of the move.
    target = f"{root}/.removing-{os.urandom(8).hex()}"
    moved = 0
    while queue:
        directory = queue[-1]
        inner = []
        for name, is_directory in _names_for_removal(directory):
            path = f"{directory}/{name}"
            if not is_directory:
                os.unlink(path)
                continue
            moved += 1
            inner.append(_moved_up(path, f"{target}-{moved}"))
        if inner:
            queue.extend(inner)
            continue
        queue.pop()
        os.rmdir(directory)


def _moved_up(path: str, target: str) -> str:
    # Renaming a directory writes its "..", which needs permission on the directory itself.
    os.chmod(path, 0o700)
    os.rename(path, target)
    return target


def _names_for_removal(directory: str) -> list[tuple[str, bool]]:
    try:
        return _scan_for_removal(directory)
    except PermissionError:
        os.chmod(directory, 0o700)
        return _scan_for_removal(directory)


def _scan_for_removal(directory: str) -> list[tuple[str, bool]]:
    if not os.access(directory, os.W_OK | os.X_OK):
        os.chmod(directory, 0o700)
    with os.scandir(directory) as scan:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
