"""The audit log on disk: one writer at a time, nothing lost, nothing silently repaired.

A record is verified as a reader would, written beside its place, made durable and linked into it; HEAD
follows under the same lock. After a crash between the two the next writer moves HEAD over the one record that
is linked to it, and says so. Readers take no lock: one that is stopped stops no writer.
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
from codegenie.eval.system.files import UnsafeTree, read_whole_file, replace_file, sync_path, written_beside
from codegenie.eval.system.folders import make_folder

HEAD = "HEAD"
# Not the directory, which a stranger who may only read it could lock.
_LOCK = ".lock"
# Between a record and its HEAD lie two syncs; a HEAD that stays behind for longer was left by a crash.
_HEAD_SECONDS = 0.25


class AuditLog:
    """The chain of records in one directory, and how far it was verified: no record is verified twice."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._verifier = ChainVerifier()
        self.history = History()
        self.hashes: list[str] = []
        # The finishes whose bounds were not computed again.
        self.unbounded: set[int] = set()
        self.notes: list[str] = []

    @property
    def link(self) -> Link:
        """Return the end of what was verified."""
        return self._verifier.link

    def now(self) -> dt.datetime:
        """Return the wall clock in UTC; a time without a zone is no time that a record could hold."""
        now = self._clock.now()
        if now.utcoffset() is None:
            raise SettingsInvalid(
                "the clock gives a time without a zone", hint="return `datetime.now(datetime.UTC)`"
            )
        return now.astimezone(dt.UTC)

    def append(self, body: Record, run_id: str, trials: Iterable[bytes] = ()) -> str:
        """Write one record durably and return its hash; `trials` are those of a finish, each spelled.

        Nothing is written that a reader of the log would refuse.
        """
        with _typed_failure("write", self.directory):
            self._check_room()
            make_folder(self.directory)
            # What others wrote meanwhile, before they have to wait for us.
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
            raise broken(HEAD, "it went away while the log was in use")
        if head is not None and head.count >= MOST_RECORDS:
            raise OSError(errno.EFBIG, _TOO_LARGE)

    def _judged(self, name: str, raw: bytes) -> LogRecord:
        """Verify a record before it is written: a log that does not hold is of no use to anybody."""
        try:
            return self._verifier.judged(name, raw)
        except ChainTamperDetected as refusal:
            raise HarnessFailure(
                f"a reader of the log would refuse what is to be written: {refusal.message}",
                where=str(self.directory),
                hint="nothing was written, and the log holds; what was measured stays in the journal and in"
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
        """Lock out other writers, by a file that no other user can open."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.directory / _LOCK, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            _wait_for_lock(descriptor)
            yield
        finally:
            # Before it is closed: a child that an agent forked meanwhile has a copy that would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _end(self) -> Link:
        """Return the end of the chain by HEAD, moved over one record that a crash left behind it."""
        if self._head() is None:
            if self._names() or self.link.count:
                raise broken(HEAD, "it is missing beside records")
            # Before the first record: a crash behind it must not look like a HEAD that somebody removed.
            self._move_head(Link())
        if self._read_on():
            self._move_head(self.link)
            name = record_name(self.link.count - 1)
            self.notes.append(f"HEAD was one record behind after a crash; it now covers {name}")
        if self.link.count:
            self._check_last(self.link)
        return self.link

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

    def records(self, *, bounds: bool = True) -> Iterator[LogRecord]:
        """Verify every byte that was not verified yet and yield its records; HEAD is checked at the end.

        Without `bounds` those of a finish are not computed again: whoever asks about one has it done.
        """
        names, head = self._listing()
        for expected, name in enumerate(names):
            if name != record_name(expected):
                raise broken(name, f"{record_name(expected)} comes next in the log")
        if head is not None and len(names) < min(head.count, self.link.count):
            raise broken(record_name(len(names)), "it went away while the log was in use")
        for name in names[self.link.count :]:
            yield self._next(name, bounds=bounds)
        note = check_head(self._verifier, head)
        if note:
            self.notes.append(note)

    def open_runs(self) -> dict[str, dt.datetime]:
        """Verify what was not verified yet; return the runs that have not finished, and when they started."""
        self._read_on()
        return {run_id: started.recorded_at for run_id, started in self._verifier.open_runs.items()}

    def _read_on(self) -> bool:
        """Verify what was not verified yet; say whether HEAD is one record behind, as a crash leaves it."""
        noted = len(self.notes)
        for _ in self.records(bounds=False):
            pass
        # Of that, whoever writes next has something better to say.
        behind = len(self.notes) > noted
        del self.notes[noted:]
        return behind

    def _next(self, name: str, *, bounds: bool) -> LogRecord:
        with _typed_failure("read", self.directory):
            raw = self._read(name)
        if raw is None:
            raise broken(name, "it went away while the log was read")
        record = self._verifier.judged(name, raw, bounds=bounds)
        self._take(record, raw, bounds=bounds)
        return record

    def _listing(self) -> tuple[list[str], Link | None]:
        """Return the names of the records and HEAD as they were together at one moment.

        Records never change once they are linked, and HEAD only grows. So if HEAD is the same before and
        after the names were listed, they belong together; and if it is not, the names up to it do.
        """
        with _typed_failure("read", self.directory):
            if not self.directory.is_dir():
                return [], None
            head = self._head()
            names = self._names()
            if head is None:
                # The first writer may have come between.
                head = self._head()
            elif self._moved(head, len(names)):
                names = names[: head.count]
            return names, head

    def _moved(self, head: Link, count: int) -> bool:
        """Say whether a writer is at work; where one record lies behind HEAD, wait for it to follow."""
        deadline = time.monotonic() + _HEAD_SECONDS
        while self._head() == head:
            if count != head.count + 1 or time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


def _capped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Refuse a record that nobody would read, as soon as it is too large."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > RECORD_BYTES:
            raise OSError(errno.EFBIG, _TOO_LARGE)
        yield piece


_TOO_LARGE = "the log, or the record, is as large as it can be"


def _wait_for_lock(descriptor: int) -> None:
    """Take the lock, and not for ever: who waits in the kernel hears no signal, and says not what for."""
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
