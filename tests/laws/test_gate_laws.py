"""Laws of the gate: how often it is wrong, that a pass never hurts, that no evidence makes it raise."""

import datetime as dt
import math
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegenie.eval.gate.evidence import Evidence
from codegenie.eval.gate.policy import TierPolicy, read_policy
from codegenie.eval.gate.verdict import PromotionGate, PromotionVerdict, units_needed
from codegenie.eval.log.records import RunStarted
from codegenie.eval.models import BenchRunReport, BenchScore, Selection, SutBoundary, SutNetwork
from tests.support.gate import NOW, bench, cases, codes, evidence, judged, look, report, scored, started
from tests.support.sampling import sampled

# The decisions are made once, and by one worker.
pytestmark = pytest.mark.xdist_group("decisions of the gate")

MOST_UNITS = 60
LEVELS = (0.01, 0.05, 0.2)
THRESHOLDS = (0.5, 0.8, 0.9)
JUST_BELOW = 1e-9
ORDER = {"insufficient": 0, "inconclusive": 0, "sufficient": 1}


@cache
def policy(alpha: float) -> TierPolicy:
    tiers = ", ".join(f"t{n}: {threshold}" for n, threshold in enumerate(THRESHOLDS))
    text = f"thresholds: {{{tiers}}}\nalpha: {alpha}\nminimum_held_out: 0\n"
    return read_policy(text.encode(), "the policy")


@cache
def start_of(alpha: float, units: int) -> RunStarted:
    minimums = {f"t{n}": 1 for n in range(len(THRESHOLDS))}
    return started(units, policy_digest=policy(alpha).digest, min_cases_for_promotion=minimums)


def at_level(alpha: float, of: BenchRunReport) -> Evidence:
    return evidence(of, started=start_of(alpha, len(of.per_case)))


@cache
def result(units: int, passed: int) -> BenchRunReport:
    return report(units, passed)


@cache
def decisions(alpha: float, tier: str) -> dict[int, list[bool]]:
    """Return what the gate says of every result of every number of units."""
    gate = PromotionGate(policy(alpha))
    return {
        units: [
            gate.evaluate(at_level(alpha, result(units, passed)), tier, NOW).verdict == "sufficient"
            for passed in range(units + 1)
        ]
        for units in range(1, MOST_UNITS + 1)
    }


def chance_to_pass(passes: list[bool], share: float) -> float:
    """Return the exact probability that a run of an agent with this true share is found sufficient."""
    units = len(passes) - 1
    return math.fsum(
        math.comb(units, passed) * share**passed * (1 - share) ** (units - passed)
        for passed, decision in enumerate(passes)
        if decision
    )


@pytest.mark.parametrize("alpha", sampled(LEVELS, (0.05).__eq__))
@pytest.mark.parametrize("number", range(len(THRESHOLDS)))
def test_an_agent_below_the_threshold_is_passed_at_most_as_often_as_the_policy_says(
    alpha: float, number: int
) -> None:
    threshold = THRESHOLDS[number]
    grid = [threshold - JUST_BELOW, *(threshold * step / 20 for step in range(20))]
    found = decisions(alpha, f"t{number}")

    for units, passes in found.items():
        worst = max(chance_to_pass(passes, share) for share in grid)
        assert worst <= alpha, (units, worst)
    # Not by refusing everything: from the smallest number on, perfect runs pass.
    needed = units_needed(threshold, min(alpha, 0.05))
    assert needed is not None
    assert [units for units, passes in found.items() if passes[-1]] == list(range(needed, MOST_UNITS + 1))


@pytest.mark.parametrize("number", range(len(THRESHOLDS)))
def test_the_decisions_are_an_upper_set_of_the_units_passed(number: int) -> None:
    for passes in decisions(0.05, f"t{number}").values():
        assert passes == sorted(passes)


def test_taking_the_best_of_many_looks_does_not_help() -> None:
    """Every look must pass, so the chance of many is at most the chance of one."""
    passes = decisions(0.05, "t1")[MOST_UNITS]
    least = passes.index(True)
    lucky = at_level(0.05, report(MOST_UNITS, MOST_UNITS))

    def with_look(passed: int) -> PromotionVerdict:
        earlier = look(report(MOST_UNITS, passed, run_id="earlier"))
        return judged(
            evidence(lucky.report, started=lucky.started, other_looks=(earlier,)), "t1", policy(0.05)
        )

    assert with_look(least).verdict == "sufficient"
    assert codes(with_look(least - 1)) == {"other_look"}


