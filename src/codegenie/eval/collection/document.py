"""Writes `harness_output`, the document that a rubric judges, from what was collected. Pure.

The document has the same cap as the output that an agent returns. What does not fit is left out and noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegenie.eval.canonical import canonical_json
from codegenie.eval.collection.records import Collected
from codegenie.eval.limits import LIMITS


@dataclass(frozen=True, slots=True)
class HarnessOutput:
    """The bytes of a document, and what did not fit into it."""

    output: bytes
    notes: tuple[str, ...] = ()


def harness_output(collected: Collected, words: Mapping[str, Any]) -> HarnessOutput:
    """Write what was collected as `files`, `diff` and `other`, beside what is known otherwise in `words`.

    Files that were deleted come first, then texts, then `other`, and the patch only as a whole.
    """
    document: dict[str, Any] = {**words, "diff": "", "files": {}, "other": {}}
    room = _Room(LIMITS.sut_output_bytes - len(canonical_json(document)))
    if room.left < 0:
        return HarnessOutput(
            canonical_json(dict(words)), ("nothing of what was collected fits into the output",)
        )
    files, other = document["files"], document["other"]
    late: dict[str, dict[str, Any]] = {}
    for path, text in sorted(collected.files.items(), key=lambda item: (item[1] is not None, item[0])):
        if room.takes(path, text):
            files[path] = text
        else:
            late[path] = {"kind": "over_total", "size": len((text or "").encode())}
    unnamed = 0
    for path, entry in sorted((late | collected.other).items()):
        if room.takes(path, entry):
            other[path] = entry
        else:
            unnamed += 1
    patch = collected.patch.decode()
    fits = room.takes("", patch)
    document["diff"] = patch if fits else ""
    return HarnessOutput(canonical_json(document), tuple(_notes(len(late), unnamed, patch_fits=fits)))


def _notes(late: int, unnamed: int, *, patch_fits: bool) -> list[str]:
    cap = f"{LIMITS.sut_output_bytes} bytes of the output"
    notes = [f"over_total: {late} files are beyond the {cap}"] if late else []
    notes += [f"{unnamed} entries are not named: they are beyond the {cap}"] if unnamed else []
    return notes if patch_fits else [*notes, f"the patch is beyond the {cap}, and is kept beside it"]


class _Room:
    """The bytes that are left in a document."""

    def __init__(self, left: int) -> None:
        self.left = left

    def takes(self, key: str, value: object) -> bool:
        """Take the bytes of one entry, if there are as many."""
        # A colon and a comma come with each entry.
        needed = len(canonical_json(key)) + len(canonical_json(value)) + 2
        if needed > self.left:
            return False
        self.left -= needed
        return True
