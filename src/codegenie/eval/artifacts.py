"""What cases left behind, kept under the hash of its bytes and never trusted without it."""

import os
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.files import UnsafeTree, read_whole_file, replace_file, sync_path
from codegenie.eval.folders import make_folder

_LARGEST = 64 * 1024 * 1024


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
        with suppress(ChainTamperDetected):
            if self.read(digest) is not None:
                return digest
        path = self.path(digest)
        try:
            make_folder(path.parent)
            # Not made durable one by one, which would cost 0.3 ms each: the finish does it for all.
            replace_file(path, content, durable=False)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(path.parent)
            ) from None
        return digest

    def read(self, digest: str) -> bytes | None:
        """Return the bytes with this hash, None where there are none; other bytes are an integrity error."""
        path = self._file(digest)
        try:
            content = read_whole_file(path, _LARGEST)
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
