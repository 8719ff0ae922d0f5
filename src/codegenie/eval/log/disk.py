"""The audit log on disk: one writer at a time, nothing is lost, nothing is repaired silently.

The writer verifies a record as a reader would. It writes the record to a temporary file, syncs it, and links
it to its final name. Then it moves HEAD, under the same lock. After a crash between these two steps, the next
writer moves HEAD to the one record that follows it, and says so. Readers take no lock, so a reader that is
stopped cannot stop a writer.
"""

import datetime as dt
import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure, SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.chain import (
    MOST_RECORDS,
    RECORD_BYTES,
    ChainVerifier,
    Link,
    broken,
    check_head,
    decode_head,
    make_record,
    record_hash,
    record_name,
)
from codegenie.eval.log.records import FinishedRecord, LogRecord, record_pieces
from codegenie.eval.log.runs import History
from codegenie.eval.models import Record
from codegenie.eval.ports import Clock
from codegenie.eval.system.file_writing import replace_file, sync_path, written_beside
from codegenie.eval.system.files import UnsafeTree, read_whole_file
from codegenie.eval.system.folders import make_folder

HEAD = "HEAD"
# A lock file of our own: a user who may only read the directory could lock the directory itself.
_LOCK = ".lock"
# A writer needs two syncs between a record and its HEAD. If HEAD is late for longer, a crash left it.
_HEAD_SECONDS = 0.25


