"""What an output changes, computed from the input of its case and the `files` that it names.

An agent may also write its own text under `diff`. The harness has not seen such a change, and leaves it out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from codegenie.eval.collection.hunks import difference, lines_of
from codegenie.eval.limits import LIMITS

_LISTED = 10
_NO_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one trial, or why it could not be computed."""

    computed: tuple[str, ...] | None
    not_computed: str | None

    def lines(self, title: str) -> list[str]:
        """Return the change as text, below a title that says where it comes from."""
        lines = [f"{title} change, computed from the input and the output"]
        return lines + (
            list(self.computed) if self.computed is not None else [f"not computed: {self.not_computed}"]
        )


def change_of(output: object, before: Mapping[str, bytes] | str) -> Change:
    """Describe an output. `before` is the input of its case, or the reason why it is missing."""
    if not isinstance(output, dict):
        return Change(("the output is not an object and names no files",), None)
    files = output.get("files")
    named = files if isinstance(files, dict) else {}
    if not named:
        return Change(("the output names no files, so nothing is changed",), None)
    if isinstance(before, str):
        return Change(None, f"{before}; the output names {_listed(named)}")
    comparer = _Comparer(before)
    return Change(tuple(line for path in sorted(named) for line in comparer.lines(path, named[path])), None)


def _listed(files: Mapping[str, Any]) -> str:
    names = [f"{path} ({'deleted' if text is None else 'text'})" for path, text in sorted(files.items())]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


class _Comparer:
    """Compares the files of one output with the input, up to a cap of lines for all files together."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._before = before
        self._left = LIMITS.compared_lines

    def lines(self, path: str, after: object) -> Iterator[str]:
        """Yield the change of one file."""
        raw = self._before.get(path)
        if after is not None and not isinstance(after, str):
            yield f"{path}: its new content is a {type(after).__name__} and not text"
            return
        if raw is None and after is None:
            yield f"{path}: deleted, and the input has no such file"
            return
        try:
            old = None if raw is None else raw.decode("utf-8")
        except UnicodeDecodeError:
            fate = "deleted" if after is None else f"replaced by a text of {len(after)} characters"
            yield f"{path}: {len(raw or b'')} bytes that are not UTF-8 text are {fate}"
            return
        if old == after:
            yield f"{path}: as in the input"
            return
        yield "--- /dev/null" if old is None else f"--- a/{path}"
        yield "+++ /dev/null" if after is None else f"+++ b/{path}"
        yield from self._hunks(lines_of(old or "", "\n"), lines_of(after or "", "\n"))

    def _hunks(self, old: list[str], new: list[str]) -> Iterator[str]:
        """Yield a unified diff, or only where it would stand if there is too much to compare."""
        found = difference(old, new)
        self._left -= found.size
        if self._left < 0:
            yield f"@@ {found.place} @@ too much to compare"
            return
        for place, lines in found.hunks():
            yield f"@@ {place} @@"
            for mark, line in lines:
                yield mark + line.removesuffix("\n")
                if not line.endswith("\n"):
                    yield _NO_END
