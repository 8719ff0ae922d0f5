"""Looks at the processes and the private directories of a box, from its first process. Standard library only.

What no limit of the kernel caps is watched: the memory of all processes together, and, where the workspace is
a directory on disk, its size.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

# Of /proc/PID/stat after the name.
_STATE, _PARENT, _THREADS = 0, 1, 17
_MEMORY_FIELDS = (b"RssAnon:", b"RssShmem:")
_MEMORY_FILE = "/memfd:"
_BLOCK = 512
_CLOCK_OF_ALL_THREADS = 2
_SIZES = {"rss", "cbytes", "qnum"}
_PER_MESSAGE, _PER_QUEUE = 64, 512
_DEEPEST = 256
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REOPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LISTED = 0o500


def descendants(top: int) -> list[int]:
    """Return the living processes below one process, at any depth."""
    if not os.path.exists(f"/proc/{top}/task/{top}/children"):
        return _found_by_parents(top)
    found, waiting = [], [top]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return [number for number in found if _is_alive(_fields(number))]


def children_of(top: int) -> list[int]:
    """Return the living processes directly below one process."""
    if not os.path.exists(f"/proc/{top}/task/{top}/children"):
        return [number for number in _numbers() if _is_child(number, top)]
    return [number for number in _children(top) if _is_alive(_fields(number))]


def _is_child(number: int, top: int) -> bool:
    fields = _fields(number)
    return _is_alive(fields) and int(fields[_PARENT]) == top


def _children(number: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{number}/task"):
            found += map(int, _read(f"/proc/{number}/task/{thread}/children").split())
    return found


def _found_by_parents(top: int) -> list[int]:
    """Find them where the kernel lists no children, by a look at every process."""
    children: dict[int, list[int]] = {}
    for number in _numbers():
        fields = _fields(number)
        if _is_alive(fields):
            children.setdefault(int(fields[_PARENT]), []).append(number)
    found, waiting = [], [top]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _is_alive(fields: list[str]) -> bool:
    """Say whether anything of a process can still run: its first thread may have ended before the others."""
    if len(fields) <= _THREADS:
        return False
    return fields[_STATE] not in {"Z", "X"} or int(fields[_THREADS]) > 1


class Stillness:
    """Knows whether anything in a box has run since its processes were looked at.

    Only what runs can take memory or room, or start another process. A sleeping agent is looked at by one
    call of the kernel for each of its processes: full looks at hundreds of them would take a tenth of a core.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, int | None] = {}
        self._is_sure = False

    def looked(self, numbers: Sequence[int]) -> None:
        """Take note of the processes that a full look has found.

        The first look reads their clocks. A process that was started before, and was not found yet, is found
        by the second. So only a second look with the same processes, whose clocks stand still, is sure.
        """
        self._is_sure = bool(numbers) and self._clocks.keys() == set(numbers) and self._clocks_stand_still()
        if not self._is_sure:
            self._clocks = {number: _processor_time(number) for number in numbers}

    def lasts(self) -> bool:
        """Say whether nothing has run since the last look that was sure."""
        self._is_sure = self._is_sure and self._clocks_stand_still()
        return self._is_sure

    def _clocks_stand_still(self) -> bool:
        return all(
            before is not None and _processor_time(number) == before
            for number, before in self._clocks.items()
        )


def _processor_time(number: int) -> int | None:
    """Return the time that all threads of a process have run, ended ones included; None if it has ended."""
    try:
        # The clock of another process, as clock_getcpuclockid(3) names it.
        return time.clock_gettime_ns(~number << 3 | _CLOCK_OF_ALL_THREADS)
    except OSError:
        return None


def memory_of(numbers: Sequence[int]) -> int:
    """Return the bytes of memory that these processes hold, files that exist in memory only included.

    A page that two processes share may count twice.
    """
    files: dict[tuple[int, int], int] = {}
    total = 0
    for number in numbers:
        for place in _parts(number):
            resident = _resident(place)
            if resident is not None:
                total += resident
                files |= _files_in_memory(place)
                break
    return total + sum(files.values())


def _parts(number: int) -> Iterator[str]:
    """Yield where /proc describes a process: its first thread, which may have ended, and the others."""
    yield f"/proc/{number}"
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{number}/task"):
            yield f"/proc/{number}/task/{thread}"


def in_segments() -> int:
    """Return the bytes in segments and queues of System V, which no process has to hold.

    A page of a segment that is attached counts twice. Queues are counted with what the kernel adds to each.
    """
    segments, queues = (_rows_of(f"/proc/sysvipc/{name}") for name in ("shm", "msg"))
    return sum(row["rss"] for row in segments) + sum(
        row["cbytes"] + row["qnum"] * _PER_MESSAGE + _PER_QUEUE for row in queues
    )


