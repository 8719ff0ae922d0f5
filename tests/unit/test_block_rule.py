"""The block rule, what an answer from a disk must be, and the digests that bind a start."""

import pytest

from codegenie.eval.evidence import Answer, TrialEvidence, answer_problem, apply_block_rule, score_of
from codegenie.eval.models import FailureMode, Severity, SutIdentity
from codegenie.eval.suts.identity import identity_digest

SEVERITIES = {"answer.wrong": Severity.BLOCK, "answer.sloppy": Severity.WARN}


def answer(severity: Severity | None = None, *, passed: bool = True, score: float = 0.5) -> Answer:
    code = "answer.wrong" if severity is Severity.BLOCK else "answer.sloppy"
    modes = () if severity is None else (FailureMode(code=code, severity=severity),)
    return Answer(passed=passed, score=score, breakdown={"accuracy": 1.0}, failure_modes=modes)


@pytest.mark.parametrize("severity", [None, Severity.WARN])
def test_an_answer_without_a_block_stands_as_it_is(severity: Severity | None) -> None:
    score = apply_block_rule(answer(severity), 0.25, 7)
    assert (score.passed, score.score, score.cost_usd, score.wall_clock_ms) == (True, 0.5, 0.25, 7)
    assert score.breakdown == {"accuracy": 1.0}


def test_a_block_takes_the_pass_and_the_score_and_leaves_the_breakdown() -> None:
    score = apply_block_rule(answer(Severity.BLOCK), None, 0)
    assert (score.passed, score.score) == (False, 0.0)
    assert score.breakdown == {"accuracy": 1.0}
    assert [mode.code for mode in score.failure_modes] == ["answer.wrong"]


def test_evidence_scores_like_its_answer() -> None:
    evidence = TrialEvidence(
        case_id="one", trial=0, answer=answer(Severity.BLOCK), cost_usd=0.5, wall_clock_ms=3
    )
    assert score_of(evidence) == apply_block_rule(evidence.answer, 0.5, 3)


def test_an_answer_that_keeps_the_rules_has_no_problem() -> None:
    for given in (answer(), answer(Severity.WARN), answer(Severity.BLOCK), answer(passed=False, score=0.0)):
        assert answer_problem(given, SEVERITIES, ("accuracy", "style")) is None


@pytest.mark.parametrize(
    ("given", "severities", "keys", "problem"),
    [
        (answer(Severity.WARN), {}, ("accuracy",), "severity"),
        (answer(Severity.WARN), {"answer.sloppy": Severity.BLOCK}, ("accuracy",), "severity"),
        (answer(), SEVERITIES, (), "breakdown key"),
        (answer(score=0.0), SEVERITIES, ("accuracy",), "score 0"),
    ],
)
def test_an_answer_that_nobody_can_have_given_has_one(
    given: Answer, severities: dict[str, Severity], keys: tuple[str, ...], problem: str
) -> None:
    assert problem in (answer_problem(given, severities, keys) or "")


def test_every_part_of_an_identity_is_in_its_digest() -> None:
    base = SutIdentity(spec="a", version="1", digest="0" * 64)
    changes: list[dict[str, str | None]] = [{"spec": "b"}, {"version": None}, {"digest": None}]
    digests = {identity_digest(base.model_copy(update=change)) for change in ({}, *changes)}
    assert len(digests) == 4
