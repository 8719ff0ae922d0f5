"""One run as the log knows it, also if it has not finished or was abandoned.

The journal of an open run is read without its lock, which a living run holds, and it is never changed.
"""

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.aggregation import TrialKey
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.log.journal import JOURNAL_BYTES, FoundLines, lines_so_far
from codegenie.eval.log.open_run import Taken
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.records import RunStarted, start_digest
from codegenie.eval.log.runs import Measured, RunEntry
from codegenie.eval.ports import Clock
from codegenie.eval.system.files import UnsafeTree, read_whole_file

_NOT_HERE = "its journal is not here, so what it had measured is not known"
_CHANGED = "a line of its journal is missing or was changed, and what follows that line is not shown"


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, how it started, and what it has measured."""

    log: VerifiedLog
    entry: RunEntry
    started: RunStarted
    measured: Measured

    @property
    def trials(self) -> tuple[TrialEvidence, ...]:
        """Return the measured trials in planned order."""
        return tuple(self.measured.trials[key] for key in self.planned() if key in self.measured.trials)

    def planned(self) -> list[TrialKey]:
        """Return every trial that the run counts."""
        return [(case.case_id, trial) for case in self.started.cases for trial in range(self.started.trials)]


def view_run(log: VerifiedLog, run: str, clock: Clock) -> RunView:
    """Return one run of a verified log. Raises NotMeasured if the log has no such run."""
    entry = log.find(run)
    started = log.started(entry)
    if entry.state == "finished":
        finished = log.finished(entry)
        trials = {(trial.case_id, trial.trial): trial for trial in finished.trials}
        return RunView(log, entry, started, Measured(trials, finished.report))
    if entry.state == "abandoned":
        kept = entry.journal and ArtifactStore(log.directory / "artifacts").read(entry.journal)
        return RunView(log, entry, started, _measured(started, entry.run_id, kept or None))
    path = log.directory / "journal" / entry.run_id
    raw, written_at = _read(path)
    if raw is None:
        # The run may have ended since the log was read, and its end removes the journal.
        again = verify_log(log.directory, clock, artifacts=False)
        if again.find(entry.run_id).state != "open":
            return view_run(again, entry.run_id, clock)
    return RunView(log, entry, started, _measured(started, entry.run_id, raw, written_at))


def _read(path: Path) -> tuple[bytes | None, dt.datetime | None]:
    try:
        written_at = dt.datetime.fromtimestamp(os.stat(path, follow_symlinks=False).st_mtime, dt.UTC)
        return read_whole_file(path, JOURNAL_BYTES), written_at
    except (OSError, UnsafeTree):
        return None, None


def _measured(
    started: RunStarted, run_id: str, raw: bytes | None, written_at: dt.datetime | None = None
) -> Measured:
    if raw is None:
        return Measured({}, notes=(_NOT_HERE,))
    found = lines_so_far(raw, run_id, start_digest(started))
    taken, whole = _taken(started, found)
    waiting = len(taken.asked.keys() - taken.known.keys())
    return Measured(taken.known, None, waiting, written_at, () if whole else (_CHANGED,))


def _taken(started: RunStarted, found: FoundLines) -> tuple[Taken, bool]:
    """Take the lines up to the first one that this run cannot have written; say whether that is all."""
    taken = Taken(started)
    cases = {case.case_id for case in started.cases}
    for line in found.lines:
        key = line.case_id, line.trial
        if line.case_id in cases and line.trial < started.trials and taken.take(line):
            continue
        if taken.known.get(key) is line:
            del taken.known[key]
        return taken, False
    return taken, found.whole
