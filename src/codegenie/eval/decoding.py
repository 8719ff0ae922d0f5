"""The strict decoder: outside bytes to plain values, caps first.

JSON, TOML and YAML from a bench, a rubric, a system under test or a log come in here and nowhere else.
Every refusal is a DecodingRefused that says what and where; the caller gives it the type of its own room.
"""

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS

_YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def decode_text(raw: bytes, limit: int) -> str:
    """Decode strict UTF-8 without a byte order mark, within `limit` bytes."""
    if len(raw) > limit:
        raise DecodingRefused(f"{len(raw)} bytes are more than the {limit} allowed")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise DecodingRefused("starts with a byte order mark", hint="save it as UTF-8 without BOM")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodingRefused(f"not UTF-8 at byte {error.start}") from None


def decode_json(raw: bytes, limit: int) -> Any:  # noqa: ANN401 - any JSON value
    """Decode exactly one JSON document: unique keys, finite numbers, whole characters, bounded depth."""
    text = decode_text(raw, limit)
    try:
        value = _JSON_DECODER.decode(text)
    except RecursionError:
        raise DecodingRefused("nested too deeply") from None
    except ValueError as error:
        raise DecodingRefused(f"not one JSON document: {_reason(error)}") from None
    _check_nodes(value)
    return value


def decode_toml(raw: bytes) -> dict[str, Any]:
    """Decode a small TOML file; a flat one of plain scalars is read without tomllib, which is slow."""
    text = decode_text(raw, LIMITS.toml_bytes)
    flat = _flat_toml(text)
    if flat is not None:
        return flat
    # Not `splitlines`: it also splits at characters that TOML takes as part of a quoted key.
    if any(line.count(".") > LIMITS.toml_dots_per_line for line in text.split("\n")):
        raise DecodingRefused(f"a line has more than {LIMITS.toml_dots_per_line} dots")
    try:
        value = tomllib.loads(text, parse_float=_finite)
    except RecursionError:
        raise DecodingRefused("nested too deeply") from None
    except ValueError as error:
        raise DecodingRefused(f"not TOML: {_reason(error)}") from None
    _check_nodes(value)
    return value


def decode_yaml(raw: bytes, limit: int = LIMITS.yaml_bytes, *, numbers: bool = False) -> Any:  # noqa: ANN401
    """Decode one YAML document of mappings, sequences and strings; every scalar is a string.

    With `numbers`, a plain scalar that is a decimal number is one; a quoted one stays a string. Takes the
    parser's events one at a time, so an alias bomb is refused at its first anchor and a quarter of a
    megabyte of brackets, which keeps libyaml busy for minutes, at the deepest one allowed.
    """
    text = decode_text(raw, limit)
    try:
        return _YamlBuilder(yaml.parse(text, Loader=_YAML_LOADER), numbers=numbers).document()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise DecodingRefused(f"not YAML: {_yaml_reason(error)}") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _yaml_reason(error: Exception) -> str:
    """Say the problem and its line, and not the text around it, which is the bench's."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice[:64]!r} appears twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


# Made once: making one takes as long as decoding an answer.
_JSON_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _check_nodes(value: object) -> None:
    """Refuse what is too deep, strings with half characters and integers that cannot be printed."""
    level: list[object] = [value]
    for _ in range(LIMITS.nesting):
        level = _checked_children(level)
        if not level:
            return
    raise DecodingRefused(f"nested more than {LIMITS.nesting} levels deep")


def _checked_children(level: list[object]) -> list[object]:
    children: list[object] = []
    for node in level:
        if isinstance(node, dict):
            children.extend(node)
            children.extend(node.values())
        elif isinstance(node, list):
            children.extend(node)
        elif isinstance(node, str):
            _check_characters(node)
        elif isinstance(node, int) and node.bit_length() > LIMITS.integer_bits:
            raise DecodingRefused(f"an integer has more than {LIMITS.integer_bits} bits")
    return children


def _check_characters(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DecodingRefused("a string holds half a character (a lone surrogate)") from None


_FLAT_LINE = re.compile(
    r"""^[ \t]*(?:
        ([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:
            "([^"\\\x00-\x1f\x7f]*)"
          | '([^'\x00-\x1f\x7f]*)'
          | (\d{4}-\d{2}-\d{2})
          | (0|[1-9][0-9]{0,17})
        )[ \t]*
    )?(?:\#[^\x00-\x08\x0a-\x1f\x7f]*)?$""",
    re.VERBOSE | re.ASCII | re.MULTILINE,
)


def _flat_toml(text: str) -> dict[str, Any] | None:
    """Read `key = scalar` lines, or return None for anything that needs the whole grammar.

    tomllib takes 0.1 ms for a case.toml, as long as all the rest of loading the case; the law test compares
    the two on everything that this takes.
    """
    lines = _FLAT_LINE.findall(text)
    if len(lines) != text.count("\n") + 1:
        return None
    values: dict[str, Any] = {}
    try:
        for key, basic, literal, date, integer in lines:
            if not key:
                continue
            if key in values:
                return None
            values[key] = _flat_value(basic or literal, date, integer)
    except ValueError:
        return None
    return values


def _flat_value(text: str, date: str, integer: str) -> object:
    if date:
        return dt.date.fromisoformat(date)
    return int(integer) if integer else text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


# No exponents, no bare dots, no leading zeros: YAML 1.1 reads 010 as eight and 1_0 as ten, and people do not.
_DECIMAL = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.\d{1,18})?", re.ASCII)


def _number(text: str) -> object:
    if not _DECIMAL.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


class _YamlBuilder:
    """Builds plain values from parser events and refuses what the contract leaves out."""

    def __init__(self, events: Iterator[yaml.Event], *, numbers: bool) -> None:
        self._events = events
        self._numbers = numbers
        self._depth = 0

    def document(self) -> Any:  # noqa: ANN401 - nested dict, list and str
        """Return the value of the one document in the stream."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise DecodingRefused("the file is empty")
        value = self._value(next(self._events))
        next(self._events)
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise DecodingRefused("more than one YAML document")
        return value

    def _value(self, event: yaml.Event) -> Any:  # noqa: ANN401 - nested dict, list and str
        line = _line(event)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise DecodingRefused(f"line {line}: anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise DecodingRefused(f"line {line}: tags are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            _check_characters(event.value)
            # libyaml gives a plain scalar the style '', PyYAML None; `implicit` says it in both.
            return _number(event.value) if self._numbers and event.implicit[0] else event.value
        self._depth += 1
        if self._depth > LIMITS.nesting:
            raise DecodingRefused(f"line {line}: nested more than {LIMITS.nesting} levels deep")
        value = self._mapping() if isinstance(event, yaml.MappingStartEvent) else self._sequence()
        self._depth -= 1
        return value

    def _sequence(self) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event))
        return items

    def _mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._value(event)
            if not isinstance(key, str):
                raise DecodingRefused(f"line {line}: a key is not a plain word")
            if key == "<<":
                raise DecodingRefused(f"line {line}: merge keys are not allowed")
            if key in mapping:
                raise DecodingRefused(f"line {line}: key {key[:64]!r} appears twice")
            mapping[key] = self._value(next(self._events))
        return mapping
