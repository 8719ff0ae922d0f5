"""The hunks of a unified diff, of text or of bytes. Pure.

Equal ends are cut off first: they need no comparison, and the time of difflib grows with the square of the
number of lines. How many lines are compared is up to the caller.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Generic, NamedTuple, TypeVar

_CONTEXT = 3

Text = TypeVar("Text", str, bytes)


class Marked(NamedTuple, Generic[Text]):
    """A line with its line feed, and its mark: blank, minus or plus."""

    mark: str
    line: Text


class Hunk(NamedTuple, Generic[Text]):
    """Where a hunk stands, as it is written between the signs `@@`, and its lines."""

    place: str
    lines: list[Marked[Text]]


@dataclass(frozen=True, slots=True)
class Difference(Generic[Text]):
    """The part of two files in which they differ, with the lines around it, and the line where it begins."""

    start: int
    old: list[Text]
    new: list[Text]

    @property
    def size(self) -> int:
        """Return how many lines have to be compared."""
        return len(self.old) + len(self.new)

    @property
    def place(self) -> str:
        """Return where all of it stands."""
        return self._place((0, len(self.old)), (0, len(self.new)))

    def hunks(self) -> Iterator[Hunk[Text]]:
        """Compare the lines, and yield every hunk."""
        for group in SequenceMatcher(None, self.old, self.new).get_grouped_opcodes(_CONTEXT):
            (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
            lines: list[Marked[Text]] = []
            for tag, i1, i2, j1, j2 in group:
                lines += _marked(" " if tag == "equal" else "-", self.old[i1:i2])
                lines += _marked("+", [] if tag == "equal" else self.new[j1:j2])
            yield Hunk(self._place((a1, a2), (b1, b2)), lines)

    def as_one_hunk(self) -> Hunk[Text]:
        """Return one hunk that replaces everything, without a comparison."""
        return Hunk(self.place, _marked("-", self.old) + _marked("+", self.new))

    def _place(self, old: tuple[int, int], new: tuple[int, int]) -> str:
        return f"-{self._range(*old)} +{self._range(*new)}"

    def _range(self, start: int, stop: int) -> str:
        length = stop - start
        first = self.start + start + (1 if length else 0)
        return str(first) if length == 1 else f"{first},{length}"


def difference(old: list[Text], new: list[Text]) -> Difference[Text]:
    """Cut off the equal lines at both ends, but for those that are shown around a change."""
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    rest = shorter - start
    end = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    start, end = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    return Difference(start, old[start : len(old) - end], new[start : len(new) - end])


def lines_of(text: Text, feed: Text) -> list[Text]:
    """Split at line feeds only, as code editors do. Each line keeps its line feed."""
    lines = text.split(feed)
    return [line + feed for line in lines[:-1]] + [line for line in lines[-1:] if line]


def _marked(mark: str, lines: list[Text]) -> list[Marked[Text]]:
    return [Marked(mark, line) for line in lines]
