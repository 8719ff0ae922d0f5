"""Values of a program as tagged plain data: what a call is given, and what it is said to have returned.

A value says its exact type: `null`, `true` and `"text"` are themselves, a number is `{"int": "5"}` or
`{"float": "0x1.8p+1"}`. `{"object": "module.Class"}` stands for everything else and equals nothing. Nothing
here builds a value of a program: data goes in, and checked data comes out.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS

Tagged: TypeAlias = "bool | str | dict[str, Any] | None"

# 4,096 bits have 1,234 digits.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,1233}", re.ASCII)
_HEXADECIMAL = re.compile(r"([0-9a-f]{2})*", re.ASCII)
_CLASS_NAME = re.compile(r"[A-Za-z0-9_.<>]{1,200}", re.ASCII)
_NOT_FINITE = ("nan", "inf", "-inf")
_PAIR = 2


def checked_value(value: object, *, objects: bool = True) -> Tagged:
    """Return a value in its one spelling: members of sets are sorted. Raises DecodingRefused.

    Without `objects` a value that stands for an object is refused: a call cannot be given one.
    """
    return _checked(value, LIMITS.tagged_levels, objects=objects)


def _checked(value: object, levels: int, *, objects: bool) -> Tagged:
    if value is None or isinstance(value, bool | str):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise DecodingRefused("a value is neither null, true, false, a text nor one tag with its content")
    if not levels:
        raise DecodingRefused(f"a value is nested more than {LIMITS.tagged_levels} levels deep")
    [(tag, content)] = value.items()
    if tag == "object" and not objects:
        raise DecodingRefused("an argument cannot be an object")
    if tag in _SCALARS:
        if not isinstance(content, str) or not _SCALARS[tag](content):
            raise DecodingRefused(f"the content of {tag!r} is not in its one form")
        return {tag: content}
    if tag not in _CONTAINERS:
        raise DecodingRefused(f"the tag {str(tag)[:40]!a} is not known")
    if not isinstance(content, list):
        raise DecodingRefused(f"the content of {tag!r} is not a list")
    return {tag: _members(tag, content, levels - 1, objects=objects)}


def _members(tag: str, content: list[Any], levels: int, *, objects: bool) -> list[Any]:
    if tag != "dict":
        members = [_checked(each, levels, objects=objects) for each in content]
        return _unique(members) if tag == "set" else members
    pairs = []
    for pair in content:
        if not isinstance(pair, list) or len(pair) != _PAIR:
            raise DecodingRefused("an entry of a 'dict' is not a pair")
        pairs.append([_checked(each, levels, objects=objects) for each in pair])
    _unique([key for key, _ in pairs])
    return pairs


def _unique(members: list[Tagged]) -> list[Tagged]:
    """Return members in the order of their spelling. Raises DecodingRefused if one is there twice."""
    ordered = sorted((canonical_json(each), number) for number, each in enumerate(members))
    for (one, _), (other, number) in pairwise(ordered):
        # Objects equal nothing, so two of them are two members.
        if one == other and not _has_object(members[number]):
            raise DecodingRefused("a 'set' or 'dict' has a member twice")
    return [members[number] for _, number in ordered]


def _has_object(value: object) -> bool:
    if isinstance(value, list):
        return any(_has_object(each) for each in value)
    return isinstance(value, dict) and ("object" in value or any(map(_has_object, value.values())))


def _is_float(text: str) -> bool:
    if text in _NOT_FINITE:
        return True
    try:
        return float.fromhex(text).hex() == text
    except (ValueError, OverflowError):
        return False


def _fully(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_SCALARS: dict[str, Callable[[str], bool]] = {
    "int": _fully(_INTEGER),
    "float": _is_float,
    "bytes": _fully(_HEXADECIMAL),
    "object": _fully(_CLASS_NAME),
}
_CONTAINERS = ("list", "tuple", "set", "dict")
