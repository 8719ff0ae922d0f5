"""Writes of whole files: a reader finds the old file or the new one, and never a part of one."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_private(path: str, chunks: Iterable[bytes], *, executable: bool = False) -> None:
    """Create a file that only our user may use; it must not exist yet."""
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


@contextmanager
def written_beside(
    path: Path, chunks: Iterable[bytes], *, durable: bool = True, private: bool = True
) -> Iterator[Path]:
    """Give a new file next to `path` that holds `chunks`, to be moved or linked to `path`.

    With `private` only our user may use it, whatever the umask is. Without, it is a source file of the user.
    """
    # A random name and not the process id, which can repeat after a crash and in two containers.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600 if private else 0o644)
        with os.fdopen(descriptor, "wb") as file:
            if private:
                os.fchmod(descriptor, 0o600)
            file.writelines(chunks)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a private file completely or not at all; by default it is on the disk when this returns."""
    with written_beside(path, (content,), durable=durable) as temporary:
        temporary.replace(path)
    if durable:
        sync_path(path.parent)


def make_file_once(path: Path, content: bytes) -> None:
    """Make a private file, whole and on the disk, unless it is there or another process is faster."""
    with written_beside(path, (content,)) as temporary, suppress(FileExistsError):
        os.link(temporary, path)
    sync_path(path.parent)


def replace_file_in(directory: int, name: str, content: bytes) -> None:
    """Replace a file of an open directory completely or not at all; it is on disk when this returns."""
    temporary = f".{name}.{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=directory), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)


def sync_path(path: Path | str) -> None:
    """Write the content of a file, or the names of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
