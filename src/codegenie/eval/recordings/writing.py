"""Writes a recording: the file of each trial as soon as it is measured, and the index when the run ends.

The directory belongs to one run, which holds its lock while it writes. A run that died leaves its files, and
when it is resumed, the trials that it had measured are recorded again from the log.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from codegenie.eval.errors import DecodingRefused, HarnessFailure, SettingsInvalid
from codegenie.eval.recordings.reading import index_in
from codegenie.eval.recordings.records import (
    INDEX,
    INDEX_BYTES,
    OUTPUTS,
    RecordedTrial,
    Recording,
    file_name,
    index_bytes,
    read_index,
    trial_bytes,
    trial_key,
)
from codegenie.eval.system.file_writing import replace_file_in
from codegenie.eval.system.files import UnsafeTree, open_directory
from codegenie.eval.system.folders import make_folder, resolved


def check_place(directory: Path, kept: Iterable[Path | None]) -> None:
    """Raise SettingsInvalid if a recording would lie in a directory of our own, or around one."""
    place = resolved(directory).absolute()
    for other in (path.resolve() for path in kept if path is not None):
        if place.is_relative_to(other) or other.is_relative_to(place):
            raise SettingsInvalid(
                f"a recording and {other} cannot lie in each other",
                where=str(directory),
                hint="name a directory of its own with --record",
            )


class RecordingWriter:
    """An open, locked directory in which one run records."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor = descriptor
        self._outputs: int | None = None
        self._files: dict[str, str] = {}

    @property
    def files(self) -> int:
        """Return how many trials are recorded."""
        return len(self._files)

    def check_may_record(self, start: str, *, resume: bool) -> None:
        """Raise SettingsInvalid unless the directory is empty, or is that of a run that may be resumed now.

        `start` is the digest of everything that decides the run.
        """
        if not os.listdir(self._descriptor):
            return
        found = self._found()
        if found is None:
            raise self._not_ours("it is not empty")
        if found.finished:
            raise self._not_ours(f"it holds the recording of run {found.run_id}, which has finished")
        if found.start != start or not resume:
            raise self._not_ours(
                f"it holds what run {found.run_id} recorded, and this command does not resume that run"
            )

    def _found(self) -> Recording | None:
        with suppress(OSError, UnsafeTree, DecodingRefused):
            raw = index_in(self._descriptor)
            return None if raw is None else read_index(raw)[0]
        return None

    def _not_ours(self, problem: str) -> SettingsInvalid:
        return SettingsInvalid(
            f"--record: {problem}", where=str(self.directory), hint="name an empty or a new directory"
        )

    def keep(self, trial: RecordedTrial) -> None:
        """Write the file of one trial. It is on the disk when this returns. Raises HarnessFailure."""
        digest, raw = trial_bytes(trial)
        try:
            if self._outputs is None:
                with suppress(FileExistsError):
                    os.mkdir(OUTPUTS, 0o700, dir_fd=self._descriptor)
                self._outputs = open_directory(OUTPUTS, self._descriptor)
            replace_file_in(self._outputs, file_name(digest), raw)
        except (OSError, UnsafeTree) as error:
            raise self._cannot_write(error) from None
        self._files[trial_key(trial.case_id, trial.trial)] = digest

    def save(self, recording: Recording) -> None:
        """Write the index, which names every trial that was kept. Raises HarnessFailure."""
        raw = index_bytes(recording.model_copy(update={"outputs": dict(self._files)}))
        if len(raw) > INDEX_BYTES:
            raise RuntimeError("the index of a recording is larger than a plan allows")
        try:
            replace_file_in(self._descriptor, INDEX, raw)
        except OSError as error:
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: OSError | UnsafeTree) -> HarnessFailure:
        problem = error.strerror if isinstance(error, OSError) else f"{OUTPUTS} {error.problem}"
        return HarnessFailure(
            f"cannot write the recording: {problem}",
            where=str(self.directory),
            hint="free space; the same command then resumes the run and records what it has measured",
        )

    def close(self) -> None:
        """Give up the lock. A process that an agent has forked may still hold the descriptor."""
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        for descriptor in filter(None, (self._outputs, self._descriptor)):
            os.close(descriptor)


def open_writer(directory: Path) -> RecordingWriter:
    """Make the directory if it is missing, and lock it.

    Raises SettingsInvalid if another run records there, and HarnessFailure if it cannot be made.
    """
    place = resolved(directory).absolute()
    try:
        make_folder(place)
        descriptor = open_directory(place)
    except (OSError, UnsafeTree) as error:
        problem = error.strerror if isinstance(error, OSError) else error.problem
        raise HarnessFailure(f"cannot open the recording: {problem}", where=str(place)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise SettingsInvalid(
                "--record: another run is recording there", where=str(place), hint="name another directory"
            ) from None
        raise HarnessFailure(f"cannot lock the recording: {error.strerror}", where=str(place)) from None
    return RecordingWriter(place, descriptor)
