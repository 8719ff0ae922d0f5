"""What was collected, in words: counts, and what the patch cannot show. Pure."""

from collections.abc import Iterator
from typing import Any

from codegenie.eval.collection.records import Collected
from codegenie.eval.sanitising import one_line

_NAMED = 100


def listing_of(collected: Collected, notes: tuple[str, ...]) -> str:
    """Return lines of text: how much was collected, each entry that is not text, and each note."""
    return "".join(f"{line}\n" for line in _lines(collected, notes))


def _lines(collected: Collected, notes: tuple[str, ...]) -> Iterator[str]:
    texts = sum(text is not None for text in collected.files.values())
    gone = len(collected.files) - texts
    yield f"{texts} files as text, {gone} files that are gone, {len(collected.other)} other entries"
    named = sorted(collected.other.items())
    yield from (one_line(f"{path}: {_told(entry)}", limit=1_000) for path, entry in named[:_NAMED])
    if len(named) > _NAMED:
        yield f"and {len(named) - _NAMED} more"
    yield from (f"note: {note}" for note in notes)


def _told(entry: dict[str, Any]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in entry.items() if key != "kind")
    return f"{entry['kind']} ({rest})" if rest else str(entry["kind"])
