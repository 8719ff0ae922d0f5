"""Plan and outcomes to numbers: every planned case counts, trials are no units, families are."""

import datetime as dt
import itertools
import random
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.aggregation import build_report, combine_trials, fault_of, score_cases, units_of
from codegenie.eval.canonical import TreeHasher
from codegenie.eval.models import (
    BenchCase,
    BenchRunReport,
    BenchScore,
    FailureMode,
    Fault,
    RunHeader,
    RunOptions,
    RunPlan,
    Selection,
    Severity,
    SutIdentity,
    TrialScore,
)
from codegenie.eval.planning import build_plan
from tests.unit.test_validation import task_class

ZERO = "0" * 64
DATE = dt.date(2026, 11, 15)
PASSED = TrialScore(passed=True, score=1.0, cost_usd=0.5)
FAILED = TrialScore(passed=False, score=0.0, cost_usd=0.5)


def a_case(case_id: str, family: str | None = None) -> BenchCase:
    return BenchCase(
        case_id=case_id,
        task_class="built-class",
        disposition="positive",
        difficulty="easy",
        source="curated",
        curation_class="held-out",
        family=family or case_id,
        added_at=DATE,
        last_validated_at=DATE,
        digest=ZERO,
        input_digest=blake3(case_id.encode()).hexdigest(),
    )


def a_plan(cases: list[BenchCase], trials: int = 1) -> RunPlan:
    selection = Selection(kind="all", available_cases=len(cases))
    return build_plan(task_class(), tuple(cases), selection, RunOptions(trials=trials))


def a_header(plan: RunPlan) -> RunHeader:
    moment = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
    return RunHeader(
        run_id="r",
        task_class="built-class",
        harness_version="0",
        sut=SutIdentity(spec="null"),
        sut_identity_digest=ZERO,
        rubric_digest=ZERO,
        taxonomy_digest=ZERO,
        case_set_digest=plan.case_set_digest,
        sut_boundary="harness",
        isolation_class="subprocess",
        selection=plan.selection,
        trials=plan.options.trials,
        started_at=moment,
        ended_at=moment,
    )


def report_on(scores: dict[str, TrialScore], families: dict[str, str] | None = None) -> BenchRunReport:
    plan = a_plan([a_case(case_id, (families or {}).get(case_id)) for case_id in scores])
    return build_report(
        plan, score_cases(plan, {(case_id, 0): score for case_id, score in scores.items()}), a_header(plan)
    )


def blocked(code: str, detail: str | None = None) -> TrialScore:
    mode = FailureMode(code=code, severity=Severity.BLOCK, detail=detail)
    return TrialScore(passed=False, score=0.0, failure_modes=(mode,))


def test_a_case_without_a_verdict_stays_in_the_denominator() -> None:
    scores = {f"p{n}": PASSED for n in range(20)} | {f"t{n}": blocked("rubric.timeout") for n in range(10)}
    report = report_on(scores)

    assert len(report.per_case) == 30
    assert report.mean_score == round(20 / 30, 6)
    assert (report.units, report.units_passed, report.passed_count) == (30, 20, 20)


@pytest.mark.parametrize("change", ["missing", "extra", "another trial"])
def test_outcomes_that_do_not_match_the_plan_are_our_own_error(change: str) -> None:
    plan = a_plan([a_case("a"), a_case("b")])
    outcomes = {("a", 0): PASSED, ("b", 0): PASSED}
    if change == "missing":
        del outcomes["b", 0]
    else:
        outcomes["c" if change == "extra" else "a", 1] = PASSED

    with pytest.raises(RuntimeError, match="one to one"):
        build_report(plan, score_cases(plan, outcomes), a_header(plan))


def test_a_report_is_ordered_by_case_id() -> None:
    report = report_on({"c": PASSED, "a": FAILED, "b": PASSED})

    assert [case_id for case_id, _ in report.per_case] == ["a", "b", "c"]


def test_faults_are_counted_apart_and_add_up_to_the_plan() -> None:
    report = report_on(
        {
            "a": PASSED,
            "b": FAILED,
            "c": blocked("sut.exception"),
            "d": blocked("sut.timeout"),
            "e": blocked("rubric.malformed_output"),
            "f": blocked("rubric.unknown_breakdown_key", "k"),
            "g": blocked("rubric.unknown_failure_mode", "m"),
            "h": blocked("rubric.timeout"),
            "i": blocked("answer.wrong"),
        }
    )

    assert (report.scored_count, report.sut_fault_count, report.bench_fault_count) == (3, 2, 4)
    assert (report.infrastructure_fault_count, report.complete) == (0, True)
    assert report.block_severity_failure_modes == (
        "answer.wrong",
        "rubric.malformed_output",
        "rubric.timeout",
        "rubric.unknown_breakdown_key",
        "rubric.unknown_failure_mode",
        "sut.exception",
        "sut.timeout",
    )


