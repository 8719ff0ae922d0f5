"""A report as lines of text: the bound, the faults and the blocked cases first.

All texts were made printable when they were stored; ids are plain ASCII by contract.
"""

import math
from collections.abc import Iterator
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from codegenie.eval.accounting import Totals
from codegenie.eval.aggregation import steadiness
from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.models import BenchRunReport, BenchScore, Severity
from codegenie.eval.reporting.usage_text import render_totals
from codegenie.eval.wording import counted

_SHOWN = 20
_REASONS = 3
# With a larger difference, the mean over units and the mean over cases lead to different conclusions.
_APART = 0.1
_CENT = Decimal("0.01")


def render_report(
    report: BenchRunReport, reused: int = 0, over_units: float | None = None, totals: Totals | None = None
) -> list[str]:
    """Return the closing table of a run; `reused` is the number of outputs that came from the store.

    `over_units` is the mean over units and `totals` what all trials used; a report alone contains neither.
    """
    blocked = [(case_id, score) for case_id, score in report.per_case if _blocking(score)]
    missed = [
        (case_id, score) for case_id, score in report.per_case if not score.passed and not _blocking(score)
    ]
    return [
        *_headline(report, reused, over_units),
        *_steadiness(report),
        *(render_totals(totals, report.trials) if totals is not None else ()),
        *_section("blocked", blocked),
        *_section("not passed", missed),
        f"passed           {report.passed_count} of {counted(len(report.per_case), 'case')}",
    ]


def nothing_judged(report: BenchRunReport) -> str | None:
    """Return a warning if every case is a fault of the bench: the agent was not measured (ADR-0003)."""
    if report.bench_fault_count < len(report.per_case):
        return None
    return "every case is a fault of the bench, so the run says nothing about the agent: correct the rubric"


def _headline(report: BenchRunReport, reused: int, over_units: float | None) -> Iterator[str]:
    state = "complete" if report.complete else "INCOMPLETE"
    if report.selection.kind == "partial":
        state += f", PARTIAL ({len(report.per_case)} of {counted(report.selection.available_cases, 'case')})"
    yield f"{report.task_class} · {report.sut.spec} · run {report.run_id} · {state}"
    if report.isolation_class == "subprocess":
        yield "WARNING          rubrics were not confined: they could read and change everything that you can"
    unjudged = nothing_judged(report)
    if unjudged is not None:
        yield f"NOT MEASURED     {unjudged}"
    status = (
        "" if report.lower_bound_95_status == "ok" else f" ({report.lower_bound_95_status}: certified value)"
    )
    yield f"lower bound 95 % {floor3(report.lower_bound_95)} BCa{status}"
    gaffke = report.gaffke_lower_95
    units = f"{report.units_passed} of {counted(report.units, 'unit')} passed"
    also = "" if gaffke is None else f" · Gaffke {floor3(gaffke)} on unit means"
    yield f"certified 95 %   {floor3(report.certified_lower_95)} on {units}{also}"
    yield f"mean             {floor3(report.mean_score)} ± {report.score_stddev:.3f}"
    if over_units is not None:
        yield f"mean over units  {floor3(over_units)}"
    yield from render_means(report.mean_score, over_units)
    yield (
        f"verdicts         {report.scored_count} scored · {counted(report.sut_fault_count, 'SUT fault')} · "
        f"{counted(report.bench_fault_count, 'bench fault')} · "
        f"{report.infrastructure_fault_count} not measured"
    )
    cost = _cost(report)
    yield f"how              rubrics in {report.isolation_class} · SUT {_where(report)} · cost {cost}"
    if reused:
        # Without this line a run that called no agent looks like a measurement (threats UI-11).
        outputs = counted(len(report.per_case) * report.trials, "output")
        yield f"reused           {reused} of {outputs} from the store; --no-cache asks again"


def _steadiness(report: BenchRunReport) -> Iterator[str]:
    """Yield how steady the agent is, if each case was tried more than once."""
    if report.trials > 1:
        share, spread = (Decimal(repr(n)).quantize(_CENT, ROUND_FLOOR) for n in steadiness(report.per_case))
        yield f"{f'pass^{report.trials}':16} {share} · per-case spread {spread}"


def steadiness_document(report: BenchRunReport) -> dict[str, Any] | None:
    """Return the `steadiness` of a document; None if each case was tried only once."""
    if report.trials == 1:
        return None
    share, spread = steadiness(report.per_case)
    return {"trials": report.trials, "share_passing_all": share, "spread": spread}


def _where(report: BenchRunReport) -> str:
    """Return where the system under test ran, and what it could reach if it was in a box."""
    if report.sut_network is None:
        return report.sut_boundary
    return " ".join(
        filter(None, [f"{report.sut_boundary}, network {report.sut_network}", report.sut_upstream])
    )


def _cost(report: BenchRunReport) -> str:
    """Return the cost of a run; if it ended early or some costs are unknown, the known part."""
    if report.total_cost_usd is not None:
        return f"{report.total_cost_usd:.2f} USD"
    costs = [trial.cost_usd for _, score in report.per_case for trial in score.trials or (score,)]
    known = math.fsum(cost for cost in costs if cost is not None)
    return f"at least {Decimal(repr(known)).quantize(_CENT, ROUND_FLOOR)} USD" if known else "unknown"


def _section(title: str, cases: list[tuple[str, BenchScore]]) -> Iterator[str]:
    if not cases:
        return
    yield f"{title:16} {counted(len(cases), 'case')}"
    for case_id, score in cases[:_SHOWN]:
        yield f"  {case_id}  {floor3(score.score)}  {_reasons(score)}".rstrip()
    if len(cases) > _SHOWN:
        yield f"  … and {len(cases) - _SHOWN} more; --json names them all"


def _reasons(score: BenchScore) -> str:
    ordered = sorted(score.failure_modes, key=lambda mode: mode.severity is not Severity.BLOCK)
    reasons = [f"{mode.code} ({mode.detail})" if mode.detail else mode.code for mode in ordered[:_REASONS]]
    hidden = len(ordered) - _REASONS
    return "; ".join(reasons) + (f"; and {hidden} more" if hidden > 0 else "")


def _blocking(score: BenchScore) -> bool:
    return any(mode.severity is Severity.BLOCK for mode in score.failure_modes)


def render_means(over_cases: float, over_units: float | None) -> list[str]:
    """Return a note if large and small units have different results: bounds count every unit once."""
    if over_units is None or not abs(over_units - over_cases) > _APART:
        return []
    how = ("lower", "worse") if over_cases < over_units else ("higher", "better")
    means = f"the mean over cases ({floor3(over_cases)}) is {how[0]} than over units ({floor3(over_units)})"
    return [
        f"  {means}: large families came out {how[1]} than small ones, and the bounds count each family once"
    ]
