"""The encoded result of a system under test, checked as strictly as everything from outside."""

import math

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutFault


def read_result(raw: bytes) -> SutAnswer | SutFault:
    """Turn encoded bytes into a checked output, or into the fault that they are."""
    if not raw:
        return SutFault("sut.exception", "ended without a result")
    try:
        document = decode_json(raw, LIMITS.sut_output_bytes)
    except DecodingRefused as refusal:
        return SutFault("sut.exception", f"output: {refusal.message}")
    if not isinstance(document, dict) or document.keys() != {"harness_output", "cost_usd", "usage"}:
        return SutFault("sut.exception", "output: not the result of a system under test")
    output, cost = document["harness_output"], document["cost_usd"]
    if not isinstance(output, dict):
        return SutFault("sut.exception", "output: not a JSON object")
    if cost is not None and not _is_cost(cost):
        return SutFault("sut.exception", "cost_usd: not a finite number from 0 upwards")
    return SutAnswer(canonical_json(output), None if cost is None else float(cost))


def _is_cost(cost: object) -> bool:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return False
    try:
        return math.isfinite(cost) and cost >= 0
    except OverflowError:
        return False
