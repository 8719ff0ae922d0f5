"""The strict decoder: it turns bytes from outside into plain values and checks the caps first.

All JSON, TOML and YAML from a bench, a rubric, a system under test or a log is decoded here and nowhere else.
Every refusal is a DecodingRefused that says what is wrong and where. The caller turns it into an error type
of its own package.
"""

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NoReturn

import yaml

from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS

_HIDDEN_LINE_END = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)")
_TOML_PLACE = re.compile(r"\(at line (\d{1,9}), column \d{1,9}\)$")
_YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
EMPTY_FILE = "the file is empty"


def decode_text(raw: bytes, limit: int) -> str:
    """Decode strict UTF-8. Raises DecodingRefused if it has a byte order mark or more than `limit` bytes."""
    if len(raw) > limit:
        raise DecodingRefused(f"{len(raw)} bytes are more than the {limit} allowed")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise DecodingRefused("starts with a byte order mark", hint="save it as UTF-8 without BOM")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DecodingRefused(f"not UTF-8 at byte {error.start}", line=line) from None


def decode_source(raw: bytes, limit: int) -> str:
    """Decode a text that people review. Raises DecodingRefused if it has a line end that editors do not show.

    libyaml also ends a line, and so a comment, at U+2028. A policy could be hidden behind such a comment.
    """
    text = decode_text(raw, limit)
    hidden = _HIDDEN_LINE_END.search(text)
    if hidden is not None:
        line = text.count("\n", 0, hidden.start()) + 1
        raise _refused_at(line, f"holds a line end that is not shown as one, {hidden[0]!a}")
    return text


def decode_json(raw: bytes, limit: int, values: int = LIMITS.json_values, keys: int | None = None) -> Any:  # noqa: ANN401
    """Decode exactly one JSON document: unique keys, finite numbers, whole characters, bounded depth.

    Raises DecodingRefused. More than `values` values are refused before the first of them is made. If `keys`
    is given, an object with more keys is refused before its keys are looked at.
    """
    if len(raw) <= limit:
        _check_count(raw, values)
    text = decode_text(raw, limit)
    try:
        value = _decoder(keys).decode(text)
    except RecursionError:
        raise DecodingRefused("nested too deeply") from None
    except ValueError as error:
        raise DecodingRefused(f"not one JSON document: {_reason(error)}") from None
    # Only a \u escape can produce half of a character. Without one, only the depth has to be checked.
    if "\\u" in text or not _is_shallow(value):
        _check_nodes(value)
    return value


def decode_toml(raw: bytes) -> dict[str, Any]:
    """Decode a small TOML file, or raise DecodingRefused. A flat file is read without the slow tomllib."""
    text = decode_source(raw, LIMITS.toml_bytes)
    flat = _flat_toml(text)
    if flat is not None:
        return flat
    # Not `splitlines`: it also splits at characters that TOML allows inside a quoted key.
    if any(line.count(".") > LIMITS.toml_dots_per_line for line in text.split("\n")):
        raise DecodingRefused(f"a line has more than {LIMITS.toml_dots_per_line} dots")
    try:
        value = tomllib.loads(text, parse_float=_finite)
    except RecursionError:
        raise DecodingRefused("nested too deeply") from None
    except ValueError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place[1]) if place else None
        raise DecodingRefused(f"not TOML: {_reason(error)}", line=line) from None
    _check_nodes(value)
    return value


def decode_yaml(raw: bytes, limit: int = LIMITS.yaml_bytes, *, numbers: bool = False) -> Any:  # noqa: ANN401
    """Decode one YAML document of mappings, sequences and strings; every scalar is a string.

    With `numbers`, a plain scalar that is a decimal number becomes a number; a quoted one stays a string.
    Raises DecodingRefused. The parser's events are taken one at a time: an alias bomb is refused at its
    first anchor, and nested brackets at the deepest allowed level. 256 KB of brackets would keep libyaml busy
    for minutes.
    """
    return _yaml_document(raw, limit, numbers=numbers)[0]


def decode_yaml_with_lines(raw: bytes) -> tuple[Any, dict[str, int]]:
    """Decode YAML like `decode_yaml`; also return the line of each key of the outermost mapping."""
    return _yaml_document(raw, LIMITS.yaml_bytes, numbers=False)


