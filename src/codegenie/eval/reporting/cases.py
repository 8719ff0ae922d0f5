"""One trial of one case as lines of text."""

from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.reporting.terminal import floor3
from codegenie.eval.settling import settled


def render_case(trial: TrialEvidence) -> list[str]:
    """Say what a trial came to, why, what it cost, and what can be looked at."""
    score = settled(trial)
    verdict = "passed" if score.passed else "not passed"
    cost = "unknown" if trial.cost_usd is None else f"{trial.cost_usd:.4f} USD"
    lines = [
        f"{trial.case_id}#{trial.trial}  {verdict}  score {floor3(score.score)}",
        f"  rubric said      passed={trial.answer.passed} score={floor3(trial.answer.score)}",
    ]
    lines += [f"  {key:16} {floor3(value)}" for key, value in sorted(score.breakdown.items())]
    lines += [
        f"  {mode.severity.value:16} {mode.code}" + (f": {mode.detail}" if mode.detail else "")
        for mode in score.failure_modes
    ]
    lines.append(f"  took             {trial.wall_clock_ms} ms · cost {cost} · reused {trial.reused}")
    if trial.artifacts:
        lines.append(f"  look at          --diff, --log, --rubric ({', '.join(sorted(trial.artifacts))})")
    return lines
