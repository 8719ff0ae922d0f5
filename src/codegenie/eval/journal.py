"""The journal of a run that has not finished: its lock, and every trial that was measured.

A line is durable before the slot that measured it takes the next trial. Lines that are ready together share
one fdatasync (0.14 ms against 0.3 ms each), and while a slot is at work the disk is waited for beside it
(0.75 ms a case, a sixth of a run by zygotes). The check of a line covers the check before it: a line that was
taken out or changed shows, and what was measured cannot be measured again unseen. Only an end that a crash
tore is dropped. A journal as a whole belongs to one run and to what decided that run at its start.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.files import UnsafeTree, read_descriptor, sync_path
from codegenie.eval.folders import make_folder

_SCHEMA = "codegenie.eval.journal/1"
_CHECK = 16
_JOURNAL_BYTES = 1 << 31
_HELD: set[int] = set()
_Waiting = tuple[bytes, "asyncio.Future[None]"]


def _let_go_in_child() -> None:
    """Give up the locks in a forked child: a worker of an in-process agent may outlive the run.

    A lock belongs to all who share the open file. What then stands in its place cannot be synced, so that a
    child which goes on as if it were us writes no evidence.
    """
    if _HELD:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for descriptor in _HELD:
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


os.register_at_fork(after_in_child=_let_go_in_child)


class Journal:
    """An open, locked journal."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._waiting: list[_Waiting] = []
        self._check = b""
        self._failure: HarnessFailure | None = None
        # How many may measure at once. Where all of them wait for the disk, nobody gains by a thread.
        self.slots = 1
        self._beside: ThreadPoolExecutor | None = None
        self._syncing = False
        # What a dead run had measured; None if a line is missing or was changed.
        self.finished: tuple[TrialEvidence, ...] | None = ()
        _HELD.add(descriptor)

    @property
    def run_id(self) -> str:
        """Return the run that this is the journal of."""
        return self._path.name

    async def append(self, trial: bytes) -> None:
        """Write the evidence of one trial, as it is spelled; returns when it is on the disk."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        if not self._waiting and not self._syncing:
            loop.call_soon(self._flush)
        self._waiting.append((trial, written))
        await written

    def _flush(self) -> None:
        """Write all that waits with one call and one sync."""
        waiting, self._waiting = self._waiting, []
        # Nothing is written behind what a full disk has torn: as the end of the journal it can be dropped.
        if self._failure is None:
            try:
                self._write([body for body, _ in waiting])
                if len(waiting) < self.slots:
                    self._sync_beside(waiting)
                    return
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._failure = _cannot_write(error, self._path.parent)
        self._settle(waiting)

    def _sync_beside(self, waiting: list[_Waiting]) -> None:
        """Wait for the disk in a thread; what becomes ready meanwhile is written together after it."""
        self._beside = self._beside or ThreadPoolExecutor(max_workers=1)
        self._syncing = True
        synced = asyncio.get_running_loop().run_in_executor(self._beside, os.fdatasync, self._descriptor)
        synced.add_done_callback(partial(self._synced, waiting))

    def _synced(self, waiting: list[_Waiting], synced: "asyncio.Future[None]") -> None:
        self._syncing = False
        error = None if synced.cancelled() else synced.exception()
        if isinstance(error, OSError):
            self._failure = _cannot_write(error, self._path.parent)
        self._settle(waiting)
        if self._waiting:
            self._flush()

    def _settle(self, waiting: list[_Waiting]) -> None:
        for _, written in waiting:
            if written.done():
                continue
            if self._failure is None:
                written.set_result(None)
            else:
                written.set_exception(self._failure)

    def _write(self, bodies: list[bytes]) -> None:
        lines = []
        for body in bodies:
            self._check = _check(self._check, body)
            lines.append(self._check + b" " + body + b"\n")
        _write_all(self._descriptor, b"".join(lines))

    def begin(self, start: str) -> None:
        """Lock a new journal and tie it to its start."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write([canonical_json(_header(self.run_id, start))])
        os.fdatasync(self._descriptor)

    def take_up(self, start: str) -> bool:
        """Lock and read the journal of a dead run; False if it belongs to another start or is none."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raw = read_descriptor(self._descriptor, self.run_id, _JOURNAL_BYTES)
        header, *lines = [*_lines(raw)] or [_Line(b"", None, 0)]
        if header.value != _header(self.run_id, start):
            return False
        # A crash leaves a torn end, of as many lines as were written together; never a whole line behind it.
        while lines and lines[-1].value is None:
            lines.pop()
        self.finished = _evidence(lines)
        if self.finished is not None:
            last = (header, *lines)[-1]
            self._check = last.check
            os.ftruncate(self._descriptor, last.end)
            # Its lines will be counted in the log, so they may not get lost any more.
            os.fdatasync(self._descriptor)
        return True

    def close(self) -> None:
        """Release the lock and leave the journal to be resumed."""
        if self._beside is not None:
            # Never while a thread works on the descriptor, whose number may soon be another file's.
            self._beside.shutdown()
        _HELD.discard(self._descriptor)
        os.close(self._descriptor)

    def discard(self) -> None:
        """Remove the journal of a run that has finished; one that cannot be removed is never resumed."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        self.close()


def start_journal(directory: Path, run_id: str, start: str) -> Journal:
    """Create and lock the journal of a new run; `start` is the digest of what decides it."""
    path = directory / run_id
    try:
        make_folder(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_write(error, directory) from None
    journal = Journal(path, descriptor)
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
        hint="make room or name another directory with --out; what is in the log is intact",
    )


def dead_journals(directory: Path, start: str, open_runs: Collection[str]) -> Iterator[Journal]:
    """Lock, read and yield the journals of dead runs with this start, the newest first.

    Only a run that the log knows as started and not finished can be resumed. Whoever held the lock may have
    finished it meanwhile, so the caller asks the log again now that nobody else can. The caller closes them.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(directory), reverse=True)
    for name in names:
        journal = _taken_up(directory / name, start) if name in open_runs else None
        if journal is not None:
            yield journal


def _taken_up(path: Path, start: str) -> Journal | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    journal = Journal(path, descriptor)
    # Another process may be running it; or it is no file that we wrote.
    with contextlib.suppress(OSError, UnsafeTree):
        if journal.take_up(start):
            return journal
    journal.close()
    return None


def _header(run_id: str, start: str) -> dict[str, str]:
    return {"schema": _SCHEMA, "run_id": run_id, "start": start}


@dataclass(frozen=True, slots=True)
class _Line:
    """One line as it was found; without a value if it is not what its check says."""

    check: bytes
    value: object
    end: int


def _check(before: bytes, body: bytes) -> bytes:
    return blake3(before + body).hexdigest()[:_CHECK].encode()


def _lines(raw: bytes) -> Iterator[_Line]:
    """Yield every whole line, measured by the check that stands before it."""
    before, end = b"", 0
    for line in raw.split(b"\n")[:-1]:
        check, _, body = line.partition(b" ")
        value = None
        if _check(before, body) == check:
            with contextlib.suppress(DecodingRefused):
                value = decode_json(body, _JOURNAL_BYTES)
        before, end = check, end + len(line) + 1
        yield _Line(check, value, end)


def _evidence(lines: list[_Line]) -> tuple[TrialEvidence, ...] | None:
    try:
        return tuple(TrialEvidence.model_validate_json(canonical_json(line.value)) for line in lines)
    except ValidationError:
        return None


def _write_all(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]
