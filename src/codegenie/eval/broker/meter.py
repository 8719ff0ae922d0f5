"""Reads tokens and model out of what a model API answers: JSON or server-sent events of four APIs.

It only listens. What it cannot read is unknown: it never raises and never guesses a zero. In one answer a
count may be stated several times, and grows while the answer is streamed, so the largest value is taken.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# A whole answer that is not streamed, or one event of a stream. The longest answers of models have 1 MiB.
_DOCUMENT_BYTES = 4 * 1024 * 1024
_LARGEST_COUNT = 10**9
_MODEL_CHARACTERS = 200
_STREAM_BEGINNINGS = (b"event:", b"data:", b"id:", b"retry:", b":")
# Where the answer itself lies: at the top, or in an event of Anthropic or of OpenAI's responses.
_HOLDERS = ("message", "response")

_INPUT = ("input_tokens", "prompt_tokens", "promptTokenCount")
_MORE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens", "toolUsePromptTokenCount")
_CACHED = ("cache_read_input_tokens", "cached_tokens", "cachedContentTokenCount")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount")
_MORE_OUTPUT = ("thoughtsTokenCount",)
# The last word of a stream. Gemini has none: there the body's end is the end.
_DONE = b"[DONE]"
# A tuple, because what is compared with it may be a list, which no set can look up.
_LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete", "response.failed")
_DETAILS = ("input_tokens_details", "prompt_tokens_details")
_COUNTS = frozenset((*_INPUT, *_MORE_INPUT, *_CACHED, *_OUTPUT, *_MORE_OUTPUT))


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer said. `input_tokens` holds the cached ones too; None is unknown."""

    model: str | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    # Whether a stream has said that it is over; the agent may then leave before the connection ends.
    is_ended: bool = False

    @property
    def is_from_a_model(self) -> bool:
        """Whether this was the answer of a model: a page of a captive portal names neither."""
        return self.model is not None or self.has_usage

    @property
    def has_usage(self) -> bool:
        """Whether both numbers are known that every bill needs."""
        return self.input_tokens is not None and self.output_tokens is not None


class Meter:
    """Listens to the body of one answer. It holds at most one document of it in memory."""

    def __init__(self, content_type: str) -> None:
        self._is_stream: bool | None = True if "event-stream" in content_type.lower() else None
        self._buffer = bytearray()
        self._data = bytearray()
        self._overflown = False
        self._is_ended = False
        self._model: str | None = None
        self._largest: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        """Listen to the next bytes."""
        self._buffer += data
        has_line = b"\n" in data
        if self._is_stream is None and len(self._buffer) >= len(max(_STREAM_BEGINNINGS, key=len)):
            self._is_stream = self._buffer.startswith(_STREAM_BEGINNINGS)
            has_line = True
        if self._is_stream and has_line:
            self._take_lines()
        if len(self._buffer) > _DOCUMENT_BYTES:
            self._buffer.clear()
            self._overflown = True

    def finish(self) -> Reading:
        """Return what was read."""
        if self._is_stream:
            self._take_line(bytes(self._buffer))
            self._end_event()
        elif not self._overflown:
            self._see(bytes(self._buffer))
        self._buffer.clear()
        return self._reading()

    def _take_lines(self) -> None:
        *lines, rest = bytes(self._buffer).replace(b"\r\n", b"\n").split(b"\n")
        if not lines:
            return
        self._buffer = bytearray(rest)
        if self._overflown:
            # This is the end of a line whose beginning was given up.
            del lines[0]
            self._overflown = False
        for line in lines:
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        line = line.rstrip(b"\r")
        if not line:
            self._end_event()
        elif line.startswith(b"data:") and len(self._data) + len(line) <= _DOCUMENT_BYTES:
            self._data += line[len(b"data:") :] + b"\n"

    def _end_event(self) -> None:
        data = bytes(self._data)
        self._data.clear()
        # Most events are a few words of the answer, and are not worth reading.
        if data.strip() == _DONE:
            self._is_ended = True
        elif b"odel" in data or b"sage" in data:
            self._see(data)

    def _see(self, raw: bytes) -> None:
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict) and document.get("type") in _LAST_EVENTS:
            self._is_ended = True
        for answer in _answers(document):
            self._note_model(answer.get("model"))
            self._note_model(answer.get("modelVersion"))
            for name in ("usage", "usageMetadata"):
                self._note_usage(answer.get(name))

    def _note_model(self, name: object) -> None:
        if isinstance(name, str) and 0 < len(name) <= _MODEL_CHARACTERS and name.isprintable():
            self._model = name

    def _note_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        counts = {**usage, **{key: value for name in _DETAILS for key, value in _object(usage, name).items()}}
        for name in _COUNTS & counts.keys():
            value = counts[name]
            if type(value) is int and 0 <= value <= _LARGEST_COUNT:
                self._largest[name] = max(value, self._largest.get(name, 0))

    def _reading(self) -> Reading:
        known = self._largest
        total = _sum(known, _INPUT, _MORE_INPUT)
        cached = max((known[name] for name in _CACHED if name in known), default=None)
        if cached is not None and (total is None or cached > total):
            cached = None
        return Reading(self._model, total, cached, _sum(known, _OUTPUT, _MORE_OUTPUT), self._is_ended)


def _answers(document: object) -> Iterator[dict[str, Any]]:
    """Yield every object in which an answer's model or usage may stand. Gemini streams a list of them."""
    for item in document if isinstance(document, list) else [document]:
        if isinstance(item, dict):
            yield item
            yield from (_object(item, name) for name in _HOLDERS)


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _sum(known: dict[str, int], names: tuple[str, ...], more: tuple[str, ...]) -> int | None:
    """Return the number that one of the names has, with what an API counts beside it; None without it."""
    stated = [known[name] for name in names if name in known]
    return max(stated) + sum(known.get(name, 0) for name in more) if stated else None
