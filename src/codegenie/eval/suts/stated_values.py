"""Finds numbers and names in what an agent wrote: by a dotted path in JSON, by a piece of a line in text.

A value that is missing, of a wrong type, negative or absurd is unknown, and says why.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.agent_spec.records import PLUS

Kind = Literal["cost_usd", "input_tokens", "cached_tokens", "output_tokens", "model"]
_MOST_TOKENS = 1_000_000_000_000
_MOST_MODELS = 8
_MODEL_CHARACTERS = 200
# Bounded everywhere, so that no line makes the search slow.
_NUMBER = r"(-?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?[kKmM]?)(?![0-9A-Za-z])"
_FACTORS = {"k": 1e3, "m": 1e6}


@dataclass(frozen=True, slots=True)
class Stated:
    """A value, or None and the reason why it is unknown."""

    value: float | int | str | None
    problem: str = ""


MISSING = Stated(None, "is missing")


def found_in(document: Any, path: str, kind: Kind) -> Stated:  # noqa: ANN401 - any JSON value
    """Return the value at a dotted path; `*` stands for all keys or items, whose numbers are added up.

    Numbers at several paths, with ` + ` between them, are added up too. Then each of them has to be there.
    """
    if kind == "model":
        return _model(document, path.split("."))
    total = Stated(0)
    for one_path in path.split(PLUS):
        nodes = _reached([document], one_path.split("."))
        if not nodes:
            return MISSING
        for node in nodes:
            total = added(total, checked_number(node, kind), kind)
    return total


def _reached(nodes: list[Any], parts: Iterable[str]) -> list[Any]:
    """Return all values at the end of a path. An item that lacks the rest of the path is left out."""
    for part in parts:
        following: list[Any] = []
        for node in nodes:
            if part != "*":
                following += [node[part]] if isinstance(node, dict) and part in node else []
            elif isinstance(node, dict):
                following += node.values()
            elif isinstance(node, list):
                following += node
        nodes = following
    return nodes


def _model(document: object, parts: list[str]) -> Stated:
    if parts[-1] == "*":
        names: list[Any] = [
            key for node in _reached([document], parts[:-1]) if isinstance(node, dict) for key in node
        ]
    else:
        names = _reached([document], parts)
    if not names:
        return MISSING
    if not all(isinstance(name, str) and name.strip() for name in names):
        return Stated(None, "is not a name")
    distinct = sorted({one_line(name, _MODEL_CHARACTERS) for name in names})
    return Stated(one_line(", ".join(distinct[:_MOST_MODELS]), _MODEL_CHARACTERS))


def checked_number(value: object, kind: Kind) -> Stated:
    """Return a number of this kind, or why it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Stated(None, "is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        return Stated(None, "is not a number")
    if value < 0:
        return Stated(None, "is negative")
    if value > (LIMITS.cost_usd if kind == "cost_usd" else _MOST_TOKENS):
        return Stated(None, "is absurd")
    if kind == "cost_usd":
        return Stated(float(value))
    return Stated(int(value)) if value == int(value) else Stated(None, "is not a whole number")


def added(one: Stated, other: Stated, kind: Kind) -> Stated:
    """Add two statements. A sum of which a part is unknown is unknown; of two models both are named."""
    for part in (one, other):
        if part.value is None:
            return part
    if isinstance(one.value, str) or isinstance(other.value, str):
        names = sorted({*str(one.value).split(", "), *str(other.value).split(", ")})
        return Stated(one_line(", ".join(names[:_MOST_MODELS]), _MODEL_CHARACTERS))
    return checked_number((one.value or 0) + (other.value or 0), kind)


def text_pattern(piece: str) -> re.Pattern[str]:
    """Return the pattern for a piece of a line in which `#` stands for a number."""
    before, _, after = piece.partition("#")
    return re.compile(re.escape(before) + _NUMBER + re.escape(after))


def written_number(text: str) -> float:
    """Return the value of digits with commas and a `k` or `M` for thousands or millions."""
    factor = _FACTORS.get(text[-1].lower(), 1)
    digits = text.rstrip("kKmM").replace(",", "")
    # Rounded, because 1.1 * 1000 is not 1100 in binary numbers.
    return round(float(digits) * factor, 9)
