"""A verdict as lines of text: the advice, then everything that speaks against it, then what is missing."""

from codegenie.eval.models import BenchRunReport, Severity
from codegenie.eval.promotion import PromotionVerdict
from codegenie.eval.wording import counted

_SHOWN = 10


def render_verdict(verdict: PromotionVerdict) -> list[str]:
    """Return the advice of the gate, in words that promise no more than it does."""
    lines = [
        f"{verdict.tier:16} {verdict.verdict} for {verdict.task_class} · {verdict.sut} · run {verdict.run_id}"
    ]
    lines += [f"  {reason}" for reason in verdict.reasons]
    if verdict.looks > 1:
        lines.append(f"  this agent was measured {verdict.looks} times on these cases; every look counts")
    if verdict.resumed:
        lines.append(
            f"  taken up again {counted(verdict.resumed, 'time')}; what was in flight was measured again"
        )
    if verdict.runs_elsewhere:
        elsewhere = counted(verdict.runs_elsewhere, "run")
        lines.append(f"  not counted: {elsewhere} of this agent under other names, cases or rubrics")
    if verdict.verdict == "sufficient":
        lines += _promise(verdict)
    return lines


def _promise(verdict: PromotionVerdict) -> list[str]:
    lines = [
        f"  if the true share of units passed were below {verdict.threshold}, this gate would have",
        f"  passed it at most {verdict.alpha * 100:g} % of the time; a human promotes: edit current_tiers",
    ]
    if verdict.sut_boundary == "harness":
        lines.append(f"  {verdict.sut} is the harness's own and no agent: this shows what the bench can show")
    return lines


def render_missing(verdict: PromotionVerdict, report: BenchRunReport) -> list[str]:
    """Say what would have to change for the tier: more units, and which cases block."""
    lines = []
    needed = verdict.units_needed
    if needed is not None and report.units < needed:
        more = counted(needed - report.units, "more unit")
        lines.append(f"  no result can certify {verdict.threshold} without {more}")
    blocked = [
        case_id
        for case_id, score in report.per_case
        if any(mode.severity is Severity.BLOCK for mode in score.failure_modes)
    ]
    if blocked:
        rest = f" and {len(blocked) - _SHOWN} more" if len(blocked) > _SHOWN else ""
        lines.append(f"  {counted(len(blocked), 'blocked case')}: {', '.join(blocked[:_SHOWN])}{rest}")
    return lines
