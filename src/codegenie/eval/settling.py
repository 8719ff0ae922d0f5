"""The block rule: from a validated answer to the score of its trial. The gate and `verify` apply it again."""

from collections.abc import Collection, Mapping

from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.models import Severity, TrialScore


def settle(answer: Answer, cost_usd: float | None, wall_clock_ms: int) -> TrialScore:
    """Apply the block rule: a block-severity failure takes the pass and the score."""
    blocked = any(mode.severity is Severity.BLOCK for mode in answer.failure_modes)
    return TrialScore(
        passed=answer.passed and not blocked,
        score=0.0 if blocked else answer.score,
        breakdown=dict(answer.breakdown),
        failure_modes=answer.failure_modes,
        cost_usd=cost_usd,
        wall_clock_ms=wall_clock_ms,
    )


def settled(evidence: TrialEvidence) -> TrialScore:
    """Return the score of a trial from its evidence."""
    return settle(evidence.answer, evidence.cost_usd, evidence.wall_clock_ms)


def answer_problem(
    answer: Answer, severities: Mapping[str, Severity], breakdown_keys: Collection[str]
) -> str | None:
    """Say why an answer that comes from a disk cannot have been given under these rules; None if it can."""
    for mode in answer.failure_modes:
        if severities.get(mode.code) is not mode.severity:
            return f"{mode.code} does not have the severity of the taxonomy"
    if not answer.breakdown.keys() <= set(breakdown_keys):
        return "a breakdown key is not declared"
    return "it passed with score 0" if answer.passed and not answer.score else None
