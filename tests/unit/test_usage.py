"""What a trial used: the record of it, and the lines that show it."""

import pytest
from pydantic import ValidationError

from codegenie.eval.canonical import spelled
from codegenie.eval.evidence import Answer, Attempt, TrialEvidence, Usage
from codegenie.eval.reporting.case_text import render_case

COUNTED = Usage(
    counted_by="broker",
    input_tokens=12_300,
    cached_tokens=1_000,
    output_tokens=1_100,
    requests=1,
    models=("claude-x",),
)


def a_trial(**account: object) -> TrialEvidence:
    plain = {
        "case_id": "c01",
        "trial": 0,
        "answer": Answer(passed=True, score=1.0),
        "cost_usd": 0.05,
        "wall_clock_ms": 9,
    }
    return TrialEvidence.model_validate({**plain, **account})


def test_a_trial_without_a_box_has_the_bytes_of_earlier_versions() -> None:
    names = (b"usage", b"cost_source", b"attempts")

    assert [name for name in names if name in spelled(a_trial())] == []
    assert [name for name in names if name in spelled(a_trial(cost_source="agent"))] == [b"cost_source"]


def test_a_case_shows_its_tokens_and_who_counted_them() -> None:
    used = "12,300 in (1,000 cached) · 1,100 out · 1 request · claude-x (counted by the broker)"

    assert f"  tokens           {used}" in render_case(a_trial(usage=COUNTED))
    assert "  took             9 ms · cost 0.0500 USD (counted by the broker) · reused none" in render_case(
        a_trial(cost_source="broker")
    )
    stated = render_case(a_trial(usage=Usage(counted_by="agent", output_tokens=0)))
    assert "  tokens           unknown in · 0 out (stated by the agent)" in stated


def test_every_attempt_is_shown_with_why_it_is_void() -> None:
    attempts = (
        Attempt(n=1, cause="the box could not be made", wall_ms=12, provider_wait_ms=7),
        Attempt(n=2, wall_ms=90, left=2, cost_usd=0.05),
    )
    shown = render_case(a_trial(attempts=attempts))

    assert (
        "  attempt 1        void: the box could not be made · 12 ms · waited 7 ms for the provider" in shown
    )
    assert "  attempt 2        90 ms · left 2 processes · 0.0500 USD" in shown


@pytest.mark.parametrize("stated", [-1, 1.5, float("nan"), 10**16, True, "900"])
def test_a_number_of_tokens_that_is_absurd_is_refused(stated: object) -> None:
    with pytest.raises(ValidationError):
        Usage.model_validate({"counted_by": "agent", "input_tokens": stated})


def test_a_trial_has_at_most_three_attempts() -> None:
    with pytest.raises(ValidationError):
        a_trial(attempts=tuple(Attempt(n=1, wall_ms=0) for _ in range(4)))
    with pytest.raises(ValidationError):
        Attempt(n=4, wall_ms=0)
