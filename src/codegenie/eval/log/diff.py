"""What an output changes, computed from the input of its case and the `files` that it names.

An agent may also write its own text under `diff`. The harness does not check it and never shows it as ours.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from codegenie.eval.limits import LIMITS

_CONTEXT = 3
_LISTED = 10
_NO_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one trial, or why it could not be computed; and what the agent says about it."""

    computed: tuple[str, ...] | None
    not_computed: str | None
    claimed: str | None
    rest: tuple[str, ...] = ()

    def lines(self, title: str) -> list[str]:
        """Return everything as text. Each part has a title that names its author.

        The agent's text is indented, so none of its lines looks like a title.
        """
        lines = [f"{title} change, computed from the input and the output"]
        lines += self.computed if self.computed is not None else [f"not computed: {self.not_computed}"]
        if self.claimed is not None:
            lines += [
                f'{title} "diff" as the agent wrote it; it was not checked',
                *_quoted(_rows(self.claimed)),
            ]
        if self.rest:
            lines += [f"{title} what else the agent returned", *_quoted(self.rest)]
        return lines


def change_of(output: object, before: Mapping[str, bytes] | str) -> Change:
    """Describe an output. `before` is the input of its case, or the reason why it is missing."""
    if not isinstance(output, dict):
        return Change(("the output is not an object and names no files",), None, None, _spelled(output))
    files = output.get("files")
    rest = {key: value for key, value in output.items() if key not in {"files", "diff"}}
    if files is not None and not isinstance(files, dict):
        rest["files"] = files
    named = files if isinstance(files, dict) else {}
    claim = output.get("diff")
    claimed = claim if isinstance(claim, str) or claim is None else "\n".join(_spelled(claim))
    computed: tuple[str, ...] | None = None
    why_not: str | None = None
    if not named:
        computed = ("the output names no files, so nothing is changed",)
    elif isinstance(before, str):
        why_not = f"{before}; the output names {_listed(named)}"
    else:
        comparer = _Comparer(before)
        computed = tuple(line for path in sorted(named) for line in comparer.lines(path, named[path]))
    return Change(computed, why_not, claimed or None, _spelled(rest) if rest else ())


def _listed(files: Mapping[str, Any]) -> str:
    names = [f"{path} ({'deleted' if text is None else 'text'})" for path, text in sorted(files.items())]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _spelled(value: object) -> tuple[str, ...]:
    return tuple(json.dumps(value, indent=2, ensure_ascii=False).split("\n"))


def _quoted(lines: Iterable[str]) -> Iterator[str]:
    return (f"| {line}" for line in lines)


def _rows(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


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
        yield from self._hunks(_split(old or ""), _split(after or ""))

    def _hunks(self, old: list[str], new: list[str]) -> Iterator[str]:
        """Yield a unified diff. Equal ends are skipped: the time grows with the square of the length."""
        start, end = _equal_ends(old, new)
        start, end = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
        a, b = old[start : len(old) - end], new[start : len(new) - end]
        self._left -= len(a) + len(b)
        if self._left < 0:
            places = f"-{_range(start, start + len(a))} +{_range(start, start + len(b))}"
            yield f"@@ {places} @@ too much to compare"
            return
        for group in SequenceMatcher(None, a, b).get_grouped_opcodes(_CONTEXT):
            (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
            yield f"@@ -{_range(start + a1, start + a2)} +{_range(start + b1, start + b2)} @@"
            for tag, i1, i2, j1, j2 in group:
                yield from _marked(" " if tag == "equal" else "-", a[i1:i2])
                yield from _marked("+", [] if tag == "equal" else b[j1:j2])


def _split(text: str) -> list[str]:
    """Split at line feeds only, as code editors do. Each line keeps its line feed."""
    *whole, last = text.split("\n")
    return [line + "\n" for line in whole] + ([last] if last else [])


def _equal_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    rest = shorter - start
    return start, next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_END
