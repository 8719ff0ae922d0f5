"""Reads what an agent states about itself: cost, tokens and model, from what it printed or from a file.

It is the agent's word, so reading is lenient: what cannot be read is unknown, and there is one note for a
case. Nothing here raises because of what an agent wrote, and what is unknown is never 0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.agent_spec.records import OutputTable
from codegenie.eval.suts.stated_values import (
    MISSING,
    Kind,
    Stated,
    added,
    checked_number,
    found_in,
    text_pattern,
    written_number,
)

# A line is held until its end. The line with the result is some kilobytes long.
_STATED_LINE_BYTES = 4 * 1024 * 1024
# One document, such as the whole history of an agent. Decoding a megabyte costs 20 ms.
_STATED_DOCUMENT_BYTES = 16 * 1024 * 1024
# All lines that are decoded. An agent may print lines of the right kind without end.
_STATED_LINES_BYTES = 16 * 1024 * 1024
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_KINDS: tuple[Kind, ...] = ("cost_usd", "input_tokens", "cached_tokens", "output_tokens", "model")


@dataclass(frozen=True, slots=True)
class StatedUsage:
    """What an agent states. None is unknown. There is at most one note for a case."""

    cost_usd: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()

    def with_calls(self, model_calls: int | None) -> "StatedUsage":
        """Return it with a cost of 0 as unknown, unless the harness saw that no model was called.

        An agent without a price for its model states 0. `model_calls` is None if no broker counted them.
        """
        if self.cost_usd != 0 or model_calls == 0:
            return self
        said = [note.removeprefix(_NOTE) for note in self.notes]
        return replace(
            self, cost_usd=None, notes=_one_note([*said, "cost_usd is 0 although a model was asked"])
        )


class UsageReader:
    """Reads a standard output piece by piece, in bounded memory, however much an agent prints."""

    def __init__(self, output: OutputTable) -> None:
        self._output = output
        self._paths: dict[Kind, str] = {
            kind: path for kind in _KINDS if (path := getattr(output, kind)) is not None
        }
        self._patterns: dict[Kind, re.Pattern[str]] = {}
        if output.format == "text":
            self._patterns = {kind: text_pattern(path) for kind, path in self._paths.items()}
        # A line without these bytes is not taken, and needs no decoding. Programs do not escape ASCII.
        self._marks = [f'"{value}"'.encode() for value in output.take.values() if _PLAIN.fullmatch(value)]
        self._lines = _Lines()
        self._document = bytearray()
        self._decoded = 0
        self._stated: dict[Kind, Stated] = {}

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the standard output."""
        if not self._paths or self._output.format == "file":
            return
        if self._output.format == "json":
            self._document += chunk[: _STATED_DOCUMENT_BYTES + 1 - len(self._document)]
            return
        for line, whole in self._lines.feed(chunk):
            self._take(line, whole=whole)

    def usage(self, file: bytes | None = None) -> StatedUsage:
        """Return what was stated, at the end of the output; `file` is that of format `file`."""
        if self._output.format in {"json", "file"}:
            document = _decoded(file or b"" if self._output.format == "file" else bytes(self._document))
            self._stated = {kind: found_in(document, path, kind) for kind, path in self._paths.items()}
        else:
            for line, whole in self._lines.feed(b"\n"):
                self._take(line, whole=whole)
        stated = {kind: self._stated.get(kind, MISSING) for kind in self._paths}
        problems = [f"{kind} {value.problem}" for kind, value in stated.items() if value.value is None]
        values: dict[str, Any] = {kind: value.value for kind, value in stated.items()}
        return StatedUsage(**values, notes=_one_note(problems))

    def _take(self, line: bytes, *, whole: bool) -> None:
        if self._output.format == "text":
            self._take_text(line)
            return
        if not all(mark in line for mark in self._marks):
            return
        self._decoded += len(line)
        if not whole or self._decoded > _STATED_LINES_BYTES:
            self._keep(
                dict.fromkeys(self._paths, Stated(None, "stands in lines that are too long or too many"))
            )
            return
        document = _decoded(line)
        if isinstance(document, dict) and self._is_taken(document):
            self._keep({kind: found_in(document, path, kind) for kind, path in self._paths.items()})

    def _is_taken(self, document: dict[str, Any]) -> bool:
        return all(document.get(name) == value for name, value in self._output.take.items())

    def _take_text(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        matches = {kind: pattern.search(text) for kind, pattern in self._patterns.items()}
        # A line that does not hold a piece says nothing about it.
        self._keep(
            {kind: checked_number(written_number(match[1]), kind) for kind, match in matches.items() if match}
        )

    def _keep(self, stated: Mapping[Kind, Stated]) -> None:
        for kind, value in stated.items():
            before = self._stated.get(kind)
            together = before is not None and self._output.over == "sum"
            self._stated[kind] = added(before, value, kind) if before and together else value


class _Lines:
    """Cuts a stream into lines. Of a line that is too long only the beginning is given."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each line that ends in this piece, and whether it is whole."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield from self._hold(piece)
            if self._held and not self._skipping:
                yield bytes(self._held), True
            self._held.clear()
            self._skipping = False
        yield from self._hold(rest)

    def _hold(self, piece: bytes) -> Iterator[tuple[bytes, bool]]:
        if self._skipping:
            return
        self._held += piece[: _STATED_LINE_BYTES + 1 - len(self._held)]
        if len(self._held) > _STATED_LINE_BYTES:
            self._skipping = True
            yield bytes(self._held), False


_NOTE = "what the agent states: "


def _one_note(problems: list[str]) -> tuple[str, ...]:
    return (one_line(_NOTE + "; ".join(problems)),) if problems else ()


def _decoded(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON document; None for everything that the strict decoder refuses."""
    try:
        return decode_json(raw, _STATED_DOCUMENT_BYTES)
    except DecodingRefused:
        return None
