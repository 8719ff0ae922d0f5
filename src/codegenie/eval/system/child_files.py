"""Anonymous files for the standard streams of a child, read after it has ended."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from codegenie.eval.errors import HarnessFailure


@contextmanager
def stream_file(content: bytes = b"") -> Iterator[int]:
    """Give a descriptor of an anonymous file, for one standard stream of a child.

    Raises HarnessFailure if the file cannot be made.
    """
    try:
        descriptor = _anonymous_file()
    except OSError as error:
        raise HarnessFailure(f"cannot make a file for a child's stream: {error}") from None
    try:
        _fill(descriptor, content)
        yield descriptor
    finally:
        os.close(descriptor)


def _fill(descriptor: int, content: bytes) -> None:
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError as error:
        raise HarnessFailure(f"cannot write a child's input: {error}") from None


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stream", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def read_head(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes and whether there were more. Call it after the writer has ended."""
    size = os.fstat(descriptor).st_size
    # The buffer has only the size that is needed: one of a megabyte costs more than the rest of the read.
    return os.pread(descriptor, min(size, limit), 0), size > limit


def read_tail(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return the last `limit` bytes and whether there were more. Call it after the writer has ended."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, limit, max(0, size - limit)), size > limit