class AuditLog:
    """The chain of records in one directory, and how far it is verified. No record is verified twice."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._verifier = ChainVerifier()
        self.history = History()
        self.hashes: list[str] = []
        # The finish records whose bounds were not recomputed.
        self.unbounded: set[int] = set()
        self.notes: list[str] = []

    @property
    def link(self) -> Link:
        """Return the end of the verified part."""
        return self._verifier.link

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC. Raises SettingsInvalid if the clock gives a time without a zone."""
        now = self._clock.now()
        if now.utcoffset() is None:
            raise SettingsInvalid(
                "the clock gives a time without a zone", hint="return `datetime.now(datetime.UTC)`"
            )
        return now.astimezone(dt.UTC)

    def append(self, body: Record, run_id: str, trials: Iterable[bytes] = ()) -> str:
        """Write one record durably and return its hash; `trials` are those of a finish, as canonical bytes.

        Raises HarnessFailure if it cannot be written or if a reader would refuse it, and
        ChainTamperDetected if the log fails verification.
        """
        with _typed_failure("write", self.directory):
            self._check_room()
            make_folder(self.directory)
            # Read what other writers added before taking the lock, so that they need not wait for us.
            self._read_on()
            with self._locked():
                link = self._end()
                name, record = record_name(link.count), make_record(body, link, run_id, self.now())
                raw = b"".join(_capped(record_pieces(record, trials)))
                judged = self._judged(name, raw)
                self._write(name, (raw,))
                self._take(judged, raw)
                self._move_head(self.link)
                return self.link.head

    def _check_room(self) -> None:
        head = self._head()
        if head is None and self.link.count:
            raise broken(HEAD, "it disappeared while the log was in use")
        if head is not None and head.count >= MOST_RECORDS:
            raise OSError(errno.EFBIG, _TOO_LARGE)

    def _judged(self, name: str, raw: bytes) -> LogRecord:
        """Verify a record before it is written: a log that fails verification is useless."""
        try:
            return self._verifier.judged(name, raw)
        except ChainTamperDetected as refusal:
            raise HarnessFailure(
                f"a record was not written, since a reader of the log would refuse it: {refusal.message}",
                where=str(self.directory),
                hint="the log is unchanged and valid; what was measured stays in the journal and in"
                " the store. The same command takes a run up again; a plan is used as `Runner.plan` made it",
            ) from None

    def _take(self, record: LogRecord, raw: bytes, *, bounds: bool = True) -> None:
        self._verifier.take(record, raw)
        self.hashes.append(self.link.head)
        self.history.add(record, self.link.head)
        if not bounds and isinstance(record, FinishedRecord):
            self.unbounded.add(record.index)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock out other writers, with a file that other users cannot open."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.directory / _LOCK, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            _wait_for_lock(descriptor)
            yield
        finally:
            # Unlock before closing: a child forked by an agent may have a copy that would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _end(self) -> Link:
        """Return the end of the chain. If a crash left one record after HEAD, move HEAD to it first."""
        if self._head() is None:
            if self._names() or self.link.count:
                raise broken(HEAD, "it is missing, but there are records")
            # Written before the first record: a crash after that record must not look like a removed HEAD.
            self._move_head(Link())
        if self._read_on():
            self._move_head(self.link)
            name = record_name(self.link.count - 1)
            self.notes.append(f"HEAD was one record behind after a crash; it now covers {name}")
        if self.link.count:
            self._check_last(self.link)
        return self.link

    def _check_last(self, link: Link) -> None:
        """Refuse to write after a last record that is not the one in HEAD."""
        name = record_name(link.count - 1)
        raw = self._read(name)
        if raw is None or record_hash(raw) != link.head:
            raise broken(name, "it is not the record that HEAD names")

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        path = self.directory / name
        with written_beside(path, pieces) as temporary:
            # A link instead of a rename, because a rename would replace an existing record.
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

    def records(self, *, bounds: bool = True) -> Iterator[LogRecord]:
        """Verify every record that is not verified yet and yield it; HEAD is checked at the end.

        Without `bounds` the bounds of a finish are not recomputed; that happens when they are needed. Raises
        ChainTamperDetected if the log fails verification, and HarnessFailure if it cannot be read.
        """
        names, head = self._listing()
        for expected, name in enumerate(names):
            if name != record_name(expected):
                raise broken(name, f"{record_name(expected)} comes next in the log")
        if head is not None and len(names) < min(head.count, self.link.count):
            raise broken(record_name(len(names)), "it disappeared while the log was in use")
        for name in names[self.link.count :]:
            yield self._next(name, bounds=bounds)
        note = check_head(self._verifier, head)
        if note:
            self.notes.append(note)

    def open_runs(self) -> dict[str, dt.datetime]:
        """Verify the new records; return the runs that have not ended, and when they started."""
        self._read_on()
        return {run_id: started.recorded_at for run_id, started in self._verifier.open_runs.items()}

    def _read_on(self) -> bool:
        """Verify the new records; say whether HEAD is one record behind, as after a crash."""
        noted = len(self.notes)
        for _ in self.records(bounds=False):
            pass
        # Drop the reader's note about that: the next writer repairs HEAD and adds a better note.
        behind = len(self.notes) > noted
        del self.notes[noted:]
        return behind

    def _next(self, name: str, *, bounds: bool) -> LogRecord:
        with _typed_failure("read", self.directory):
            raw = self._read(name)
        if raw is None:
            raise broken(name, "it disappeared while the log was read")
        record = self._verifier.judged(name, raw, bounds=bounds)
        self._take(record, raw, bounds=bounds)
        return record

    def _listing(self) -> tuple[list[str], Link | None]:
        """Return the names of the records and HEAD as they were at the same moment.

        Records never change after they are linked, and HEAD only grows. If HEAD is the same before and after
        the listing, it belongs to all the names. If not, it belongs to the names up to its own count.
        """
        with _typed_failure("read", self.directory):
            if not self.directory.is_dir():
                return [], None
            head = self._head()
            names = self._names()
            if head is None:
                # The first writer may have written HEAD after we looked.
                head = self._head()
            elif self._moved(head, len(names)):
                names = names[: head.count]
            return names, head

    def _moved(self, head: Link, count: int) -> bool:
        """Say whether a writer is active. If one record is after HEAD, wait for HEAD to follow."""
        deadline = time.monotonic() + _HEAD_SECONDS
        while self._head() == head:
            if count != head.count + 1 or time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


def _capped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Refuse a record that is too large for a reader, as soon as it gets too large."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > RECORD_BYTES:
            raise OSError(errno.EFBIG, _TOO_LARGE)
        yield piece


_TOO_LARGE = "the log or the record has reached its largest size"


def _wait_for_lock(descriptor: int) -> None:
    """Take the lock with a timeout. A blocking flock() ignores Ctrl-C and cannot say what it waits for."""
    deadline = time.monotonic() + LIMITS.lock_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.EWOULDBLOCK, "another process holds its lock") from None
            time.sleep(0.002)
        else:
            return


_HINTS = {
    "write": "free space or name another directory with --out; the log is intact",
    "read": "check the read permissions of the directory and its files",
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
