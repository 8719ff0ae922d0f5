"""Closing a run that will not come back: its journal is lost, or what decided it is no longer there.

It stays in the log, as a failed look at its agent. Only the wait for its end is over.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codegenie.eval.errors import HarnessFailure, SettingsInvalid
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.log.records import RunAbandoned
from codegenie.eval.ports import Clock


def abandon_run(directory: Path, run: str, because: RunAbandoned, clock: Clock) -> tuple[str, str]:
    """Verify a log and write down that a run of it will not finish; return its id and the head of the log."""
    chain = AuditLog(directory, clock)
    entry = VerifiedLog.continued(chain).find(run)
    if not entry.is_open:
        how = "has finished" if entry.abandoned is None else "was abandoned before"
        raise SettingsInvalid(f"run {entry.run_id} {how}", hint="`codegenie eval show` shows a run")
    with _held(directory / "journal" / entry.run_id):
        # Asked again under the lock: somebody may have taken the run up and finished it meanwhile.
        if entry.run_id not in chain.open_runs():
            raise SettingsInvalid(f"run {entry.run_id} has ended by itself meanwhile")
        return entry.run_id, chain.append(because, entry.run_id)


@contextmanager
def _held(journal: Path) -> Iterator[None]:
    """Hold the lock of a run, which a run that is alive does not give; then its journal is of no use."""
    try:
        descriptor = os.open(journal, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise HarnessFailure(f"cannot open the journal: {error.strerror}", where=str(journal)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        with suppress(OSError):
            journal.unlink()
    except BlockingIOError:
        raise HarnessFailure(
            f"run {journal.name} is under way", where=str(journal), hint="end its process, then abandon it"
        ) from None
    finally:
        os.close(descriptor)
