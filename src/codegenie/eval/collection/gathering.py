"""What a collection has taken so far, within its caps. It opens nothing."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from blake3 import blake3

from codegenie.eval.collection.names import is_long, is_odd, spelled_path
from codegenie.eval.collection.patches import FileChange, Side, is_text, patch_of
from codegenie.eval.collection.records import Collected, CollectOptions, Original, OriginalFile

_UNKNOWN = ""
"""The digest of a content that was not read. No content has it."""


class Gathering:
    """Takes entries one by one. What is over a cap becomes a typed entry, never an exception."""

    def __init__(self, original: Original, options: CollectOptions) -> None:
        self._original = original
        self._limits = options.limits
        self._room = options.limits.total_bytes
        self._deadline = time.monotonic() + options.limits.seconds
        self.entries_left = options.limits.entries
        self._result = Collected()
        self._changes: list[FileChange] = []
        self._kinds: Counter[str] = Counter()

    @property
    def is_late(self) -> bool:
        """Say whether the time for this workspace is over."""
        return time.monotonic() > self._deadline

    def gone(self, path: str) -> None:
        """Note that a file which the agent got is not there any more."""
        self._result.files[path] = None
        self._changes.append(FileChange(path, _side(self._original[path]), None))

    def replaced(self, path: str, entry: dict[str, Any]) -> None:
        """Note that something else is where a file was which the agent got."""
        self.gone(path)
        self.name(path, entry)

    def name(self, path: str, entry: dict[str, Any]) -> None:
        """Note an entry that is not given as text. A name that cannot stand in a document is spelled."""
        plain = path in self._original or not (is_long(path) or any(map(is_odd, path.split("/"))))
        self._result.other[path if plain else spelled_path(path)] = entry
        self._kinds[entry["kind"]] += 1

    def withheld(self, path: str, entry: dict[str, Any], *, executable: bool = False) -> None:
        """Note a file whose content is not given. A file that the agent got counts as changed."""
        if path in self._original:
            self._result.files[path] = None
            before = _side(self._original[path])
            self._changes.append(FileChange(path, before, Side(None, executable, _UNKNOWN)))
        self.name(path, entry)

    def content(self, path: str, content: bytes, *, executable: bool) -> None:
        """Take the content of a new or changed file."""
        if len(content) > self._room:
            self.withheld(path, {"kind": "over_total", "size": len(content)}, executable=executable)
            return
        self._room -= len(content)
        original = self._original.get(path)
        after = Side(content, executable, blake3(content).hexdigest())
        before = None if original is None else _side(original)
        self._changes.append(FileChange(path, before, after))
        if is_text(content):
            self._result.files[path] = content.decode()
            return
        if original is not None:
            self._result.files[path] = None
        self._result.binaries[after.digest] = content
        self.name(path, {"kind": "binary", "size": len(content), "blake3": after.digest})

    def collected(self) -> Collected:
        """Return everything that was taken, with the patch and a note on each cap that was reached."""
        patch, left_out = patch_of(self._changes)
        result = self._result
        notes = [*self._cap_notes()]
        if left_out:
            notes.append(
                f"{left_out} changed files are not in the patch, which holds {self._limits.patch_bytes} bytes"
            )
        return Collected(result.files, result.other, patch, result.binaries, tuple(notes))

    def _cap_notes(self) -> Iterator[str]:
        limits = self._limits
        reasons = {
            "odd_name": f"have a name that is not plain text, or over {limits.path_bytes} bytes of path",
            "over_total": f"are beyond {limits.total_bytes} bytes, {limits.entries} entries"
            f" or {limits.seconds:g} seconds for the whole workspace",
            "too_deep": f"are folders more than {limits.depth} levels deep",
            "too_large": f"have more than {limits.file_bytes} bytes",
            "unreadable": "could not be read",
        }
        for kind, reason in reasons.items():
            if self._kinds[kind]:
                yield f"{kind}: {self._kinds[kind]} entries {reason}"


def _side(original: OriginalFile) -> Side:
    return Side(original.content, original.executable, original.digest)
