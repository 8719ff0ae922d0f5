"""The encoded result of a system under test, checked as strictly as everything from outside."""

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutFault
from codegenie.eval.validation import unquoted


def read_result(raw: bytes) -> SutAnswer | SutFault:
    """Turn encoded bytes into a checked output, or into the fault that they are."""
    if not raw:
        return SutFault("sut.exception", "ended without a result")
    try:
        document = decode_json(raw, LIMITS.sut_output_bytes)
    except DecodingRefused as refusal:
        return SutFault("sut.exception", f"output: {unquoted(refusal)}")
    if not isinstance(document, dict) or document.keys() != {"harness_output", "cost_usd", "usage"}:
        return SutFault("sut.exception", "output: not the result of a system under test")
    output, cost = document["harness_output"], document["cost_usd"]
    if not isinstance(output, dict):
        return SutFault("sut.exception", "output: not a JSON object")
    if cost is not None and not _is_cost(cost):
        return SutFault("sut.exception", f"cost_usd: not a number from 0 to {LIMITS.cost_usd:g}")
    return SutAnswer(canonical_json(output), None if cost is None else float(cost) + 0.0)


def _is_cost(cost: object) -> bool:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return False
    return 0 <= cost <= LIMITS.cost_usd
