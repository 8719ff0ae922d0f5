"""The records of the collection: what was there before, what is there now, and what is left out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from blake3 import blake3

from codegenie.eval.limits import LIMITS, CollectionLimits


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """One file as the agent got it. `content` is None if the file is too large to be shown in a patch."""

    size: int
    executable: bool
    content: bytes | None
    digest_of_large: str = ""

    @classmethod
    def of(cls, content: bytes, *, executable: bool) -> "OriginalFile":
        """Describe a file by its content."""
        if len(content) <= LIMITS.collected.file_bytes:
            return cls(len(content), executable, content)
        return cls(len(content), executable, None, blake3(content).hexdigest())

    @property
    def digest(self) -> str:
        """Return the digest of the content. Only a changed file is asked for it, so it is computed late."""
        return self.digest_of_large if self.content is None else blake3(self.content).hexdigest()

    def is_same(self, content: bytes, *, executable: bool) -> bool:
        """Say whether a file that is small enough to be read whole is as the agent got it."""
        return self.executable == executable and self.content == content


Original: TypeAlias = Mapping[str, OriginalFile]
"""The files that the agent got, by relative path."""


def original_of(files: Iterable[tuple[str, bytes, bool]]) -> dict[str, OriginalFile]:
    """Describe files that are given as path, content and whether they can be executed."""
    return {path: OriginalFile.of(content, executable=executable) for path, content, executable in files}


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What is left out of a collection, and its caps. `exclude` are patterns for names at the top."""

    exclude: tuple[str, ...] = ()
    limits: CollectionLimits = LIMITS.collected


@dataclass(frozen=True, slots=True)
class Collected:
    """What an agent changed in its workspace.

    `files` has the new text of each changed file. It has None for a file that the agent got and that is not
    there as text any more; `other` then says what is there, if anything is. `binaries` are contents by hash.
    """

    files: dict[str, str | None] = field(default_factory=dict)
    other: dict[str, dict[str, Any]] = field(default_factory=dict)
    patch: bytes = b""
    binaries: dict[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Say whether the agent changed nothing."""
        return not self.files and not self.other
