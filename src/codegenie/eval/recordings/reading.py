"""Reads a recording by descriptors: only the files that its index names, and never through a link."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.recordings.records import (
    FILE_BYTES,
    INDEX,
    INDEX_BYTES,
    OUTPUTS,
    RecordedTrial,
    Recording,
    check_hash,
    file_name,
    read_index,
    read_trial,
    trial_key,
)
from codegenie.eval.system.files import UnsafeTree, open_directory, opened_directory, read_plain_file


@dataclass(frozen=True, slots=True)
class RecordingOnDisk:
    """A recording whose index was checked. Its trials are read, and checked, when they are asked for."""

    directory: Path
    recording: Recording
    digest: str

    def check(self) -> None:
        """Compare every file that the index names with its hash. Raises DecodingRefused, naming the file."""
        with _outputs(self.directory) as outputs:
            for digest in sorted(set(self.recording.outputs.values())):
                with _reading(self._file(digest)):
                    check_hash(_whole(outputs, file_name(digest)), digest)

    def trial(self, case_id: str, trial: int) -> RecordedTrial:
        """Return what was recorded of a trial that the index names. Raises DecodingRefused."""
        digest = self.recording.outputs[trial_key(case_id, trial)]
        with _outputs(self.directory) as outputs, _reading(self._file(digest)):
            found = read_trial(_whole(outputs, file_name(digest)), digest)
            if (found.task_class, found.case_id, found.trial) != (self.recording.task_class, case_id, trial):
                raise DecodingRefused(f"it is not of case {case_id}, trial {trial}")
            return found

    def _file(self, digest: str) -> Path:
        return self.directory / OUTPUTS / file_name(digest)


def open_recording(directory: Path) -> RecordingOnDisk | None:
    """Read the index of a recording; None if there is none. Raises DecodingRefused if it was changed."""
    with _reading(directory), opened_directory(directory) as opened:
        raw = index_in(opened)
    if raw is None:
        return None
    with _reading(directory / INDEX):
        return RecordingOnDisk(directory, *read_index(raw))


def index_in(directory: int) -> bytes | None:
    """Return the bytes of the index in an open directory; None if there is none."""
    return read_plain_file(directory, INDEX, INDEX_BYTES)


@contextmanager
def _outputs(directory: Path) -> Iterator[int]:
    with _reading(directory / OUTPUTS), opened_directory(directory) as opened:
        outputs = open_directory(OUTPUTS, opened)
    try:
        yield outputs
    finally:
        os.close(outputs)


def _whole(outputs: int, name: str) -> bytes:
    raw = read_plain_file(outputs, name, FILE_BYTES)
    if raw is None:
        raise DecodingRefused("it is missing")
    return raw


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Name the file in each refusal."""
    try:
        yield
    except UnsafeTree as unsafe:
        raise DecodingRefused(f"it {unsafe.problem}", where=str(file)) from None
    except DecodingRefused as refusal:
        raise DecodingRefused(refusal.message, where=refusal.where or str(file)) from None
    except OSError as error:
        raise HarnessFailure(f"cannot read the recording: {error.strerror}", where=str(file)) from None