def test_one_cancelled_trial_makes_a_report_incomplete() -> None:
    report = report_on({"a": PASSED, "b": blocked("sut.cancelled", "ended")})

    assert (report.complete, report.infrastructure_fault_count, report.scored_count) == (False, 1, 1)


def test_of_several_faults_ours_comes_first_and_the_suts_last() -> None:
    modes = [
        FailureMode(code=code, severity=Severity.BLOCK)
        for code in ("sut.timeout", "rubric.timeout", "sut.cancelled")
    ]

    def found(*chosen: FailureMode) -> Fault | None:
        return fault_of(TrialScore(passed=False, score=0.0, failure_modes=chosen))

    assert found(*modes) is Fault.INFRASTRUCTURE
    assert found(*modes[:2]) is Fault.BENCH
    assert found(modes[0]) is Fault.SUT
    assert found() is None


def test_a_family_is_one_unit_and_passes_only_as_a_whole() -> None:
    report = report_on(
        {"a1": PASSED, "a2": PASSED, "b1": PASSED, "b2": FAILED, "c1": PASSED},
        {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"},
    )

    assert (report.units, report.units_passed, report.passed_count) == (3, 2, 4)
    assert report.mean_score == 0.8
    assert report.certified_lower_95 < 0.2


def same_input(first: BenchCase, *others: BenchCase) -> list[BenchCase]:
    return [first, *(case.model_copy(update={"input_digest": first.input_digest}) for case in others)]


def test_cases_with_the_same_input_are_one_unit_and_join_their_families() -> None:
    clones = same_input(a_case("one", "red"), a_case("two", "blue"), a_case("three", "green"))
    cases = [*clones, a_case("four", "blue"), a_case("five")]

    assert units_of(cases, "family-or-input") == [["one", "two", "three", "four"], ["five"]]
    assert units_of(cases, "family") == [["one"], ["two", "four"], ["three"], ["five"]]


def test_cases_without_any_input_are_not_copies_of_each_other() -> None:
    nothing = TreeHasher("input.v1").hexdigest()
    cases = [a_case(name).model_copy(update={"input_digest": nothing}) for name in ("one", "two")]

    assert units_of(cases, "family-or-input") == [["one"], ["two"]]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12),
    chance=st.randoms(),
)
def test_units_are_the_connected_parts_whatever_the_order_of_the_cases(
    pairs: list[tuple[int, int]], chance: random.Random
) -> None:
    cases = [
        a_case(f"case-{n}", f"f{family}").model_copy(update={"input_digest": f"{given:064x}"})
        for n, (family, given) in enumerate(pairs)
    ]
    shuffled = chance.sample(cases, len(cases))
    units = [frozenset(unit) for unit in units_of(cases, "family-or-input")]

    assert sorted(case_id for unit in units for case_id in unit) == sorted(case.case_id for case in cases)
    assert set(units) == {frozenset(unit) for unit in units_of(shuffled, "family-or-input")}
    unit_of = {case_id: unit for unit in units for case_id in unit}
    for one, other in itertools.combinations(cases, 2):
        if one.family == other.family or one.input_digest == other.input_digest:
            assert unit_of[one.case_id] is unit_of[other.case_id]


def test_trials_are_averaged_must_all_pass_and_are_never_units() -> None:
    plan = a_plan([a_case("a"), a_case("b")], trials=3)
    half = TrialScore(passed=True, score=0.5, breakdown={"accuracy": 0.5}, cost_usd=0.25, wall_clock_ms=5)
    outcomes = {("a", n): half for n in range(3)} | {("b", n): PASSED for n in range(3)}
    outcomes["b", 1] = TrialScore(passed=False, score=0.2, cost_usd=0.5)
    report = build_report(plan, score_cases(plan, outcomes), a_header(plan))
    a, b = (score for _, score in report.per_case)

    assert (a.passed, a.score, a.breakdown, a.cost_usd, a.wall_clock_ms) == (
        True,
        0.5,
        {"accuracy": 0.5},
        0.75,
        15,
    )
    assert (b.passed, b.score) == (False, round(2.2 / 3, 6))
    assert (report.units, report.units_passed, report.trials) == (2, 1, 3)
    assert len(a.trials) == 3
    assert report.total_cost_usd == 2.25


