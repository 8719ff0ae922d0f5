"""The journal of a run that has not finished: its lock, and every trial that was asked for or measured.

There are four kinds of lines: an agent is asked, the asking was void, an agent has produced something, a
trial is measured. The first kind is on the disk before the agent learns about the trial. So a user who kills
a run cannot repeat a trial without a trace. The harness does not wait for the other lines. If one is lost,
the trial counts as asked without an outcome.

What one slot has measured and what it asks next share one fdatasync (0.14 ms instead of 0.3 ms each). While
another slot is working, a thread waits for the disk (0.75 ms a case, a sixth of a run with zygotes). Both are
the work of `group_commit`.

Every line begins with a check, a hash that also covers the check of the line before. So a line that was
removed or changed is noticed, and a measured trial cannot be measured again without a trace. Only an end that
a crash tore is dropped. The first line ties the journal to one run and to all that decided that run.
"""

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from blake3 import blake3
from pydantic import Field, TypeAdapter, ValidationError

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.evidence import Promised, TrialEvidence
from codegenie.eval.log.group_commit import GroupCommit
from codegenie.eval.models import Detail, Identifier, Record
from codegenie.eval.system.file_writing import sync_path
from codegenie.eval.system.files import UnsafeTree, read_descriptor
from codegenie.eval.system.folders import make_folder

_SCHEMA = "codegenie.eval.journal/2"
_CHECK = 16
JOURNAL_BYTES = 1 << 31
_HELD: set[int] = set()


class Asked(Record):
    """The system under test is being asked for a trial."""

    kind: Literal["asked"] = "asked"
    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]


class Voided(Record):
    """The last asking does not count: the agent's provider or its box failed before it could work."""

    kind: Literal["void"] = "void"
    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]
    cause: Detail


class Produced(Promised):
    """It has produced an output, which is judged next. A failure is measured at once, without this line."""

    kind: Literal["produced"] = "produced"
    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]


JournalLine = Asked | Voided | Produced | TrialEvidence
_LINE: TypeAdapter[JournalLine] = TypeAdapter(JournalLine)


def _let_go_in_child() -> None:
    """Give up the locks in a forked child: a worker of an in-process agent may outlive the run.

    All processes that share the open file hold its lock. The child gets /dev/null instead, which cannot be
    synced. So a child that continues as if it were the harness cannot write evidence.
    """
    if _HELD:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for descriptor in _HELD:
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


os.register_at_fork(after_in_child=_let_go_in_child)


