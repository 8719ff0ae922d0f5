"""The audit log on disk: one writer at a time, nothing lost, nothing silently repaired.

A record is written beside its place, made durable and linked into it; HEAD follows under the same lock. After
a crash between the two the next writer moves HEAD over the one record that is linked to it, and says so.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from codegenie.eval.audit_chain import (
    MOST_RECORDS,
    RECORD_BYTES,
    ChainVerifier,
    Link,
    LinkChecker,
    broken,
    check_head,
    decode_head,
    decode_record,
    make_record,
    record_hash,
    record_name,
)
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.evidence import LogRecord, record_pieces
from codegenie.eval.files import UnsafeTree, read_whole_file, replace_file, sync_path, written_beside
from codegenie.eval.folders import make_folder
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import Record
from codegenie.eval.ports import Clock

HEAD = "HEAD"


class AuditLog:
    """The chain of records in one directory."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self.notes: list[str] = []

    def append(self, body: Record, run_id: str, trials: Iterable[bytes] = ()) -> str:
        """Write one record durably and return its hash; `trials` are those of a finish, each spelled."""
        with _typed_failure("write", self.directory):
            make_folder(self.directory)
            with self._locked(fcntl.LOCK_EX):
                link = self._end()
                if link.count >= MOST_RECORDS:
                    raise OSError(errno.EFBIG, _TOO_LARGE)
                record = make_record(body, link, run_id, self._clock.now())
                hasher = blake3()
                self._write(record_name(link.count), _hashed(record_pieces(record, trials), hasher))
                after = Link(link.count + 1, hasher.hexdigest())
                self._move_head(after)
                return after.head

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Lock the directory itself: no lock file to leave behind, and it works where we may only read."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _wait_for_lock(descriptor, kind)
            yield
        finally:
            # Before it is closed: a child that an agent forked meanwhile has a copy that would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _end(self) -> Link:
        """Return the end of the chain by HEAD, moved over one record that a crash left behind it."""
        link = self._head()
        if link is None:
            if self._names():
                raise broken(HEAD, "it is missing beside records")
            # Before the first record: a crash behind it must not look like a HEAD that somebody removed.
            link = Link()
            self._move_head(link)
        if link.count:
            self._check_last(link)
        name = record_name(link.count)
        following = self._read(name)
        if following is None:
            return link
        record = decode_record(name, following)
        if record.index != link.count or record.previous != link.head:
            raise broken(name, "it does not follow the record before it")
        advanced = link.after(following)
        if self._read(record_name(advanced.count)) is not None:
            raise broken(HEAD, f"more than one record lies behind it; the first is {name}")
        self._move_head(advanced)
        self.notes.append(f"HEAD was one record behind after a crash; it now covers {name}")
        return advanced

    def _check_last(self, link: Link) -> None:
        """Refuse to write behind a record that is not the one which HEAD names."""
        name = record_name(link.count - 1)
        raw = self._read(name)
        if raw is None or record_hash(raw) != link.head:
            raise broken(name, "it is not the record that HEAD names")

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        path = self.directory / name
        with written_beside(path, pieces) as temporary:
            # A link, not a rename: a record that is there already must never be replaced.
            os.link(temporary, path)
        sync_path(self.directory)

    def _move_head(self, link: Link) -> None:
        replace_file(self.directory / HEAD, link.encode())

    def _head(self) -> Link | None:
        raw = self._read(HEAD)
        return None if raw is None else decode_head(raw)

    def _read(self, name: str) -> bytes | None:
        try:
            return read_whole_file(self.directory / name, RECORD_BYTES)
        except UnsafeTree as unsafe:
            raise broken(name, f"it {unsafe.problem}") from None

    def _names(self) -> list[str]:
        return [name for name in sorted(os.listdir(self.directory)) if name.endswith(".json")]

    def records(self, verifier: ChainVerifier) -> Iterator[LogRecord]:
        """Verify every byte of the log in one pass and yield its records; HEAD is checked at the end."""
        names, head = self._listing()
        for name, raw in self._files(names):
            yield verifier.check(name, raw)
        note = check_head(verifier, head)
        if note:
            self.notes.append(note)

    def check_links(self) -> dict[str, str]:
        """Check the chain's links and return the runs that have not finished, and when they started."""
        names, head = self._listing()
        checker = LinkChecker()
        for name, raw in self._files(names):
            checker.check(name, raw)
        check_head(checker, head)
        return checker.open_runs

    def _listing(self) -> tuple[list[str], Link | None]:
        # Records never change once they are linked, so the lock is held for the listing alone.
        with _typed_failure("read", self.directory):
            if not self.directory.is_dir():
                return [], None
            with self._locked(fcntl.LOCK_SH):
                return self._names(), self._head()

    def _files(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        for expected, name in enumerate(names):
            if name != record_name(expected):
                raise broken(name, f"{record_name(expected)} comes next in the log")
            with _typed_failure("read", self.directory):
                raw = self._read(name)
            if raw is None:
                raise broken(name, "it went away while the log was read")
            yield name, raw


def _hashed(pieces: Iterable[bytes], hasher: blake3) -> Iterator[bytes]:
    """Hash the pieces of a record on their way to the disk; a record that nobody would read is refused."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > RECORD_BYTES:
            raise OSError(errno.EFBIG, _TOO_LARGE)
        hasher.update(piece)
        yield piece


_TOO_LARGE = "the log, or the record, is as large as it can be"


def _wait_for_lock(descriptor: int, kind: int) -> None:
    """Take a lock, and not for ever: who waits in the kernel hears no signal, and says not what for."""
    deadline = time.monotonic() + LIMITS.lock_seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.EWOULDBLOCK, "another process holds its lock") from None
            time.sleep(0.002)
        else:
            return


_HINTS = {
    "write": "make room or name another directory with --out; what is in the log is intact",
    "read": "see who may read the directory and its files",
}


@contextmanager
def _typed_failure(what: str, directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno == errno.EFBIG
        hint = "name another directory with --out, or ask for fewer cases or trials" if full else _HINTS[what]
        raise HarnessFailure(
            f"cannot {what} the audit log: {error.strerror}", where=str(directory), hint=hint
        ) from None
