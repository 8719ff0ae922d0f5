"""Compute the numbers of a report from a plan and its outcomes.

Pure functions: the result has the same bytes in whatever order the trials completed. The plan is the
denominator: if a planned case has no outcome, that is a bug of the harness and not a smaller sample.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from codegenie.eval.canonical import TreeHasher
from codegenie.eval.estimators.bounds import bca_lower, clopper_pearson_lower, gaffke_lower
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    MICRO,
    RUNNER_CODES,
    BenchCase,
    BenchRunReport,
    BenchScore,
    Fault,
    RunHeader,
    RunPlan,
    Severity,
    Summary,
    TrialScore,
    UnitRule,
)

UNIT_RULE: UnitRule = "family-or-input"
"""The rule of every new run. The gate also uses it, whatever rule a run was recorded under."""

# The digest of a case without input/. Two such cases share nothing, so they do not count as copies.
_NO_INPUT = TreeHasher("input.v1").hexdigest()
TrialKey = tuple[str, int]
CaseScores = tuple[tuple[str, BenchScore], ...]


def score_cases(plan: RunPlan, outcomes: Mapping[TrialKey, TrialScore]) -> CaseScores:
    """Reduce the outcomes of all planned trials to one score per case."""
    if set(planned_trials(plan)) != outcomes.keys():
        raise RuntimeError("outcomes do not match the plan one to one")
    return tuple(
        (
            case.case_id,
            combine_trials([outcomes[case.case_id, trial] for trial in range(plan.options.trials)]),
        )
        for case in plan.cases
    )


def build_report(plan: RunPlan, per_case: CaseScores, header: RunHeader) -> BenchRunReport:
    """Make the report of a run from the scores of its cases."""
    summary = summarise(plan.cases, per_case)
    fields = {name: getattr(header, name) for name in RunHeader.model_fields}
    fields |= {name: getattr(summary, name) for name in Summary.model_fields}
    return BenchRunReport(**fields, per_case=per_case)


def planned_trials(plan: RunPlan) -> Iterator[TrialKey]:
    """Yield every trial that a plan counts, in the order of its cases."""
    return ((case.case_id, trial) for case in plan.cases for trial in range(plan.options.trials))


def combine_trials(trials: Sequence[TrialScore]) -> BenchScore:
    """Reduce the trials of one case: the mean of their scores; the case passes if all trials pass."""
    if len(trials) == 1:
        only = trials[0]
        # Constructed without a second validation: the values come from a record, so they can be shared.
        return BenchScore.model_construct(
            only.model_fields_set, **{name: getattr(only, name) for name in TrialScore.model_fields}
        )
    keys = sorted({key for trial in trials for key in trial.breakdown})
    breakdown = {
        key: _mean([trial.breakdown[key] for trial in trials if key in trial.breakdown]) for key in keys
    }
    costs = [trial.cost_usd for trial in trials]
    return BenchScore(
        passed=all(trial.passed for trial in trials),
        score=_mean([trial.score for trial in trials]),
        breakdown=breakdown,
        failure_modes=tuple(dict.fromkeys(mode for trial in trials for mode in trial.failure_modes)),
        cost_usd=None if None in costs else math.fsum(cost for cost in costs if cost is not None),
        wall_clock_ms=sum(trial.wall_clock_ms for trial in trials),
        trials=tuple(trials),
    )


def summarise(
    cases: Sequence[BenchCase],
    per_case: Sequence[tuple[str, BenchScore]],
    rule: UnitRule = UNIT_RULE,
    *,
    believed: Summary | None = None,
) -> Summary:
    """Compute every number of a report from its cases and their scores.

    If `believed` is given, the bounds are copied from it: computing them takes longer than all the rest.
    """
    micro = [round(score.score * MICRO) for _, score in per_case]
    unit_means, units_passed = _units(units_of(cases, rule), dict(per_case))
    bounds = _bounds(unit_means, units_passed) if believed is None else _bounds_of(believed)
    faults = [fault_of(score) for _, score in per_case]
    costs = [score.cost_usd for _, score in per_case]
    modes = {
        mode.code for _, score in per_case for mode in score.failure_modes if mode.severity is Severity.BLOCK
    }
    return Summary(
        mean_score=sum(micro) / len(micro) / MICRO,
        score_stddev=_deviation(micro),
        **bounds,
        units=len(unit_means),
        units_passed=units_passed,
        passed_count=sum(score.passed for _, score in per_case),
        scored_count=faults.count(None),
        sut_fault_count=faults.count(Fault.SUT),
        bench_fault_count=faults.count(Fault.BENCH),
        infrastructure_fault_count=faults.count(Fault.INFRASTRUCTURE),
        total_cost_usd=None if None in costs else math.fsum(cost for cost in costs if cost is not None),
        block_severity_failure_modes=tuple(sorted(modes)),
        complete=Fault.INFRASTRUCTURE not in faults,
    )


class _Bounds(TypedDict):
    lower_bound_95: float
    lower_bound_95_status: Literal["ok", "degenerate", "n_too_small"]
    certified_lower_95: float
    gaffke_lower_95: float | None


def _bounds(unit_means: Sequence[int], units_passed: int) -> _Bounds:
    certified = clopper_pearson_lower(units_passed, len(unit_means))
    bca = bca_lower(unit_means)
    return _Bounds(
        # On degenerate data a bootstrap says nothing. Then this is the certified value, never 1.0 (ADR-0009).
        lower_bound_95=certified if bca is None else bca.value,
        lower_bound_95_status=_bca_status(bca is not None, len(unit_means)),
        certified_lower_95=certified,
        gaffke_lower_95=_gaffke(unit_means),
    )


def _bounds_of(believed: Summary) -> _Bounds:
    return _Bounds(
        lower_bound_95=believed.lower_bound_95,
        lower_bound_95_status=believed.lower_bound_95_status,
        certified_lower_95=believed.certified_lower_95,
        gaffke_lower_95=believed.gaffke_lower_95,
    )


def fault_of(score: TrialScore) -> Fault | None:
    """Say whose fault a missing verdict is. Infrastructure goes before bench, and bench before SUT."""
    faults = {RUNNER_CODES[mode.code] for mode in score.failure_modes if mode.code in RUNNER_CODES}
    return next((fault for fault in (Fault.INFRASTRUCTURE, Fault.BENCH, Fault.SUT) if fault in faults), None)


def units_of(cases: Sequence[BenchCase], rule: UnitRule) -> list[list[str]]:
    """Return the ids of the cases of every unit.

    The cases of a family are one unit. By today's rule, cases with the same input are one unit too, whatever
    their families are called: a case that was copied fourteen times is not fourteen draws.
    """
    above: dict[str, str] = {}

    def top(key: str) -> str:
        while above.setdefault(key, key) != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    joins = rule == "family-or-input"
    for case in cases:
        if joins and case.input_digest != _NO_INPUT:
            above[top(f"input {case.input_digest}")] = top(_family(case))
    units: dict[str, list[str]] = {}
    for case in cases:
        units.setdefault(top(_family(case)), []).append(case.case_id)
    return list(units.values())


def _family(case: BenchCase) -> str:
    return f"family {case.family}"


def _units(units: Sequence[Sequence[str]], scores: Mapping[str, BenchScore]) -> tuple[list[int], int]:
    """Return the mean micro-score of every unit, and how many units passed completely."""
    whole = [[scores[case_id] for case_id in unit] for unit in units]
    means = [sum(round(score.score * MICRO) for score in members) // len(members) for members in whole]
    return sorted(means), sum(all(score.passed for score in members) for members in whole)


def mean_over_units(cases: Sequence[BenchCase], per_case: CaseScores) -> float:
    """Return the mean of the units' scores. A large family has the same weight as a small one."""
    means, _ = _units(units_of(cases, UNIT_RULE), dict(per_case))
    return sum(means) / len(means) / MICRO


