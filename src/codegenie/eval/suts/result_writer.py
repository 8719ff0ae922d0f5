"""Writes the result of a system under test as JSON, in the process of the foreign object.

Only bytes leave this module: no object of a system under test lives longer (threats SU-16). A SUT child
imports it on every call, so it imports only the standard library's json.
"""

import json
from collections.abc import Mapping
from typing import Any

from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutResult

_NOT_FINITE = "Out of range float values are not JSON compliant"


class NothingReturned(TypeError):  # noqa: N818 - its name is shown, and says what happened
    """A system under test returned None: perhaps it changed the files of its private copy instead."""


def encode_result(result: object) -> bytes:
    """Write a returned mapping or SutResult as JSON. Raises any exception that the foreign object raises."""
    wrapped = result if isinstance(result, SutResult) else SutResult(harness_output=_mapping(result))
    document = {
        "harness_output": dict(_mapping(wrapped.harness_output)),
        "cost_usd": wrapped.cost_usd,
        "usage": None if wrapped.usage is None else dict(wrapped.usage),
    }
    _check_keys(document, LIMITS.nesting)
    raw = _written(document).encode()
    if len(raw) > LIMITS.sut_output_bytes:
        raise ValueError(
            f"returned {len(raw)} bytes of JSON, more than the {LIMITS.sut_output_bytes} allowed"
        )
    return raw


def _written(document: Mapping[str, Any]) -> str:
    try:
        return json.dumps(document, allow_nan=False, ensure_ascii=False, default=_refuse)
    except ValueError as error:
        # Newer Pythons add the number. The same agent must fail with the same words on each Python.
        if str(error).startswith(_NOT_FINITE):
            raise ValueError(_NOT_FINITE) from None
        raise


def _mapping(value: object) -> Mapping[str, Any]:
    if value is None:
        raise NothingReturned('returned None, not a mapping such as {"files": {PATH: TEXT}}')
    if not isinstance(value, Mapping):
        raise TypeError(f"returned {type(value).__name__}, not a mapping")
    return value


def _check_keys(value: object, levels: int) -> None:
    """Refuse keys that json would turn into strings: 1 and "1" would become the same key."""
    if not levels:
        raise ValueError(f"returned a value that is nested more than {LIMITS.nesting} levels deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"returned a mapping with the key {key!r}, not a string")
            _check_keys(inner, levels - 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner, levels - 1)


def _refuse(value: object) -> object:
    raise TypeError(f"returned a {type(value).__name__}, which JSON does not have")