def test_a_blocked_trial_counts_as_zero_and_keeps_its_case_from_passing() -> None:
    block = blocked("answer.wrong", "no")
    combined = combine_trials([PASSED, block, block])

    assert (combined.passed, combined.score) == (False, 0.333333)
    assert [mode.code for mode in combined.failure_modes] == ["answer.wrong"]
    assert combined.trials == (PASSED, block, block)


def test_a_single_trial_is_the_case() -> None:
    assert combine_trials([PASSED]) == BenchScore(passed=True, score=1.0, cost_usd=0.5)


def test_a_part_of_the_breakdown_is_averaged_over_the_trials_that_have_it() -> None:
    one = TrialScore(passed=True, score=1.0, breakdown={"accuracy": 1.0, "style.line_length": 0.5})
    other = TrialScore(passed=True, score=1.0, breakdown={"accuracy": 0.5})

    assert combine_trials([one, other]).breakdown == {"accuracy": 0.75, "style.line_length": 0.5}


def test_a_cost_that_one_case_does_not_know_is_unknown_in_all() -> None:
    unknown = TrialScore(passed=True, score=1.0)

    assert report_on({"a": PASSED, "b": PASSED}).total_cost_usd == 1.0
    assert report_on({"a": PASSED, "b": unknown}).total_cost_usd is None
    assert combine_trials([PASSED, unknown]).cost_usd is None


@pytest.mark.parametrize("count", [2, 3, 30, 200])
def test_a_perfect_run_is_certified_below_one(count: int) -> None:
    report = report_on({f"c{n}": PASSED for n in range(count)})

    assert (report.mean_score, report.score_stddev) == (1.0, 0.0)
    assert report.lower_bound_95_status == "degenerate"
    assert report.lower_bound_95 == report.certified_lower_95 == pytest.approx(0.05 ** (1 / count))
    assert report.gaffke_lower_95 is not None
    assert report.gaffke_lower_95 < 1.0


@pytest.mark.parametrize("count", [2, 30])
def test_a_run_of_zeros_is_bounded_by_zero(count: int) -> None:
    report = report_on({f"c{n}": FAILED for n in range(count)})

    assert report.lower_bound_95_status == "degenerate"
    assert (report.mean_score, report.lower_bound_95, report.certified_lower_95) == (0.0, 0.0, 0.0)
    assert report.gaffke_lower_95 == 0.0


@pytest.mark.parametrize(("score", "bound"), [(PASSED, 0.05), (FAILED, 0.0)])
def test_a_single_case_is_too_few_for_a_bootstrap(score: TrialScore, bound: float) -> None:
    report = report_on({"only": score})

    assert (report.units, report.lower_bound_95_status, report.score_stddev) == (1, "n_too_small", 0.0)
    assert report.lower_bound_95 == pytest.approx(bound)


def test_one_family_of_many_cases_is_one_unit_and_too_few() -> None:
    report = report_on({f"c{n}": PASSED for n in range(50)}, {f"c{n}": "same" for n in range(50)})

    assert (report.units, report.lower_bound_95_status) == (1, "n_too_small")
    assert report.certified_lower_95 == pytest.approx(0.05)


def test_the_deviation_is_that_of_a_sample() -> None:
    report = report_on({"a": PASSED, "b": FAILED, "c": PASSED, "d": FAILED})

    assert report.score_stddev == pytest.approx(0.5773502691896257)
    assert report.lower_bound_95_status == "ok"


def test_above_five_hundred_units_there_is_no_gaffke_bound() -> None:
    assert report_on({f"c{n}": PASSED for n in range(500)}).gaffke_lower_95 is not None
    assert report_on({f"c{n}": PASSED for n in range(501)}).gaffke_lower_95 is None


def test_the_directory_of_a_bench_is_no_part_of_a_report() -> None:
    assert str(Path("/nowhere")) not in report_on({"a": PASSED}).model_dump_json()


def test_the_mean_of_a_unit_is_rounded_down_and_certifies_nothing_that_it_has_not() -> None:
    least = TrialScore(passed=False, score=0.000_001)
    report = report_on({"a": least, "b": FAILED}, {"a": "one", "b": "one"})

    assert (report.units, report.gaffke_lower_95) == (1, 0.0)
