"""Same outcomes, same bytes, in any order; and no number is ever out of its bounds."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from codegenie.eval.aggregation import build_report, score_cases
from codegenie.eval.canonical import canonical_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import FailureMode, Severity, TrialScore
from tests.unit.test_aggregation import a_case, a_header, a_plan

modes = st.sampled_from(["sut.exception", "sut.cancelled", "rubric.timeout", "answer.wrong"]).map(
    lambda code: FailureMode(code=code, severity=Severity.BLOCK)
)
costs = st.none() | st.floats(0, LIMITS.cost_usd)
shares = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])


@st.composite
def trial_scores(draw: st.DrawFn) -> TrialScore:
    blocking = draw(st.lists(modes, max_size=2, unique=True))
    score = 0.0 if blocking else draw(shares)
    return TrialScore(
        passed=not blocking and round(score * 1e6) > 0 and draw(st.booleans()),
        score=score,
        breakdown=draw(st.dictionaries(st.sampled_from(["accuracy", "style.line_length"]), shares)),
        failure_modes=tuple(blocking),
        cost_usd=draw(costs),
        wall_clock_ms=draw(st.integers(0, 10**9)),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[str, str]], int, dict[tuple[str, int], TrialScore]]:
    count, trials = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    families = draw(st.lists(st.sampled_from("xyz"), min_size=count, max_size=count))
    cases = [(f"c{n}", family if draw(st.booleans()) else f"c{n}") for n, family in enumerate(families)]
    outcomes = {(case_id, trial): draw(trial_scores()) for case_id, _ in cases for trial in range(trials)}
    return cases, trials, outcomes


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [value] if isinstance(value, int | float) else []


@settings(max_examples=30, deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_the_order_of_completion_changes_no_byte(
    run: tuple[list[tuple[str, str]], int, dict[tuple[str, int], TrialScore]],
    chance: Any,  # noqa: ANN401 - hypothesis' Random
) -> None:
    cases, trials, outcomes = run
    plan = a_plan([a_case(case_id, family) for case_id, family in cases], trials)
    shuffled_cases, shuffled = list(cases), list(outcomes.items())
    chance.shuffle(shuffled_cases)
    chance.shuffle(shuffled)
    other_plan = a_plan([a_case(case_id, family) for case_id, family in shuffled_cases], trials)

    first = build_report(plan, score_cases(plan, outcomes), a_header(plan)).model_dump(mode="json")
    second = build_report(
        other_plan, score_cases(other_plan, dict(shuffled)), a_header(other_plan)
    ).model_dump(mode="json")
    assert canonical_json(first) == canonical_json(second)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_every_number_is_finite_and_no_bound_is_one_or_above_the_best_unit(
    run: tuple[list[tuple[str, str]], int, dict[tuple[str, int], TrialScore]],
) -> None:
    cases, trials, outcomes = run
    plan = a_plan([a_case(case_id, family) for case_id, family in cases], trials)
    report = build_report(plan, score_cases(plan, outcomes), a_header(plan))

    assert all(math.isfinite(number) for number in numbers(report.model_dump(mode="json")))
    assert len(report.per_case) == len(cases)
    faults = (report.sut_fault_count, report.bench_fault_count, report.infrastructure_fault_count)
    assert report.scored_count + sum(faults) == len(cases)
    assert report.units_passed <= report.units <= len(cases)
    assert report.passed_count <= report.scored_count
    assert 0 <= report.certified_lower_95 < 1
    assert 0 <= report.lower_bound_95 < 1 or report.lower_bound_95_status == "ok"
    assert report.gaffke_lower_95 is not None
    assert 0 <= report.gaffke_lower_95 <= report.mean_score + 1e-9 or len(cases) != report.units
    assert report.complete == (report.infrastructure_fault_count == 0)


@settings(max_examples=20, deadline=None)
@given(runs())
def test_a_report_survives_its_own_json(
    run: tuple[list[tuple[str, str]], int, dict[tuple[str, int], TrialScore]],
) -> None:
    cases, trials, outcomes = run
    plan = a_plan([a_case(case_id, family) for case_id, family in cases], trials)
    report = build_report(plan, score_cases(plan, outcomes), a_header(plan))

    assert type(report).model_validate_json(report.model_dump_json()) == report
