"""Reads the encoded result of a system under test, as strictly as all input from outside."""

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json, unquoted
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutFault
from codegenie.eval.sanitising import Redactor, one_line
from codegenie.eval.suts.raised import MESSAGE_CHARACTERS, RAISED_BYTES, Raised

_PLACE_CHARACTERS = 80


def read_result(raw: bytes) -> SutAnswer | SutFault:
    """Turn encoded bytes into a checked output, or into a fault."""
    if not raw:
        return SutFault("sut.exception", "ended without a result", returned_nothing=True)
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


def read_raised(raw: bytes, redactor: Redactor) -> SutFault | None:
    """Turn a child's description of its exception into a fault; None if it cannot be read."""
    try:
        told = decode_json(raw, RAISED_BYTES)
    except DecodingRefused:
        return None
    if not isinstance(told, dict) or told.keys() != set(Raised._fields):
        return None
    if [type(told[name]) for name in Raised._fields] != [str, str, str, bool]:
        return None
    return fault_of(Raised(**told), redactor)


def fault_of(raised: Raised, redactor: Redactor) -> SutFault:
    """Write an exception as one line, `type: message (file:line)`. If it is cut, the place is kept."""
    message = raised.message
    # Secrets are removed before the text is shortened. A text that is cut already may end in half a secret.
    cut = len(message) >= MESSAGE_CHARACTERS
    message = redactor.clean_head(message) if cut else redactor.clean(message)
    place = one_line(redactor.clean(raised.place), LIMITS.text_characters)
    if len(place) > _PLACE_CHARACTERS:
        place = "…" + place[1 - _PLACE_CHARACTERS :]
    shown = f" ({place})" if place else ""
    kind = redactor.clean(raised.type)
    text = f"{kind}: {message}" if message else kind
    return SutFault(
        "sut.exception",
        one_line(text, LIMITS.detail_characters - len(shown)) + shown,
        returned_nothing=raised.returned_nothing,
    )
