"""What cases left behind, kept under the hash of its bytes and never trusted without it."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.files import UnsafeTree, read_whole_file, replace_file, sync_path

_LARGEST = 64 * 1024 * 1024


class ArtifactStore:
    """Content-addressed files in two levels of directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, digest: str) -> Path:
        """Return where the bytes with this hash lie."""
        return self._directory / digest[:2] / digest

    def keep(self, content: bytes) -> str:
        """Store bytes once and return their hash. What lies there damaged is replaced."""
        digest = blake3(content).hexdigest()
        path = self.path(digest)
        with suppress(ChainTamperDetected):
            if self.read(digest) is not None:
                return digest
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not made durable one by one, which would cost 0.3 ms each: the finish does it for all.
            replace_file(path, content, durable=False)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(path.parent)
            ) from None
        return digest

    def read(self, digest: str) -> bytes | None:
        """Return the bytes with this hash, None where there are none; other bytes are an integrity error."""
        path = self.path(digest)
        try:
            content = read_whole_file(path, _LARGEST)
        except UnsafeTree as unsafe:
            raise ChainTamperDetected(
                f"artefact {digest} {unsafe.problem}", where=str(path), hint="restore it from a copy"
            ) from None
        except OSError as error:
            raise HarnessFailure(
                f"cannot read artefact {digest}: {error.strerror}",
                where=str(path),
                hint="see who may read the directory and its files",
            ) from None
        if content is not None and blake3(content).hexdigest() != digest:
            raise ChainTamperDetected(
                f"artefact {digest} is not what its hash says", where=str(path), hint="restore it from a copy"
            )
        return content

    def is_damaged(self, digest: str) -> bool:
        """Say whether something lies there that is not what its hash says."""
        try:
            self.read(digest)
        except ChainTamperDetected:
            return True
        return False

    def make_durable(self, digests: Iterable[str]) -> None:
        """Put what a run left behind on the disk, before a record speaks of it."""
        paths = [path for path in map(self.path, sorted(set(digests))) if path.exists()]
        try:
            for path in (*paths, *sorted({path.parent for path in paths})):
                sync_path(path)
        except OSError as error:
            raise HarnessFailure(
                f"cannot keep an artefact: {error.strerror}", where=str(self._directory)
            ) from None
