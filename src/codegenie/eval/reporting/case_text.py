"""One trial of one case as lines of text."""

from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import (
    Answer,
    Attempt,
    CostSource,
    TrialEvidence,
    Usage,
    score_of,
    was_collected,
    was_judged,
)
from codegenie.eval.wording import counted


def render_case(trial: TrialEvidence, made_by: str | None = None) -> list[str]:
    """Return the result of a trial, its reasons, its cost, who made it, and which artefacts it has."""
    score = score_of(trial)
    verdict = "passed" if score.passed else "not passed"
    cost = "unknown" if trial.cost_usd is None else f"{trial.cost_usd:.4f} USD{_who(trial.cost_source)}"
    lines = [
        f"{trial.case_id}#{trial.trial}  {verdict}  score {floor3(score.score)}",
        f"  {_said(trial.answer)}",
    ]
    lines += [f"  {key:16} {floor3(value)}" for key, value in sorted(score.breakdown.items())]
    lines += [
        f"  {mode.severity.value:16} {mode.code}" + (f": {mode.detail}" if mode.detail else "")
        for mode in score.failure_modes
    ]
    lines.append(f"  took             {trial.wall_clock_ms} ms · cost {cost} · reused {trial.reused}")
    if trial.usage is not None:
        lines.append(f"  tokens           {render_usage(trial.usage)}")
    lines += render_attempts(trial)
    if was_collected(trial):
        lines.append("  collected        what it changed in its files, by the harness; --diff shows it")
    if made_by is not None:
        lines.append(f"  made by          {made_by}")
    if trial.artifacts:
        lines.append(
            f"  look at          --diff, --output, --log, --rubric ({', '.join(sorted(trial.artifacts))})"
        )
    return lines


def render_attempts(trial: TrialEvidence) -> list[str]:
    """Return a line for each attempt of an agent in a box."""
    return [f"  attempt {attempt.n}        {_told(attempt)}" for attempt in trial.attempts]


def render_usage(usage: Usage) -> str:
    """Return what was used of a model's provider, and who counted it."""
    shown = [
        _number(usage.input_tokens, "in")
        + (f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""),
        _number(usage.output_tokens, "out"),
    ]
    if usage.requests is not None:
        shown.append(counted(usage.requests, "request"))
    if usage.models:
        shown.append(", ".join(usage.models))
    return " · ".join(shown) + _who(usage.counted_by)


def _who(counted_by: CostSource | None) -> str:
    """Return who says so; the cost of an agent without a box is always its own word."""
    return {"broker": " (counted by the broker)", "agent": " (stated by the agent)", None: ""}[counted_by]


def _number(count: int | None, what: str) -> str:
    return f"unknown {what}" if count is None else f"{count:,} {what}"


def _told(attempt: Attempt) -> str:
    parts = [f"void: {attempt.cause}"] if attempt.cause else []
    parts.append(f"{attempt.wall_ms} ms")
    if attempt.provider_wait_ms:
        parts.append(f"waited {attempt.provider_wait_ms} ms for the provider")
    if attempt.left:
        parts.append(f"left {counted(attempt.left, 'process', 'es')}")
    if attempt.cost_usd is not None:
        parts.append(f"{attempt.cost_usd:.4f} USD")
    return " · ".join(parts)


def _said(answer: Answer) -> str:
    if not was_judged(answer):
        return "rubric           was not asked: the system under test left nothing to judge"
    # In these cases the harness wrote the answer, not the rubric.
    if any(mode.code in {"rubric.malformed_output", "rubric.timeout"} for mode in answer.failure_modes):
        return "rubric           gave no answer that can be used"
    return f"rubric said      passed={answer.passed} score={floor3(answer.score)}"
