"""The file of calls that a step of kind `python-calls` names: what is called, with which plain data."""

import re
from typing import Any, NamedTuple

from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.tagged_values import Tagged, checked_value

_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,7}", re.ASCII)
_REQUIRED = {"attribute", "args"}
_ALLOWED = {*_REQUIRED, "mutates"}


class Call(NamedTuple):
    """One call of the agent's code. `mutates`: the arguments are reported again after the call."""

    attribute: str
    args: tuple[Tagged, ...]
    mutates: bool


def read_calls(raw: bytes) -> tuple[Call, ...]:
    """Read the calls of a step. Raises DecodingRefused."""
    document = decode_json(raw, LIMITS.calls_bytes)
    if not isinstance(document, list) or not document:
        raise DecodingRefused("it is not a list of calls")
    if len(document) > LIMITS.calls:
        raise DecodingRefused(f"it has {len(document)} calls, and {LIMITS.calls} are allowed")
    return tuple(_call(each, number) for number, each in enumerate(document, 1))


def _call(fields: object, number: int) -> Call:
    try:
        return _checked_call(fields)
    except DecodingRefused as refusal:
        raise DecodingRefused(f"call {number}: {refusal.message}") from None


def _checked_call(fields: Any) -> Call:  # noqa: ANN401 - what JSON holds
    if not isinstance(fields, dict) or not fields.keys() >= _REQUIRED or not fields.keys() <= _ALLOWED:
        raise DecodingRefused('it is not {"attribute": …, "args": […]} with an optional "mutates"')
    attribute, args, mutates = fields["attribute"], fields["args"], fields.get("mutates", False)
    if not isinstance(attribute, str) or not _ATTRIBUTE.fullmatch(attribute):
        raise DecodingRefused("attribute is not a name or a dotted name")
    if not isinstance(args, list):
        raise DecodingRefused("args is not a list")
    if not isinstance(mutates, bool):
        raise DecodingRefused("mutates is neither true nor false")
    return Call(attribute, tuple(checked_value(each, objects=False) for each in args), mutates)