class Journal:
    """An open, locked journal."""

    def __init__(self, path: Path, descriptor: int, slots: int = 1) -> None:
        self._path = path
        self._descriptor = descriptor
        self._check = b""
        self._hasher = blake3()
        self._commit = GroupCommit(descriptor, self._write, slots)
        # The lines that a dead run left; None if a line is missing or was changed.
        self.lines: tuple[JournalLine, ...] | None = ()
        _HELD.add(descriptor)

    @property
    def run_id(self) -> str:
        """Return the id of the run that this journal belongs to."""
        return self._path.name

    async def append(self, line: bytes) -> None:
        """Write a line; return when it and all lines before it are on the disk. Raises HarnessFailure."""
        try:
            await self._commit.append(line)
        except OSError as error:
            raise _cannot_write(error, self._path.parent) from None

    def put(self, line: bytes) -> None:
        """Write a line without waiting for the disk. If that fails, the next `append` raises the failure."""
        self._commit.put(line)

    def note(self, line: bytes) -> None:
        """Write a line at once. The next sync covers it."""
        self._commit.note(line)

    def _write(self, bodies: list[bytes]) -> None:
        lines = []
        for body in bodies:
            self._check = _check(self._check, body)
            lines.append(self._check + b" " + body + b"\n")
        _write_all(self._descriptor, b"".join(lines))
        self._hasher.update(b"".join(lines))

    def begin(self, start: str) -> None:
        """Lock a new journal and tie it to its start."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write([canonical_json(_header(self.run_id, start))])
        os.fdatasync(self._descriptor)

    def take_up(self, start: str) -> bool:
        """Lock and read the journal of a dead run; False if it is invalid or belongs to another start."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raw = read_descriptor(self._descriptor, self.run_id, JOURNAL_BYTES)
        header, *lines = [*_lines(raw)] or [_Line(b"", None, 0)]
        if header.value != _header(self.run_id, start):
            return False
        # A crash leaves a torn end of as many lines as were written together, never a whole line after it.
        while lines and lines[-1].value is None:
            lines.pop()
        self.lines = _values(lines)
        if self.lines is not None:
            last = (header, *lines)[-1]
            self._check = last.check
            self._hasher.update(raw[: last.end])
            os.ftruncate(self._descriptor, last.end)
            # The log will count these lines, so they must not get lost any more.
            os.fdatasync(self._descriptor)
        return True

    def close(self) -> None:
        """Release the lock and leave the journal for a resume."""
        self._commit.close()
        self.seal()
        _HELD.discard(self._descriptor)
        os.close(self._descriptor)

    def seal(self) -> str | None:
        """Write what still waits and return the hash of the journal; None if writing failed."""
        self._commit.finish()
        return None if self._commit.failure else self._hasher.hexdigest()

    def content(self, limit: int) -> bytes | None:
        """Return the whole journal, to store it elsewhere; None if it is too large or cannot be read."""
        with contextlib.suppress(OSError, UnsafeTree):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            return read_descriptor(self._descriptor, self.run_id, limit)
        return None

    def discard(self) -> None:
        """Remove the journal of a finished run. If that fails it stays, but it is never resumed."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        self.close()


def start_journal(directory: Path, run_id: str, start: str, slots: int = 1) -> Journal:
    """Create and lock the journal of a new run. Raises HarnessFailure if it cannot be written.

    `start` is the digest of everything that decides the run, and `slots` is how many trials run at once.
    """
    path = directory / run_id
    try:
        make_folder(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_write(error, directory) from None
    journal = Journal(path, descriptor, slots)
    try:
        journal.begin(start)
        sync_path(directory)
    except OSError as error:
        journal.discard()
        raise _cannot_write(error, directory) from None
    return journal


def _cannot_write(error: OSError, where: Path) -> HarnessFailure:
    return HarnessFailure(
        f"cannot write the journal: {error.strerror}",
        where=str(where),
        hint="free space or name another directory with --out; the log is intact",
    )


def dead_journals(
    directory: Path, start: str, open_runs: Collection[str], slots: int = 1
) -> Iterator[Journal]:
    """Lock, read and yield the journals of dead runs with this start, the newest first.

    Only a run that the log knows as started and not ended can be resumed. The last holder of the lock may
    have finished the run meanwhile. So the caller must ask the log again while it holds the lock. The
    caller closes the journals.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(directory), reverse=True)
    for name in names:
        journal = _taken_up(directory / name, start, slots) if name in open_runs else None
        if journal is not None:
            yield journal


def _taken_up(path: Path, start: str, slots: int) -> Journal | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    journal = Journal(path, descriptor, slots)
    # Another process may be running it, or the file is not one that we wrote.
    with contextlib.suppress(OSError, UnsafeTree):
        if journal.take_up(start):
            return journal
    journal.close()
    return None


class FoundLines(NamedTuple):
    """The lines of a journal; not `whole` if a line after them is missing or was changed."""

    lines: tuple[JournalLine, ...]
    whole: bool


def lines_so_far(raw: bytes, run_id: str, start: str) -> FoundLines:
    """Return the lines of a journal to which a living run may still write.

    An end that is only half written, or that a crash tore, is left out.
    """
    if b"\n" not in raw:
        return FoundLines((), whole=True)
    header, *lines = _lines(raw)
    if header.value != _header(run_id, start):
        return FoundLines((), whole=False)
    unbroken = [*takewhile(lambda line: line.value is not None, lines)]
    values = _values(unbroken)
    torn = all(line.value is None for line in lines[len(unbroken) :])
    return FoundLines(values or (), whole=torn and values is not None)


def _header(run_id: str, start: str) -> dict[str, str]:
    return {"schema": _SCHEMA, "run_id": run_id, "start": start}


@dataclass(frozen=True, slots=True)
class _Line:
    """One line as it was found. Its value is None if the check does not match."""

    check: bytes
    value: object
    end: int


def _check(before: bytes, body: bytes) -> bytes:
    return blake3(before + body).hexdigest()[:_CHECK].encode()


def _lines(raw: bytes) -> Iterator[_Line]:
    """Yield every whole line, verified by the check at its beginning."""
    before, end = b"", 0
    for line in raw.split(b"\n")[:-1]:
        check, _, body = line.partition(b" ")
        value = None
        if _check(before, body) == check:
            with contextlib.suppress(DecodingRefused):
                value = decode_json(body, JOURNAL_BYTES)
        before, end = check, end + len(line) + 1
        yield _Line(check, value, end)


def _values(lines: list[_Line]) -> tuple[JournalLine, ...] | None:
    try:
        return tuple(_LINE.validate_json(canonical_json(line.value)) for line in lines)
    except ValidationError:
        return None


def _write_all(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]
