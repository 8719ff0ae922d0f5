"""A directory in one anonymous file: packed by the harness, unpacked by the process that will work in it.

Standard library only, because the process that unpacks is confined. So the bytes of a case are never on a
disk, and never in the memory of a process that outlives the case.
"""

import mmap
import os
import struct
from collections.abc import Iterable, Iterator

_HEAD = struct.Struct("<IQ")  # entries, bytes once every file takes whole pages
_ENTRY = struct.Struct("<HQB")  # length of the path, length of the content, kind
_FILE, _PROGRAM, _DIRECTORY = 0, 1, 2
# The unit in which the file system allocates: 64 KiB on some machines.
_PAGE = mmap.PAGESIZE
_MODES = {_FILE: 0o600, _PROGRAM: 0o700}
# Many small writes cost more than copying the bytes together.
_FLUSH_BYTES = 1 << 18


class Packer:
    """Writes a packed tree, entry by entry; a directory comes before its entries."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._entries = 0
        self._room = 0
        self._pending = [bytes(_HEAD.size)]
        self._pending_bytes = 0

    def directory(self, path: str) -> None:
        """Add a directory."""
        self._begin(path, 0, _DIRECTORY)

    def file(self, path: str, size: int, chunks: Iterable[bytes], *, executable: bool = False) -> None:
        """Add a file of exactly this size."""
        self._begin(path, size, _PROGRAM if executable else _FILE)
        for chunk in chunks:
            self._write(chunk)

    def ready(self, entries: int, room: int, packed: bytes) -> None:
        """Add entries that were packed before."""
        self._entries += entries
        self._room += room
        self._write(packed)

    def close(self) -> None:
        """Write the rest, and the totals at the beginning."""
        self._flush()
        os.pwrite(self._descriptor, _HEAD.pack(self._entries, self._room), 0)

    def _begin(self, path: str, size: int, kind: int) -> None:
        name = os.fsencode(path)
        self._entries += 1
        self._room += _pages(size)
        self._write(_ENTRY.pack(len(name), size, kind) + name)

    def _write(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        if self._pending_bytes > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        view = memoryview(b"".join(self._pending))
        self._pending, self._pending_bytes = [], 0
        while view:
            view = view[os.write(self._descriptor, view) :]


def packed(files: Iterable[tuple[str, bytes]]) -> tuple[int, int, bytes]:
    """Return files as entries for any number of packed trees: their count, their size and their bytes."""
    pieces: list[bytes] = []
    made: set[str] = set()
    room = 0
    for path, content in files:
        for folder in _folders(path):
            if folder not in made:
                made.add(folder)
                pieces.append(_ENTRY.pack(len(os.fsencode(folder)), 0, _DIRECTORY) + os.fsencode(folder))
        name = os.fsencode(path)
        pieces += (_ENTRY.pack(len(name), len(content), _FILE) + name, content)
        room += _pages(len(content))
    entries = len(made) + (len(pieces) - len(made)) // 2
    return entries, room, b"".join(pieces)


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def measure(descriptor: int) -> tuple[int, int]:
    """Return how many entries a packed tree has, and how many bytes they take in a file system."""
    entries, room = _HEAD.unpack(os.pread(descriptor, _HEAD.size, 0))
    return entries, room


def unpack(descriptor: int) -> None:
    """Write the files of a packed tree into the working directory."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as parcel:
        for name, at, size, kind in _entries(parcel):
            if kind == _DIRECTORY:
                os.mkdir(name, 0o700)
            else:
                _write_file(name, parcel[at : at + size], _MODES[kind])


def files_of(descriptor: int) -> Iterator[tuple[str, bytes, bool]]:
    """Yield the files of a packed tree: path, content, and whether it can be executed."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as parcel:
        for name, at, size, kind in _entries(parcel):
            if kind != _DIRECTORY:
                yield os.fsdecode(name), parcel[at : at + size], kind == _PROGRAM


def paths_of(descriptor: int) -> list[str]:
    """Return the paths of the files of a packed tree. Nothing of their content is read."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as parcel:
        return [os.fsdecode(name) for name, _, _, kind in _entries(parcel) if kind != _DIRECTORY]


def content_of(descriptor: int, path: str) -> bytes | None:
    """Return the content of one file of a packed tree; None if there is no such file."""
    wanted = os.fsencode(path)
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as parcel:
        for name, at, size, kind in _entries(parcel):
            if name == wanted and kind != _DIRECTORY:
                return parcel[at : at + size]
    return None


def _entries(parcel: mmap.mmap | memoryview) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the entries of a packed tree: path, where its content begins, the size of it, and the kind."""
    at, end = _HEAD.size, len(parcel)
    while at < end:
        length, size, kind = _ENTRY.unpack_from(parcel, at)
        begin = at + _ENTRY.size + length
        yield bytes(parcel[begin - length : begin]), begin, size, kind
        at = begin + size


def _write_file(name: bytes, content: memoryview, mode: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)
