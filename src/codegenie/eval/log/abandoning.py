"""Close a run that cannot be resumed: its journal is lost, or something that decided the run is gone.

The run stays in the log and counts as a failed look at its agent. The log no longer waits for its end.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codegenie.eval.errors import HarnessFailure, SettingsInvalid
from codegenie.eval.log.artifacts import LARGEST_ARTIFACT, ArtifactStore
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.log.records import RunAbandoned
from codegenie.eval.ports import Clock
from codegenie.eval.system.files import UnsafeTree, read_descriptor


def abandon_run(directory: Path, run: str, because: RunAbandoned, clock: Clock) -> tuple[str, str]:
    """Verify a log and record that one of its runs will not finish; return the run's id and the new head.

    Raises ChainTamperDetected if the log fails verification, NotMeasured if there is no such run,
    SettingsInvalid if the run has ended, and HarnessFailure if it is still running.
    """
    chain = AuditLog(directory, clock)
    entry = VerifiedLog.continued(chain).find(run)
    if not entry.is_open:
        how = "has finished" if entry.abandoned is None else "was abandoned before"
        raise SettingsInvalid(f"run {entry.run_id} {how}", hint="`codegenie eval show` shows a run")
    with _held(directory / "journal" / entry.run_id) as journal:
        # Checked again under the lock: another process may have resumed and finished the run meanwhile.
        if entry.run_id not in chain.open_runs():
            raise SettingsInvalid(f"run {entry.run_id} has ended by itself meanwhile")
        kept = None if journal is None else _kept(journal, ArtifactStore(directory / "artifacts"))
        return entry.run_id, chain.append(because.model_copy(update={"journal": kept}), entry.run_id)


def _kept(journal: int, artifacts: ArtifactStore) -> str | None:
    """Store what the run had measured with the artefacts; None if the journal cannot be read as a whole."""
    with suppress(OSError, UnsafeTree):
        digest = artifacts.keep(read_descriptor(journal, "journal", LARGEST_ARTIFACT))
        artifacts.make_durable({digest})
        return digest
    return None


@contextmanager
def _held(journal: Path) -> Iterator[int | None]:
    """Hold the lock of a run, which fails while the run is alive. At the end the journal is removed.

    Yields the descriptor of the journal; None if there is none.
    """
    try:
        descriptor = os.open(journal, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise HarnessFailure(f"cannot open the journal: {error.strerror}", where=str(journal)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
        with suppress(OSError):
            journal.unlink()
    except BlockingIOError:
        raise HarnessFailure(
            f"run {journal.name} is under way", where=str(journal), hint="end its process, then abandon it"
        ) from None
    finally:
        os.close(descriptor)