def _rows_of(path: str) -> list[dict[str, int]]:
    lines: list[str] = []
    with suppress(OSError):
        lines = _read(path).decode("ascii").splitlines()
    return [
        {
            name: int(value)
            for name, value in zip(lines[0].split(), line.split(), strict=True)
            if name in _SIZES
        }
        for line in lines[1:]
    ]


def without_a_name(numbers: Sequence[int]) -> int:
    """Return the bytes in files on disk that these processes hold and that no directory names."""
    files: dict[tuple[int, int], int] = {}
    for number in numbers:
        files |= {
            (there.st_dev, there.st_ino): there.st_blocks * _BLOCK
            for place in _parts(number)
            for path, there in _open_files(place)
            if stat.S_ISREG(there.st_mode) and not there.st_nlink and not path.startswith(_MEMORY_FILE)
        }
    return sum(files.values())


def used(mounts: Sequence[str]) -> int:
    """Return the bytes that these private file systems hold."""
    found = [os.statvfs(path) for path in mounts]
    return sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in found)


def is_larger(directory: int, most_bytes: int, most_entries: int) -> bool:
    """Return whether a directory on disk holds more than this. What vanishes meanwhile does not count."""
    size = 0
    for entries, blocks in enumerate(_sizes(directory), start=1):
        size += blocks
        if size > most_bytes or entries > most_entries:
            return True
    return False


def _sizes(top: int) -> Iterator[int]:
    """Yield the size of every entry, with one directory open for each level."""
    levels = [_Level(top)]
    try:
        while levels:
            entry = levels[-1].next()
            if entry is None:
                levels.pop().close()
                continue
            yield _size(entry)
            inner = levels[-1].opened(entry)
            if inner is not None:
                levels.append(inner)
            if len(levels) > _DEEPEST:
                # Nothing honest is that deep, and more could be hidden further down.
                yield sys.maxsize
    finally:
        for level in levels:
            level.close()


class _Level:
    """One directory that is being listed. What vanishes is left out.

    A directory may be closed to its own user, who can still write into it. Then it is opened, and closed
    again when it has been listed. The descriptor is the directory itself: a name could be a link by now.
    """

    def __init__(self, place: int) -> None:
        itself = f"/proc/self/fd/{place}"
        self._mode = stat.S_IMODE(os.fstat(place).st_mode)
        closed = self._mode & _LISTED != _LISTED
        self._is_opened = False
        if os.geteuid() != 0 and closed:
            os.chmod(itself, self._mode | _LISTED)
            self._is_opened = True
        self._descriptor = os.open(itself, _REOPEN)
        self._scan = os.scandir(self._descriptor)

    def next(self) -> "os.DirEntry[str] | None":
        with suppress(OSError):
            return next(self._scan, None)
        return None

    def opened(self, entry: "os.DirEntry[str]") -> "_Level | None":
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                place = os.open(entry.name, _PLACE, dir_fd=self._descriptor)
                try:
                    return _Level(place)
                finally:
                    os.close(place)
        return None

    def close(self) -> None:
        self._scan.close()
        if self._is_opened:
            with suppress(OSError):
                os.fchmod(self._descriptor, self._mode)
        os.close(self._descriptor)


def _size(entry: "os.DirEntry[str]") -> int:
    with suppress(OSError):
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return 0


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _fields(number: int) -> list[str]:
    with suppress(OSError):
        return _read(f"/proc/{number}/stat").decode(errors="replace").rpartition(")")[2].split()
    return []


def _resident(place: str) -> int | None:
    """Return the bytes that a process has in memory; None if this thread of it has ended."""
    lines: list[bytes] = []
    with suppress(OSError):
        lines = _read(f"{place}/status").splitlines()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(_MEMORY_FIELDS)]
    return sum(found) if found else None


def _files_in_memory(place: str) -> dict[tuple[int, int], int]:
    """Return the anonymous files that a process has open, with their sizes."""
    return {
        (there.st_dev, there.st_ino): there.st_blocks * _BLOCK
        for path, there in _open_files(place)
        if path.startswith(_MEMORY_FILE)
    }


def _open_files(place: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield where each file lies that a process has open, and what it is."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(f"{place}/fd")
    for path in (f"{place}/fd/{name}" for name in names):
        with suppress(OSError):
            yield os.readlink(path), os.stat(path)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 14), b""))
    finally:
        os.close(descriptor)