def steadiness(per_case: CaseScores) -> tuple[float, float]:
    """Return the share of cases that pass all trials, and the mean of the deviations within each case."""
    passed = sum(score.passed for _, score in per_case)
    within = [_deviation([round(trial.score * MICRO) for trial in score.trials]) for _, score in per_case]
    return passed / len(per_case), math.fsum(within) / len(per_case)


def _gaffke(unit_means: Sequence[int]) -> float | None:
    if len(unit_means) > LIMITS.gaffke_units:
        return None
    return gaffke_lower([mean / MICRO for mean in unit_means])


def _bca_status(defined: bool, units: int) -> Literal["ok", "degenerate", "n_too_small"]:  # noqa: FBT001 - two facts, one word
    if defined:
        return "ok"
    return "n_too_small" if units < 2 else "degenerate"  # noqa: PLR2004 - a spread needs two


def _mean(values: Sequence[float]) -> float:
    return sum(round(value * MICRO) for value in values) / len(values) / MICRO


def _deviation(micro: Sequence[int]) -> float:
    """Return the sample standard deviation, from integer sums: independent of order, 0 for a single case."""
    n = len(micro)
    if n < 2:  # noqa: PLR2004 - a spread needs two
        return 0.0
    total = sum(micro)
    squares = n * sum(value * value for value in micro) - total * total
    return math.sqrt(squares / (n * (n - 1))) / MICRO


def same_number(stored: object, computed: object) -> bool:
    """Compare a stored value with the recomputed one. Floats may differ in the last bits between machines."""
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=1e-9, abs_tol=1e-12)
    return stored == computed