def _yaml_document(raw: bytes, limit: int, *, numbers: bool) -> tuple[Any, dict[str, int]]:
    text = decode_source(raw, limit)
    try:
        builder = _YamlBuilder(yaml.parse(text, Loader=_YAML_LOADER), numbers=numbers)
        return builder.document(), builder.key_lines
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise DecodingRefused(f"not YAML: {_yaml_reason(error)}", line=line) from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _yaml_reason(error: Exception) -> str:
    """Return the problem and its line, without the text around it: that text belongs to the bench."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _unique(pairs: list[tuple[str, Any]], most: float = math.inf) -> dict[str, Any]:
    if len(pairs) > most:
        raise ValueError(f"an object of more than {most} keys")
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice[:64]!r} appears twice")
    return value


def _decoder(keys: int | None) -> json.JSONDecoder:
    if keys is None:
        return _JSON_DECODER
    return json.JSONDecoder(object_pairs_hook=partial(_unique, most=keys), **_STRICT)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def _printable_integer(digits: str) -> int:
    number = int(digits)
    _check_integer(number)
    return number


# Either one string (it may lack its end) or everything between two strings. Possessive: never backtracks.
_JSON_PIECE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?|[^"]++', re.DOTALL)


def _check_count(raw: bytes, most: int) -> None:
    """Refuse too many values by counting brackets and commas: every value but the first needs one of them."""
    if _brackets_and_commas(raw, 0, len(raw)) <= most:
        return
    # The marks may be inside strings. Strings are an agent's text and cost little, so leave them out.
    count = strings = 0
    for piece in _JSON_PIECE.finditer(raw):
        if raw[piece.start()] == _QUOTE:
            strings += 1
        else:
            count += _brackets_and_commas(raw, *piece.span())
        if count > most or strings > 2 * most + 1:
            raise DecodingRefused(f"more than {most} values")


def _brackets_and_commas(raw: bytes, start: int, end: int) -> int:
    return sum(raw.count(mark, start, end) for mark in (b"[", b"{", b","))


_QUOTE = ord('"')

_STRICT: dict[str, Any] = {
    "parse_constant": _no_constant,
    "parse_float": _finite,
    "parse_int": _printable_integer,
}
# One decoder for all calls: making one takes as long as decoding an answer.
_JSON_DECODER = json.JSONDecoder(object_pairs_hook=_unique, **_STRICT)


def _check_nodes(value: object) -> None:
    """Refuse values that are too deep, strings with half characters and integers that cannot be printed."""
    levels: list[Iterator[object]] = [iter((value,))]
    while levels:
        node = next(levels[-1], _NO_MORE)
        if node is _NO_MORE:
            levels.pop()
            continue
        if len(levels) > LIMITS.nesting:
            raise DecodingRefused(f"nested more than {LIMITS.nesting} levels deep")
        if isinstance(node, dict):
            for key in node:
                _check_characters(key)
            levels.append(iter(node.values()))
        elif isinstance(node, list):
            levels.append(iter(node))
        elif isinstance(node, str):
            _check_characters(node)
        elif isinstance(node, int):
            _check_integer(node)


_NO_MORE = object()
_CONTAINERS = (dict, list)


def _is_shallow(value: object) -> bool:
    """Say whether the containers are nested less deeply than the limit."""
    level = [value]
    for _ in range(LIMITS.nesting - 1):
        level = [
            child
            for node in level
            if isinstance(node, _CONTAINERS)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return True
    return False


def _check_integer(number: int) -> None:
    if number.bit_length() > LIMITS.integer_bits:
        raise DecodingRefused(f"an integer has more than {LIMITS.integer_bits} bits")


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
    """Read lines of the form `key = scalar`. Return None for anything that needs the whole grammar.

    tomllib takes 0.1 ms for a case.toml, which is as long as all other work of loading the case. A test
    compares this function with tomllib on everything that this function accepts.
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


# The cases of a bench share a few dates, so the date objects are shared too.
_date = lru_cache(maxsize=256)(dt.date.fromisoformat)


def _flat_value(text: str, date: str, integer: str) -> object:
    if date:
        return _date(date)
    return int(integer) if integer else text


def _refused_at(line: int, problem: str) -> DecodingRefused:
    return DecodingRefused(f"line {line}: {problem}", line=line)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


# No exponents, bare dots or leading zeros: YAML 1.1 reads 010 as eight and 1_0 as ten, but people do not.
_DECIMAL = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.\d{1,18})?", re.ASCII)


def _number(text: str) -> object:
    if not _DECIMAL.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


class _YamlBuilder:
    """Builds plain values from parser events and refuses everything that the contract does not allow."""

    def __init__(self, events: Iterator[yaml.Event], *, numbers: bool) -> None:
        self._events = events
        self._numbers = numbers
        self._depth = 0
        self.key_lines: dict[str, int] = {}
        self._values = 0

    def document(self) -> Any:  # noqa: ANN401 - nested dict, list and str
        """Return the value of the only document in the stream."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise DecodingRefused(EMPTY_FILE)
        value = self._value(next(self._events))
        next(self._events)
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise DecodingRefused("more than one YAML document")
        return value

    def _value(self, event: yaml.Event) -> Any:  # noqa: ANN401 - nested dict, list and str
        line = _line(event)
        self._values += 1
        if self._values > LIMITS.json_values:
            raise DecodingRefused(f"line {line}: more than {LIMITS.json_values} values")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refused_at(line, "anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise _refused_at(line, "tags are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            _check_characters(event.value)
            # A plain scalar has the style '' in libyaml and None in PyYAML; `implicit` is the same in both.
            return _number(event.value) if self._numbers and event.implicit[0] else event.value
        self._depth += 1
        if self._depth > LIMITS.nesting:
            raise _refused_at(line, f"nested more than {LIMITS.nesting} levels deep")
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
                raise _refused_at(line, "a key is not a plain word")
            if key == "<<":
                raise _refused_at(line, "merge keys are not allowed")
            if key in mapping:
                raise _refused_at(line, f"key {key[:64]!r} appears twice")
            if self._depth == 1:
                self.key_lines[key] = line
            mapping[key] = self._value(next(self._events))
        return mapping


def unquoted(refusal: DecodingRefused) -> str:
    """Say why bytes were refused, without the shortened key that the message quotes.

    Half a secret is not recognised as a secret, so a text must be redacted before it is cut.
    """
    what, key, _ = refusal.message.partition(": key ")
    return f"{what}: a key appears twice" if key else what
