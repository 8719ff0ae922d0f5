"""Read from a log that was verified first: its runs, their records, and their artefacts."""

import fcntl
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from codegenie.eval.errors import ChainTamperDetected, NotMeasured
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.log.chain import (
    RECORD_BYTES,
    Link,
    broken,
    check_bounds,
    decode_record,
    record_hash,
    record_name,
)
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.records import (
    AbandonedRecord,
    FinishedRecord,
    LogRecord,
    RunAbandoned,
    RunFinished,
    RunStarted,
    StartedRecord,
)
from codegenie.eval.log.runs import History, RunEntry
from codegenie.eval.ports import Clock
from codegenie.eval.system.files import UnsafeTree, read_whole_file
from codegenie.eval.wording import counted

# Runs that reuse outcomes share artefacts. Beyond this many it is cheaper to read an artefact again.
_REMEMBERED = 100_000
_YOUNG_SECONDS = 3_600.0


@dataclass(slots=True)
class VerifiedLog:
    """A log whose bytes are all verified. Records are read again by index and checked by their hash.

    `hashes` grows during verification, so after a refusal it says how far the log is valid. The bounds of
    the runs in `unbounded` are recomputed when a caller asks for such a run.
    """

    directory: Path
    link: Link | None = None
    history: History = field(default_factory=History)
    notes: list[str] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    artifacts_checked: int = 0
    artifacts_missing: int = 0
    unbounded: set[int] = field(default_factory=set)

    def finished(self, entry: RunEntry) -> RunFinished:
        """Return the finish of a run. Raises NotMeasured if it has none."""
        if entry.abandoned is not None:
            raise NotMeasured(
                f"run {entry.run_id} was abandoned: {entry.abandoned}",
                hint="it counts as a failed look; `codegenie eval run` measures again",
            )
        if entry.finished_index is None:
            raise NotMeasured(
                f"run {entry.run_id} has not finished",
                hint="the same command resumes it, with a store and without --no-cache; `codegenie eval"
                " abandon` closes a run that will not finish",
            )
        record = self._record(entry.finished_index)
        if not isinstance(record, FinishedRecord):
            raise broken(record_name(entry.finished_index), "it changed after it was verified")
        if entry.finished_index in self.unbounded:
            check_bounds(record_name(entry.finished_index), self.started(entry), record)
            self.unbounded.discard(entry.finished_index)
        return record.body

    def started(self, entry: RunEntry) -> RunStarted:
        """Return the start of a run. Raises ChainTamperDetected if the record has changed since."""
        record = self._record(entry.started_index)
        if not isinstance(record, StartedRecord):
            raise broken(record_name(entry.started_index), "it changed after it was verified")
        return record.body

    def _record(self, index: int) -> LogRecord:
        return decode_record(record_name(index), self.raw(index))

    def raw(self, index: int) -> bytes:
        """Return the bytes of a record. Raises ChainTamperDetected if they are not the verified ones."""
        name = record_name(index)
        try:
            raw = read_whole_file(self.directory / name, RECORD_BYTES)
        except (OSError, UnsafeTree):
            raw = None
        if raw is None or record_hash(raw) != self.hashes[index]:
            raise broken(name, "it changed after it was verified")
        return raw

    def find(self, run: str) -> RunEntry:
        """Return the run with this id or unique prefix; `latest` is the newest start. Raises NotMeasured."""
        runs = self.history.runs
        if run == "latest" and runs:
            return next(reversed(runs.values()))
        if run in runs:
            return runs[run]
        ids = [run_id for run_id in runs if run and run_id.startswith(run)]
        if len(ids) != 1:
            known = f"{len(ids)} runs begin with it" if ids else "the log has no such run"
            hint = "`codegenie eval run` makes one, and --out names another log"
            raise NotMeasured(
                f"{run!a} does not name one run of the log: {known}", where=str(self.directory), hint=hint
            )
        return runs[ids[0]]

    def artifact(self, trial: TrialEvidence, name: str) -> bytes | None:
        """Return one artefact of a trial, checked against its hash; None if it is gone.

        Raises ChainTamperDetected if its bytes do not match the hash.
        """
        digest = trial.artifacts.get(name)
        return None if digest is None else ArtifactStore(self.directory / "artifacts").read(digest)

    def verify(self, clock: Clock, *, artifacts: bool = True, bounds: bool = True) -> None:
        """Check every record, HEAD and every artefact that exists, in one pass.

        Raises ChainTamperDetected for the first one that fails, and HarnessFailure if it cannot be read.
        """
        log = AuditLog(self.directory, clock)
        self._share(log)
        store = ArtifactStore(self.directory / "artifacts")
        times = _Times()
        seen: set[str] = set()
        for record in log.records(bounds=bounds):
            times.add(record)
            if artifacts and isinstance(record, FinishedRecord | AbandonedRecord):
                self._check_artifacts(store, artifact_digests(record.body), seen)
        self.link = log.link
        self.notes += [*log.notes, *times.notes(), *self._losses()]

    def _share(self, log: AuditLog) -> None:
        self.history, self.hashes, self.unbounded = log.history, log.hashes, log.unbounded

    @classmethod
    def continued(cls, log: AuditLog) -> "VerifiedLog":
        """Return what a run has verified of its log, together with what other runs wrote since."""
        log.open_runs()
        found = cls(log.directory, log.link)
        found._share(log)
        return found

    def _losses(self) -> Iterator[str]:
        for run in self.history.runs.values():
            if run.lost_trials:
                lost = counted(run.lost_trials, "trial")
                yield f"run {run.run_id} was resumed without {lost} that it had measured"

    def _check_artifacts(self, store: ArtifactStore, digests: Iterable[str], seen: set[str]) -> None:
        for digest in digests:
            if digest in seen:
                continue
            if len(seen) >= _REMEMBERED:
                seen.clear()
            seen.add(digest)
            if store.read(digest) is None:
                self.artifacts_missing += 1
            else:
                self.artifacts_checked += 1


