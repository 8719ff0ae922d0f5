"""Artefacts: the bytes that cases left behind, stored under their hash and checked against it when read."""

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.limits import LIMITS, MIB
from codegenie.eval.system.file_writing import replace_file, sync_path
from codegenie.eval.system.files import UnsafeTree, read_whole_file
from codegenie.eval.system.folders import make_folder

NOT_KEPT = "_not_kept"
"""Suffix of an artefact's name if the record has its hash but the run had no room for its bytes."""

LARGEST_ARTIFACT = 64 * 1024 * 1024


def why_not_kept(name: str) -> str:
    """Say why an artefact of this name was not kept."""
    if _is_output(name):
        return f"not kept: the run's artefacts reached {LIMITS.run_artifact_bytes // MIB} MiB"
    return f"not kept: the run's logs reached {LIMITS.run_log_bytes // MIB} MiB"


def _is_output(name: str) -> bool:
    # What came of the steps of a case is judged with the output, and a re-score needs both.
    return name.startswith(("output", "executions"))


class ArtifactStore:
    """Files named by their hash, in two levels of directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, digest: str) -> Path:
        """Return the path of the bytes with this hash."""
        return Path(self._file(digest))

    def _file(self, digest: str) -> str:
        # A string, because building a Path takes longer than reading a small artefact.
        return f"{self._directory}/{digest[:2]}/{digest}"

    def keep(self, content: bytes) -> str:
        """Store bytes once and return their hash. A damaged file with this hash is replaced."""
        digest = blake3(content).hexdigest()
        if not self.holds(digest):
            self.write(digest, content)
        return digest

    def holds(self, digest: str) -> bool:
        """Say whether the bytes with this hash are stored undamaged."""
        with suppress(ChainTamperDetected):
            return self.read(digest) is not None
        return False

    def size(self, digest: str) -> int:
        """Return how many bytes are stored; 0 if there are none."""
        try:
            return os.stat(self._file(digest), follow_symlinks=False).st_size
        except OSError:
            return 0

    def write(self, digest: str, content: bytes) -> None:
        """Store bytes whose hash is known. Raises HarnessFailure if they cannot be written."""
        path = self.path(digest)
        try:
            make_folder(path.parent)
            # Not synced one by one, which would cost 0.3 ms each: the finish syncs all of them.
            replace_file(path, content, durable=False)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(path.parent)
            ) from None

    def read(self, digest: str) -> bytes | None:
        """Return the bytes with this hash; None if there are none.

        Raises ChainTamperDetected if the file holds other bytes, and HarnessFailure if it cannot be read.
        """
        path = self._file(digest)
        try:
            content = read_whole_file(path, LARGEST_ARTIFACT)
        except UnsafeTree as unsafe:
            raise ChainTamperDetected(
                f"artefact {digest} {unsafe.problem}", where=path, hint="restore it from a copy"
            ) from None
        except OSError as error:
            raise HarnessFailure(
                f"cannot read artefact {digest}: {error.strerror}",
                where=path,
                hint="check the read permissions of the directory and its files",
            ) from None
        if content is not None and blake3(content).hexdigest() != digest:
            raise ChainTamperDetected(
                f"artefact {digest} does not match its hash", where=path, hint="restore it from a copy"
            )
        return content

    def is_damaged(self, digest: str) -> bool:
        """Say whether there is a file whose bytes do not have its hash."""
        try:
            self.read(digest)
        except ChainTamperDetected:
            return True
        return False

    def make_durable(self, digests: AbstractSet[str]) -> None:
        """Sync the artefacts of a run to the disk before a record names them, or raise HarnessFailure."""
        folders = set()
        try:
            for file in map(self._file, sorted(digests)):
                if os.path.exists(file):
                    sync_path(file)
                    folders.add(os.path.dirname(file))
            for folder in sorted(folders):
                sync_path(folder)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(self._directory)
            ) from None


class RunArtifacts:
    """The artefacts of one run, with a cap for all of them, because a bench can have any number of cases.

    Logs may use only a share of it. Outputs may use all of the rest, because a re-score needs them.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._logs = 0
        self._all = 0

    def count(self, known: Iterable[Mapping[str, str]]) -> None:
        """Count what a dead run had kept: resuming it does not give new room."""
        sizes = {digest: (name, self._store.size(digest)) for kept in known for name, digest in kept.items()}
        for name, size in sizes.values():
            if not name.endswith(NOT_KEPT):
                self._add(name, size)

    def read(self, digest: str) -> bytes | None:
        """Return bytes by their hash; None if they are gone. Raises ChainTamperDetected if they changed."""
        return self._store.read(digest)

    def keep(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes while there is room. Return the name to record, and the hash."""
        digest = blake3(content).hexdigest()
        if self._store.holds(digest):
            return name, digest
        if not self._has_room(name, len(content)):
            return name + NOT_KEPT, digest
        self._store.write(digest, content)
        self._add(name, len(content))
        return name, digest

    def _has_room(self, name: str, size: int) -> bool:
        fits = self._all + size <= LIMITS.run_artifact_bytes
        return fits and (_is_output(name) or self._logs + size <= LIMITS.run_log_bytes)

    def _add(self, name: str, size: int) -> None:
        self._all += size
        self._logs += 0 if _is_output(name) else size