@given(
    st.lists(st.sampled_from([0, 250_000, 999_999, 1_000_000]), min_size=1, max_size=80),
    st.data(),
)
def test_raising_one_case_to_a_pass_never_takes_a_sufficient_verdict_of_bounds_away(
    scores: list[int], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(scores) - 1))
    tier = data.draw(st.sampled_from(["t0", "t1", "t2"]))
    raised = [*scores[:at], 1_000_000, *scores[at + 1 :]]

    def verdict(values: list[int]) -> PromotionVerdict:
        # The BCa bound describes and is not monotone; what certifies must be.
        of = scored(
            [BenchScore(passed=value == 1_000_000, score=value / 1_000_000) for value in values],
            lower_bound_95=1.0,
        )
        return judged(at_level(0.05, of), tier, policy(0.05))

    assert ORDER[verdict(raised).verdict] >= ORDER[verdict(scores).verdict]


# No evidence makes it raise.

whole = st.integers(-(2**63), 2**63)
small = st.integers(-3, 70)
share = st.floats(0, 1)
moments = st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=14))]))


@st.composite
def well_typed_reports(draw: st.DrawFn) -> BenchRunReport:
    changes: dict[str, Any] = {
        "units": draw(whole | small),
        "units_passed": draw(whole | small),
        "passed_count": draw(whole | small),
        "infrastructure_fault_count": draw(whole),
        "lower_bound_95": draw(share),
        "certified_lower_95": draw(share),
        "complete": draw(st.booleans()),
        "sut_boundary": draw(st.sampled_from(get_args(SutBoundary))),
        "sut_network": draw(st.sampled_from([None, *get_args(SutNetwork)])),
        "isolation_class": draw(st.sampled_from(["subprocess", "landlock", "namespace"])),
        "policy_digest": draw(st.sampled_from([None, policy(0.05).digest, "9" * 64])),
        "selection": Selection(
            kind=draw(st.sampled_from(["all", "partial"])), available_cases=draw(whole), case_filter=None
        ),
        "ended_at": draw(moments),
        "run_id": draw(st.text(max_size=20)),
        "case_set_digest": draw(st.sampled_from(["0" * 64, "9" * 64])),
    }
    return report(draw(st.integers(1, 6)), 1, **changes)


@st.composite
def well_typed_evidence(draw: st.DrawFn) -> Evidence:
    of = draw(well_typed_reports())
    minimums = draw(st.dictionaries(st.sampled_from(["t0", "t1", "iron"]), st.integers(1, 2**63)))
    start = started(
        len(of.per_case),
        policy_digest=of.policy_digest,
        min_cases_for_promotion=minimums,
        cases=cases(len(of.per_case), draw(st.sampled_from(["held-out", "rag-corpus-derived"]))),
    )
    return Evidence(
        started=start,
        report=of,
        look=look(of, reused=draw(whole)),
        other_looks=tuple(
            look(other, reused=draw(whole)) for other in draw(st.lists(well_typed_reports(), max_size=2))
        ),
        unfinished_runs=draw(st.integers(0, 2**63)),
        lost_trials=draw(st.integers(0, 2**63)),
        runs_elsewhere=draw(st.integers(0, 2**63)),
        bench=draw(st.sampled_from([None, bench(start)])),
    )


@settings(max_examples=300)
@given(well_typed_evidence(), st.sampled_from(["t0", "t1", "t2"]) | st.text(max_size=10), moments)
def test_no_evidence_makes_the_gate_raise_and_reasons_and_verdict_agree(
    of: Evidence, tier: str, now: dt.datetime
) -> None:
    verdict = PromotionGate(policy(0.05)).evaluate(of, tier, now)

    assert (verdict.verdict == "sufficient") == (verdict.reasons == ())
    few = codes(verdict)
    assert (verdict.verdict == "inconclusive") == (
        "too_few_units" in few and few <= {"too_few_units", "certified_bound", "bca_bound", "other_look"}
    )
    # A verdict can be written down, whatever it is about.
    assert PromotionVerdict.model_validate_json(verdict.model_dump_json()) == verdict


@given(st.integers(1, 120), st.data())
def test_inconclusive_is_exactly_when_no_result_of_so_many_units_could_pass(
    units: int, data: st.DataObject
) -> None:
    passed = data.draw(st.integers(1, units))
    number = data.draw(st.integers(0, len(THRESHOLDS) - 1))
    best = judged(at_level(0.05, report(units, units)), f"t{number}", policy(0.05))
    verdict = judged(at_level(0.05, report(units, passed)), f"t{number}", policy(0.05))

    assert (verdict.verdict == "inconclusive") == (best.verdict != "sufficient")