class _Times:
    """Compares the wall clock of the records. It orders nothing, so a step backwards is only a note."""

    def __init__(self) -> None:
        self._latest = -math.inf
        self._back: list[int] = []

    def add(self, record: LogRecord) -> None:
        """Compare a record with the latest one before it."""
        now = record.recorded_at.timestamp()
        if now < self._latest:
            self._back.append(record.index)
        self._latest = max(self._latest, now)

    def notes(self) -> Iterator[str]:
        """Say how many records are dated before an earlier one, and which is the first."""
        if self._back:
            first, dated = record_name(self._back[0]), counted(len(self._back), "record")
            yield f"the clock went back: {dated} from {first} on with a date before that of an earlier record"


def artifact_digests(ended: RunFinished | RunAbandoned) -> Iterator[str]:
    """Yield the hash of everything that the record of a run's end names."""
    if ended.journal is not None:
        yield ended.journal
    for trial in ended.trials if isinstance(ended, RunFinished) else ():
        yield from trial.artifacts.values()


def verify_log(directory: Path, clock: Clock, *, artifacts: bool = True, bounds: bool = False) -> VerifiedLog:
    """Verify a log and return it for questions; without `bounds` they are checked per run when it is read.

    Raises ChainTamperDetected if the log fails verification.
    """
    log = VerifiedLog(directory)
    log.verify(clock, artifacts=artifacts, bounds=bounds)
    return log


class JournalFate(NamedTuple):
    """What was done with a journal: the id of its run, and `open`, `young` or `removed`."""

    run_id: str
    fate: Literal["open", "young", "removed"]


def prune_journals(directory: Path, clock: Clock, seconds: float) -> list[JournalFate]:
    """Remove the journals that no open run of the log needs and that are older than `seconds`.

    The journal of an open run is kept, because the same command can resume the run. A run in progress holds
    the lock of its journal, which is then skipped.
    """
    journals = directory / "journal"
    names = sorted(os.listdir(journals)) if journals.is_dir() else []
    # Read after the listing: if a listed journal has no open run, it has ended, or starts later or never.
    open_runs = AuditLog(directory, clock).open_runs() if names else {}
    # A run makes its journal before its start is in the log, and locks it just after making it.
    oldest = time.time() - max(seconds, _YOUNG_SECONDS)
    fates = []
    for name in names:
        with suppress(BlockingIOError, FileNotFoundError), _locked_file(journals / name) as status:
            if name in open_runs:
                fates.append(JournalFate(name, "open"))
            elif status.st_mtime > oldest:
                fates.append(JournalFate(name, "young"))
            else:
                (journals / name).unlink()
                fates.append(JournalFate(name, "removed"))
    return fates


@contextmanager
def _locked_file(path: Path) -> Iterator[os.stat_result]:
    """Hold the lock that a living run holds, if it is free."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.fstat(descriptor)
    finally:
        os.close(descriptor)


def expect_head(log: VerifiedLog, expected: str) -> None:
    """Raise ChainTamperDetected if a hash that the user kept is not in the log: it was cut or rewritten."""
    if expected not in log.hashes:
        raise ChainTamperDetected(
            f"no record has the expected hash {expected}",
            where=str(log.directory),
            hint="the log was cut or rewritten after that hash was noted",
        )
