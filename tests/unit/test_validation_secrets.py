"""No part of a secret of the harness is kept from what a rubric wrote, wherever a cut falls."""

from dataclasses import replace
from typing import Any

import pytest

from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import REDACTED
from tests.unit.test_validation import LONG_SECRET, RUN, SECRET, answered, judged, judged_bytes, refused


def halves(secret: str) -> list[str]:
    """Return the shortest pieces of a secret that would count as a leak: eight characters anywhere."""
    return [secret[start : start + 8] for start in range(len(secret) - 7)]


PLACES: dict[str, dict[str, Any]] = {
    "detail": {"failure_modes": [{"code": "answer.noted", "detail": "saw {}"}]},
    "unknown code": {"failure_modes": [{"code": "{}"}]},
    "reserved code": {"failure_modes": [{"code": "sut.{}"}]},
    "unknown key": {"breakdown": {"{}": 1.0}},
    "unknown field": {"{}": 1.0},
    "value of the wrong type": {"score": "{}"},
    "wrong key in a failure": {"failure_modes": [{"code": "answer.noted", "{}": 1}]},
    "bad share under a key": {"breakdown": {"{}": 7}},
}


def filled(template: object, text: str) -> object:
    if isinstance(template, dict):
        return {key.replace("{}", text): filled(value, text) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(item, text) for item in template]
    return template.replace("{}", text) if isinstance(template, str) else template


CUTS = [0, 30, 50, 58, 150, 185, 195]


def kept_parts(template: dict[str, Any], secret: str, before: int) -> list[str]:
    """Return the parts of a secret that are still in the verdict about an answer that holds it."""
    fields = filled(template, "." * before + secret + "." * 20)
    assert isinstance(fields, dict)
    verdict = answered(**fields)
    assert verdict.failure_modes
    kept = repr(verdict)
    return [half for half in halves(secret) if half in kept]


def test_no_part_of_a_secret_is_kept_wherever_a_cut_falls() -> None:
    leaks = {
        (place, secret, before): parts
        for place, template in PLACES.items()
        for secret in (SECRET, LONG_SECRET)
        for before in CUTS
        if (parts := kept_parts(template, secret, before))
    }
    assert leaks == {}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("before", [0, 30, 58])
def test_a_secret_that_is_a_key_twice_is_not_shown_by_the_refusal(escaped: bool, before: int) -> None:
    key = "." * before + LONG_SECRET
    written = "".join(f"\\u{ord(char):04x}" for char in key) if escaped else key
    kept = refused(judged_bytes(f'{{"{written}": 1, "{written}": 2}}'.encode()))

    assert "twice" in kept
    assert [half for half in halves(LONG_SECRET) if half in kept] == []


def test_a_secret_in_the_last_line_of_stderr_is_redacted() -> None:
    run = replace(RUN, exit_code=1, stderr=f"Traceback\nKeyError: {SECRET}\n".encode())

    assert refused(judged(run)) == f"exit:1: KeyError: {REDACTED}"


@pytest.mark.parametrize("missing", [1, 8, 40, 80])
def test_half_a_secret_at_the_cut_of_stderr_is_not_kept(missing: int) -> None:
    tail = LONG_SECRET[missing:] + "." * 10
    run = replace(RUN, exit_code=1, stderr=tail.encode().ljust(LIMITS.rubric_stderr_bytes, b"."))
    kept = refused(judged(run))

    assert kept.startswith("exit:1: ")
    assert [half for half in halves(LONG_SECRET[missing:]) if half in kept] == []
