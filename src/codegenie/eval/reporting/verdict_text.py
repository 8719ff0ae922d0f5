"""A verdict as lines of text: the advice, then all reasons against promotion, then what is missing."""

from typing import Any

from codegenie.eval.gate.verdict import PromotionVerdict
from codegenie.eval.models import BenchRunReport, Severity
from codegenie.eval.reporting.run_text import render_means
from codegenie.eval.wording import counted

_SHOWN = 10
_DIGITS = 12


def render_verdict(verdict: PromotionVerdict) -> list[str]:
    """Return the advice of the gate, in words that promise no more than the gate does."""
    lines = [
        f"{verdict.tier:16} {verdict.verdict} for {verdict.task_class} · {verdict.sut} · run {verdict.run_id}"
    ]
    lines += [f"  {reason!s}" for reason in verdict.reasons]
    lines.append(_agent(verdict))
    if verdict.looks > 1:
        lines.append(f"  this agent was measured {verdict.looks} times on these cases; every look counts")
    if verdict.resumed:
        lines.append(
            f"  resumed {counted(verdict.resumed, 'time')}; trials that were under way were asked for again"
        )
    lines += [
        f"  {counted(units, 'unit')} of run {run_id} asked again after a try without an outcome: not passed"
        for run_id, units in verdict.interrupted_units.items()
    ]
    lines += [
        f"  waived for run {waiver.refund} by {waiver.by} on {waiver.on}: {waiver.because}"
        for waiver in verdict.waivers
    ]
    lines += _tried(verdict)
    if verdict.mean_over_cases is not None:
        lines += render_means(verdict.mean_over_cases, verdict.mean_over_units)
    lines += [f"  {note}" for note in verdict.notes]
    if verdict.verdict == "sufficient":
        lines += _promise(verdict)
    return lines


def verdict_document(verdict: PromotionVerdict) -> dict[str, Any]:
    """Return a verdict as JSON, with its reasons both as sentences and as records."""
    document = verdict.model_dump(mode="json")
    records = document["reasons"]
    return {**document, "reasons": [str(each) for each in verdict.reasons], "reason_records": records}


def _agent(verdict: PromotionVerdict) -> str:
    version = "without a version" if verdict.sut_version is None else f"version {verdict.sut_version}"
    identity = (verdict.sut_identity_digest or "unknown")[:_DIGITS]
    return f"  agent {verdict.sut}, {version}, identity {identity}"


def _tried(verdict: PromotionVerdict) -> list[str]:
    lines = [f"  other candidates tried on these cases: {verdict.candidates_tried - 1}"]
    if verdict.runs_elsewhere:
        runs = counted(verdict.runs_elsewhere, "run")
        lines.append(f"  not counted: {runs} of this class by other candidates, or on other cases or rubrics")
    return lines


def _promise(verdict: PromotionVerdict) -> list[str]:
    """Return how often the gate errs. This is known only if nothing else was tried on these cases."""
    if verdict.candidates_tried > 1 or verdict.runs_elsewhere:
        return [
            "  how often the best of several tries gets here by chance is not known, so no rate is claimed;",
            "  a human promotes: edit current_tiers",
        ]
    return [
        f"  if the true share of units passed were below {verdict.threshold}, this gate would have",
        f"  passed it at most {verdict.alpha * 100:g} % of the time; a human promotes: edit current_tiers",
    ]


def render_missing(verdict: PromotionVerdict, report: BenchRunReport) -> list[str]:
    """Return what has to change for the tier: more units, and the cases that block."""
    lines = []
    needed = verdict.units_needed
    if needed is not None and verdict.units < needed:
        more = counted(needed - verdict.units, "more unit")
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
