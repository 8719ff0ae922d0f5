"""What cases left behind, kept under the hash of its bytes and never trusted without it."""

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.limits import LIMITS, MIB
from codegenie.eval.system.files import UnsafeTree, read_whole_file, replace_file, sync_path
from codegenie.eval.system.folders import make_folder

NOT_KEPT = "_not_kept"
"""Ends the name of an artefact of which the record has the hash, and the run had no room for the bytes."""

LARGEST_ARTIFACT = 64 * 1024 * 1024


def why_not_kept(name: str) -> str:
    """Say why an artefact of this name was not kept."""
    if _is_output(name):
        return f"not kept: the run's artefacts reached {LIMITS.run_artifact_bytes // MIB} MiB"
    return f"not kept: the run's logs reached {LIMITS.run_log_bytes // MIB} MiB"


def _is_output(name: str) -> bool:
    return name.startswith("output")


class ArtifactStore:
    """Content-addressed files in two levels of directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, digest: str) -> Path:
        """Return where the bytes with this hash lie."""
        return Path(self._file(digest))

    def _file(self, digest: str) -> str:
        # Text and not a Path, which takes longer to put together than a small artefact takes to read.
        return f"{self._directory}/{digest[:2]}/{digest}"

    def keep(self, content: bytes) -> str:
        """Store bytes once and return their hash. What lies there damaged is replaced."""
        digest = blake3(content).hexdigest()
        if not self.holds(digest):
            self.write(digest, content)
        return digest

    def holds(self, digest: str) -> bool:
        """Say whether the bytes with this hash lie there whole."""
        with suppress(ChainTamperDetected):
            return self.read(digest) is not None
        return False

    def size(self, digest: str) -> int:
        """Return how many bytes lie there."""
        try:
            return os.stat(self._file(digest), follow_symlinks=False).st_size
        except OSError:
            return 0

    def write(self, digest: str, content: bytes) -> None:
        """Store bytes whose hash is known."""
        path = self.path(digest)
        try:
            make_folder(path.parent)
            # Not made durable one by one, which would cost 0.3 ms each: the finish does it for all.
            replace_file(path, content, durable=False)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(path.parent)
            ) from None

    def read(self, digest: str) -> bytes | None:
        """Return the bytes with this hash, None where there are none; other bytes are an integrity error."""
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
                hint="see who may read the directory and its files",
            ) from None
        if content is not None and blake3(content).hexdigest() != digest:
            raise ChainTamperDetected(
                f"artefact {digest} is not what its hash says", where=path, hint="restore it from a copy"
            )
        return content

    def is_damaged(self, digest: str) -> bool:
        """Say whether something lies there that is not what its hash says."""
        try:
            self.read(digest)
        except ChainTamperDetected:
            return True
        return False

    def make_durable(self, digests: AbstractSet[str]) -> None:
        """Put what a run left behind on the disk, before a record speaks of it."""
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
    """What one run keeps, up to a cap for all of it: a bench has as many cases as it likes.

    Logs have a share and no more. Outputs may take all of the rest: without them nothing is scored again.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._logs = 0
        self._all = 0

    def count(self, known: Iterable[Mapping[str, str]]) -> None:
        """Count what a dead run had kept: taking it up again makes no new room."""
        sizes = {digest: (name, self._store.size(digest)) for kept in known for name, digest in kept.items()}
        for name, size in sizes.values():
            if not name.endswith(NOT_KEPT):
                self._add(name, size)

    def read(self, digest: str) -> bytes | None:
        """Return bytes by their hash, None if they are gone; raise if they are not what they were."""
        return self._store.read(digest)

    def keep(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes while there is room; return the name to record them under, and their hash."""
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
