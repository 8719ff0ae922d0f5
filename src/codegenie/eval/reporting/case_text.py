"""One trial of one case as lines of text."""

from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import (
    UNRETURNED_WORDS,
    Answer,
    TrialEvidence,
    score_of,
    was_judged,
    was_unreturned,
)


def render_case(trial: TrialEvidence, made_by: str | None = None) -> list[str]:
    """Return the result of a trial, its reasons, its cost, who made it, and which artefacts it has."""
    score = score_of(trial)
    verdict = "passed" if score.passed else "not passed"
    cost = "unknown" if trial.cost_usd is None else f"{trial.cost_usd:.4f} USD"
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
    if was_unreturned(trial):
        lines.append(f"  not returned     {UNRETURNED_WORDS}")
    if made_by is not None:
        lines.append(f"  made by          {made_by}")
    if trial.artifacts:
        lines.append(f"  look at          --diff, --log, --rubric ({', '.join(sorted(trial.artifacts))})")
    return lines


def _said(answer: Answer) -> str:
    if not was_judged(answer):
        return "rubric           was not asked: the system under test left nothing to judge"
    # In these cases the harness wrote the answer, not the rubric.
    if any(mode.code in {"rubric.malformed_output", "rubric.timeout"} for mode in answer.failure_modes):
        return "rubric           gave no answer that can be used"
    return f"rubric said      passed={answer.passed} score={floor3(answer.score)}"
