"""The gate, condition by condition: what speaks against promotion says so by its own name."""

import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from codegenie.eval.errors import EvalError, IncompleteReportForPromotion, PromotionMustBeHumanAuthorized
from codegenie.eval.estimators.bounds import clopper_pearson_lower
from codegenie.eval.gate.evidence import Evidence
from codegenie.eval.gate.policy import TierPolicy, read_policy
from codegenie.eval.gate.reasons import reason
from codegenie.eval.gate.verdict import PromotionGate, units_needed
from codegenie.eval.log.runs import Look
from codegenie.eval.models import (
    RUNNER_CODES,
    BenchCase,
    BenchRunReport,
    BenchScore,
    FailureMode,
    IsolationClass,
    Selection,
    Severity,
    SutIdentity,
)
from codegenie.eval.reporting.verdict_text import render_verdict
from codegenie.eval.suts.identity import identity_digest
from tests.support.gate import (
    NOW,
    POLICY,
    SUT,
    bench,
    cases,
    codes,
    evidence,
    judged,
    look,
    proof,
    report,
    scored,
    started,
)

REPLAY = f"replay:{'1' * 16} of command:./agent.sh"
DAY = dt.timedelta(days=1)
NAN = float("nan")


def good(**changes: object) -> BenchRunReport:
    return report(20, 20, **changes)


def partial() -> Evidence:
    """Return a run of half of the bench, which has not changed since."""
    some = Selection(kind="partial", case_filter="case-*", available_cases=40)
    return evidence(good(selection=some), started=started(20, selection=some), bench=bench(started(40)))


def policy_less() -> Evidence:
    return evidence(good(policy_digest=None), started=started(20, policy_digest=None))


def incomplete() -> Evidence:
    lost = BenchScore(
        passed=False, score=0.0, failure_modes=(FailureMode(code="sut.cancelled", severity=Severity.BLOCK),)
    )
    passed = BenchScore(passed=True, score=1.0)
    return evidence(scored([passed] * 99 + [lost]))


def other_rules(**changes: object) -> Evidence:
    """Return good evidence whose bench on disk differs in one thing."""
    return evidence(good(), bench=bench(started(20, **changes)))


def one_case_with(**changes: object) -> tuple[BenchCase, ...]:
    """Return the cases of the good run, the first of which is another."""
    first, *rest = started(20).cases
    return (first.model_copy(update=changes), *rest)


def looked(*others: Look, **changes: object) -> Evidence:
    return evidence(good(), other_looks=others, **changes)


AGAINST: dict[str, tuple[Callable[[], Evidence], set[str]]] = {
    "all units failed": (
        lambda: evidence(report(20, 0)),
        {"min_cases", "certified_bound", "bca_bound", "mean_score"},
    ),
    "all units are half right": (
        lambda: evidence(scored([BenchScore(passed=False, score=0.5)] * 20)),
        {"min_cases", "certified_bound", "bca_bound", "mean_score"},
    ),
    "all units passed and are half right": (
        lambda: evidence(scored([BenchScore(passed=True, score=0.5)] * 20)),
        {"mean_score"},
    ),
    "all units passed with half a score or less": (
        lambda: evidence(
            scored([BenchScore(passed=True, score=0.5)] * 19 + [BenchScore(passed=True, score=0.25)])
        ),
        {"bca_bound"},
    ),
    "one unit too many failed": (lambda: evidence(report(20, 18)), {"certified_bound", "bca_bound"}),
    "only some cases were run": (partial, {"partial"}),
    "only some cases were run, and one has changed": (
        lambda: replace(partial(), bench=bench(started(20, cases=one_case_with(digest="9" * 64)))),
        {"partial", "bench_changed"},
    ),
    "it was an agent of the harness": (lambda: evidence(good(sut_boundary="harness")), {"no_agent"}),
    "it was a replay": (
        lambda: evidence(good(sut_boundary="harness", sut=SutIdentity(spec=REPLAY))),
        {"no_agent"},
    ),
    "it was a replay that claims the box of its original": (
        lambda: evidence(good(sut_boundary="namespace", sut=SutIdentity(spec=REPLAY))),
        {"no_agent"},
    ),
    "a run was given up": (lambda: evidence(good(), abandoned_runs=("gone",)), {"abandoned_run"}),
    "a case was not measured": (incomplete, {"incomplete"}),
    "the agent ran in our process": (lambda: evidence(good(sut_boundary="in-process")), {"in_process"}),
    "the run had no policy": (policy_less, {"no_policy"}),
    "the policy changed": (
        lambda: evidence(good(policy_digest="9" * 64), started=started(20, policy_digest="9" * 64)),
        {"policy_changed"},
    ),
    "the isolation was too weak": (lambda: evidence(good(isolation_class="subprocess")), {"isolation"}),
    "a probe of the isolation is missing": (
        lambda: evidence(good(), started=started(20, isolation=proof(missing="tcp-connect"))),
        {"unproved_isolation"},
    ),
    "another isolation was proved": (
        lambda: evidence(good(), started=started(20, isolation=proof("landlock"))),
        {"unproved_isolation"},
    ),
    "the agent was asked in another isolation only": (
        lambda: looked(look(good(isolation_class="landlock")), look=look(good(), reused=20)),
        {"reused"},
    ),
    "a look in another isolation fell short": (
        lambda: looked(look(report(20, 10, run_id="bad", isolation_class="subprocess"))),
        {"other_look"},
    ),
    "too few cases were held out": (
        lambda: evidence(good(), started=started(20, cases=cases(4) + cases(20, "rag-corpus-derived")[4:])),
        {"held_out"},
    ),
    "it was measured too long ago": (lambda: evidence(good(started_at=NOW - 91 * DAY)), {"too_old"}),
    "it comes from the future": (lambda: evidence(good(ended_at=NOW + 2 * DAY)), {"future"}),
    "it comes from the end of time": (
        lambda: evidence(good(ended_at=dt.datetime.max.replace(tzinfo=dt.UTC))),
        {"future"},
    ),
    "the cases changed": (lambda: other_rules(cases=one_case_with(digest="9" * 64)), {"bench_changed"}),
    "a case belongs to another family": (
        lambda: other_rules(cases=one_case_with(family="the-one")),
        {"bench_changed"},
    ),
    "a failure has another severity": (
        lambda: other_rules(
            severities={**dict.fromkeys(RUNNER_CODES, Severity.BLOCK), "answer.wrong": Severity.INFO}
        ),
        {"bench_changed"},
    ),
    "another key is declared": (lambda: other_rules(breakdown_keys=("charm",)), {"bench_changed"}),
    "the rubric changed": (lambda: other_rules(rubric_digest="9" * 64), {"bench_changed"}),
    "the taxonomy changed": (lambda: other_rules(taxonomy_digest="9" * 64), {"bench_changed"}),
    "the bench now asks for more": (
        lambda: other_rules(min_cases_for_promotion={"silver": 19}),
        {"bench_changed"},
    ),
    "there is no bench": (lambda: evidence(good(), bench=None), {"bench_missing"}),
    "the bench does not know the tier": (
        lambda: evidence(good(), started=started(20, min_cases_for_promotion={"bronze": 1})),
        {"tier_not_declared"},
    ),
    "the bench knows no tier": (
        lambda: evidence(good(), started=started(20, min_cases_for_promotion={})),
        {"tier_not_declared"},
    ),
    "too few cases passed for the bench": (
        lambda: evidence(good(), started=started(20, min_cases_for_promotion={"silver": 21})),
        {"min_cases"},
    ),
    "a start has not finished": (lambda: evidence(good(), unfinished_runs=1), {"unfinished_runs"}),
    "a resumed run had lost a trial": (lambda: evidence(good(), lost_trials=1), {"lost_trials"}),
    "another look fell short": (lambda: looked(look(report(20, 10, run_id="bad"))), {"other_look"}),
    "one of many looks fell short": (
        lambda: looked(*[look(good())] * 30, look(report(20, 18, run_id="bad"))),
        {"other_look"},
    ),
    "outputs come from a store": (lambda: evidence(good(), look=look(good(), reused=1)), {"reused"}),
    "outputs of every look come from a store": (
        lambda: looked(look(good(), reused=3), look=look(good(), reused=20)),
        {"reused"},
    ),
    "a store made an old measurement look young": (
        lambda: looked(look(good(started_at=NOW - 91 * DAY)), look=look(good(), reused=20)),
        {"too_old"},
    ),
    "more units passed than there are": (
        lambda: evidence(good(units_passed=21)),
        {"inconsistent", "certified_bound"},
    ),
    "fewer than no units passed": (
        lambda: evidence(good(units_passed=-1)),
        {"inconsistent", "certified_bound"},
    ),
    "more units than any bench holds": (
        lambda: evidence(good(units=10**18, units_passed=10**18)),
        {"inconsistent", "certified_bound"},
    ),
}


def test_good_evidence_is_sufficient_and_nothing_speaks_against_it() -> None:
    for units, passed, tier in ((5, 5, "bronze"), (14, 14, "silver"), (29, 29, "gold"), (59, 59, "platinum")):
        verdict = judged(evidence(report(units, passed)), tier)

        assert (verdict.verdict, verdict.reasons) == ("sufficient", ())


@pytest.mark.parametrize("name", AGAINST)
def test_what_speaks_against_promotion_is_insufficient_for_its_own_reason(name: str) -> None:
    make, expected = AGAINST[name]
    verdict = judged(make())

    assert verdict.verdict == "insufficient"
    assert codes(verdict) == expected
    assert all(re.fullmatch(r"[a-z_]+: [^\n]+", str(reason)) for reason in verdict.reasons)


def test_every_reason_has_a_case_of_its_own() -> None:
    alone = {next(iter(expected)) for _, expected in AGAINST.values() if len(expected) == 1}

    assert alone == {
        "abandoned_run",
        "no_agent",
        "bca_bound",
        "bench_changed",
        "bench_missing",
        "future",
        "held_out",
        "in_process",
        "incomplete",
        "isolation",
        "lost_trials",
        "mean_score",
        "min_cases",
        "no_policy",
        "other_look",
        "partial",
        "policy_changed",
        "reused",
        "tier_not_declared",
        "too_old",
        "unfinished_runs",
        "unproved_isolation",
    }


def test_a_number_that_is_none_is_left_out_of_a_reason_and_the_rest_stands() -> None:
    assert dict(reason("bca_bound", "it is below", lower=NAN, upper=math.inf, threshold=0.5).numbers) == {
        "threshold": 0.5
    }


def test_reasons_do_not_hide_each_other() -> None:
    worst = report(20, 0, complete=False, isolation_class="subprocess")
    broken = Evidence(
        started=started(20, policy_digest=None, cases=cases(20, "rag-corpus-derived")),
        report=worst,
        look=look(worst, reused=20),
        other_looks=(look(report(20, 1), reused=1),),
        unfinished_runs=3,
        bench=None,
    )

    assert codes(judged(broken)) == {
        "incomplete",
        "no_policy",
        "unproved_isolation",
        "unfinished_runs",
        "bench_missing",
        "reused",
        "isolation",
        "held_out",
        "min_cases",
        "certified_bound",
        "bca_bound",
        "mean_score",
        "other_look",
    }


def test_an_unknown_tier_is_insufficient_by_name() -> None:
    for tier in ("iron", "", "silver ", "SILVER"):
        verdict = judged(evidence(good()), tier)

        assert verdict.verdict == "insufficient"
        assert codes(verdict) == {"unknown_tier"}
        assert verdict.threshold is None


# Too few units.


def test_three_perfect_units_are_inconclusive_and_the_verdict_says_how_many_are_needed() -> None:
    verdict = judged(evidence(report(3, 3), started=started(3)), "bronze")

    assert verdict.verdict == "inconclusive"
    assert codes(verdict) == {"too_few_units", "certified_bound", "bca_bound"}
    assert verdict.units_needed == 5
    assert verdict.certified_lower == pytest.approx(0.05 ** (1 / 3))


@pytest.mark.parametrize(("tier", "needed"), [("bronze", 5), ("silver", 14), ("gold", 29), ("platinum", 59)])
def test_one_unit_fewer_than_needed_is_inconclusive_and_one_miss_is_insufficient(
    tier: str, needed: int
) -> None:
    short = judged(evidence(report(needed - 1, needed - 1)), tier)
    missed = judged(evidence(report(needed, needed - 1)), tier)

    assert short.units_needed == needed
    assert codes(short) <= {"too_few_units", "certified_bound", "bca_bound", "held_out"}
    assert (short.verdict == "inconclusive") == ("held_out" not in codes(short))
    assert judged(evidence(report(needed, needed)), tier).verdict == "sufficient"
    assert missed.verdict == "insufficient"
    assert "too_few_units" not in codes(missed)


def test_too_few_units_do_not_excuse_anything_else() -> None:
    few = report(10, 10)

    assert judged(evidence(few)).verdict == "inconclusive"
    assert judged(evidence(few, other_looks=(look(few),))).verdict == "inconclusive"
    assert judged(evidence(few, unfinished_runs=1)).verdict == "insufficient"
    assert judged(evidence(few, look=look(few, reused=1))).verdict == "insufficient"
    assert judged(evidence(report(10, 10, sut_boundary="in-process"))).verdict == "insufficient"


def test_a_lax_alpha_does_not_lower_the_number_of_units_below_what_the_headline_bound_needs() -> None:
    policy = read_policy(b"thresholds: {silver: 0.8}\nalpha: 0.2\n", "the policy")

    def verdict(units: int, passed: int) -> str:
        start = started(units, policy_digest=policy.digest)
        return judged(evidence(report(units, passed), started=start), "silver", policy).verdict

    assert [verdict(13, 13), verdict(14, 14), verdict(20, 18)] == [
        "inconclusive",
        "sufficient",
        "insufficient",
    ]
    assert verdict(40, 36) == "sufficient"
    assert judged(evidence(report(40, 36))).verdict == "insufficient"


def test_few_units_that_all_score_alike_and_low_are_insufficient() -> None:
    low = judged(evidence(scored([BenchScore(passed=True, score=0.4)] * 3)), "bronze")
    enough = judged(evidence(scored([BenchScore(passed=True, score=0.5)] * 3)), "bronze")

    # Nothing else speaks against either, so the low mean alone makes the difference.
    assert codes(low) == {"too_few_units", "certified_bound", "bca_bound", "mean_score"}
    assert codes(enough) == codes(low) - {"mean_score"}
    assert (low.verdict, enough.verdict) == ("insufficient", "inconclusive")


def test_a_threshold_of_one_is_certified_by_nothing() -> None:
    policy = read_policy(b"thresholds: {sure: 1}", "the policy")
    of = evidence(
        report(1000, 1000, policy_digest=policy.digest),
        started=started(1000, policy_digest=policy.digest, min_cases_for_promotion={"sure": 1}),
    )
    verdict = judged(of, "sure", policy)

    assert verdict.verdict == "inconclusive"
    assert verdict.units_needed is None
    assert any("a bench cannot hold enough units" in reason.text for reason in verdict.reasons)


@pytest.mark.parametrize("threshold", [0.99999999999999, 1 - 1e-16, 1.0, 0.99998])
def test_a_threshold_beyond_every_bench_needs_no_time(threshold: float) -> None:
    assert units_needed(threshold, 0.05) is None


def test_what_is_needed_is_the_smallest_number_that_can_pass() -> None:
    assert [units_needed(t, 0.05) for t in (1e-18, 0.05, 0.5, 0.8, 0.9, 0.95, 0.9999)] == [
        1,
        1,
        5,
        14,
        29,
        59,
        29956,
    ]
    assert units_needed(0.5, 0.0625) == 4
    assert units_needed(0.8, 1e-18) == 186


# Looks and freshness.


def test_looks_are_counted_with_those_that_did_not_finish() -> None:
    verdict = judged(evidence(good(), other_looks=(look(good()), look(good())), unfinished_runs=2))

    assert (verdict.looks, verdict.unfinished_runs) == (5, 2)


def test_runs_elsewhere_and_resumptions_are_told_and_do_not_decide() -> None:
    verdict = judged(evidence(good(), runs_elsewhere=7, resumed=3))

    assert (verdict.verdict, verdict.runs_elsewhere, verdict.resumed) == ("sufficient", 7, 3)
    lines = render_verdict(verdict)
    assert "  resumed 3 times; trials that were under way were asked for again" in lines
    assert "  not counted: 7 runs of this class by other candidates, or on other cases or rubrics" in lines


def test_a_run_from_the_store_stands_on_a_whole_measurement_that_is_young_enough() -> None:
    warm = look(good(run_id="warm"), reused=20)

    assert judged(looked(look(good()), look=warm)).verdict == "sufficient"
    assert judged(looked(look(good(started_at=NOW - 90 * DAY)), look=warm)).verdict == "sufficient"


def test_the_harness_own_agents_answer_alike_whenever_they_are_asked_and_are_no_agents() -> None:
    oracle = good(sut_boundary="harness")

    assert codes(judged(evidence(oracle, look=look(oracle, reused=20)))) == {"no_agent"}


# What was asked twice, what was given up, and what a human waives.


def waived(*runs: str) -> TierPolicy:
    waivers = "".join(
        f"  - {{refund: {run}, by: J. Doe, on: 2026-11-15, because: the power failed}}\n" for run in runs
    )
    tiers = "thresholds: {bronze: 0.5, silver: 0.8, gold: 0.9, platinum: 0.95}\n"
    return read_policy(f"{tiers}waivers:\n{waivers}".encode(), "the policy")


def torn(units: int, **changes: object) -> Look:
    """Return a perfect look of 20 units, so many of which were asked twice."""
    return replace(
        look(good(**changes)),
        interrupted_units=units,
        interrupted_units_passed=units,
        interrupted_cases_passed=units,
    )


def test_a_unit_that_was_asked_twice_has_not_passed_and_the_verdict_says_of_which_run() -> None:
    verdict = judged(evidence(good(), look=torn(2)))

    assert codes(verdict) == {"certified_bound"}
    assert dict(verdict.interrupted_units) == {"chosen": 2}
    assert verdict.certified_lower == clopper_pearson_lower(18, 20)
    told = "  2 units of run chosen asked again after a try without an outcome: not passed"
    assert told in render_verdict(verdict)


def test_a_unit_of_another_look_that_was_asked_twice_has_not_passed_either() -> None:
    verdict = judged(looked(torn(2, run_id="other")))

    assert codes(verdict) == {"other_look"}
    assert dict(verdict.interrupted_units) == {"other": 2}


def test_cases_of_a_unit_that_was_asked_twice_do_not_count_for_the_minimum_of_the_bench() -> None:
    start = started(20, min_cases_for_promotion={"bronze": 20})

    assert codes(judged(evidence(good(), started=start, look=torn(1)), "bronze")) == {"min_cases"}


def test_a_waiver_by_the_name_of_the_run_gives_them_back_and_is_printed() -> None:
    policy = waived("chosen", "unrelated")
    verdict = judged(evidence(good(), look=torn(2)), policy=policy)

    assert policy.digest == POLICY.digest
    assert verdict.verdict == "sufficient"
    assert [waiver.refund for waiver in verdict.waivers] == ["chosen"]
    assert verdict.model_dump(mode="json")["waivers"][0]["on"] == "2026-11-15"
    assert "  waived for run chosen by J. Doe on 2026-11-15: the power failed" in render_verdict(verdict)
    assert codes(judged(evidence(good(), look=torn(2)), policy=waived("unrelated"))) == {"certified_bound"}


def test_a_run_that_was_given_up_is_a_failed_look_unless_a_human_waives_it() -> None:
    of = evidence(good(), abandoned_runs=("gone",))
    verdict, spared = judged(of), judged(of, policy=waived("gone"))

    assert (codes(verdict), verdict.looks, verdict.abandoned_runs) == ({"abandoned_run"}, 2, 1)
    assert (spared.verdict, spared.looks) == ("sufficient", 2)
    assert [waiver.refund for waiver in spared.waivers] == ["gone"]


def test_a_waiver_does_not_spare_a_look_that_fell_short_by_itself() -> None:
    verdict = judged(looked(look(report(20, 10, run_id="bad"))), policy=waived("bad"))

    assert (codes(verdict), verdict.waivers) == ({"other_look"}, ())


# Whose verdict, and what it claims.


def test_a_verdict_names_agent_version_identity_and_run() -> None:
    verdict = judged(evidence(good()))

    assert (verdict.sut, verdict.sut_version, verdict.run_id) == ("python:agent:solve", "1", "chosen")
    assert verdict.sut_identity_digest == identity_digest(SUT)
    assert f"  agent python:agent:solve, version 1, identity {identity_digest(SUT)[:12]}" in render_verdict(
        verdict
    )


@pytest.mark.parametrize("tried", [{"candidates_tried": 2}, {"runs_elsewhere": 1}])
def test_where_others_were_tried_no_rate_is_claimed(tried: dict[str, int]) -> None:
    alone = "\n".join(render_verdict(judged(evidence(good()))))
    among = "\n".join(render_verdict(judged(evidence(good(), **tried))))

    assert "at most 5 % of the time" in alone
    assert "5 %" not in among
    assert "no rate is claimed" in among


def test_above_the_first_tier_the_verifier_is_asked_to_let_the_rubrics_judge_again() -> None:
    first, second = judged(evidence(good()), "bronze"), judged(evidence(good()))

    assert (first.notes, len(second.notes)) == ((), 1)
    assert "codegenie eval verify --rescore" in second.notes[0]
    assert f"  {second.notes[0]}" in render_verdict(second)
    assert second.verdict == "sufficient"


def test_a_system_of_an_unknown_kind_is_no_evidence_of_a_process() -> None:
    stranger = SUT.model_copy(update={"spec": "my-runner"})

    assert codes(judged(evidence(good(sut=stranger)))) == {"in_process"}


def test_a_look_by_a_clock_that_was_ahead_does_not_bar_until_then() -> None:
    ahead = look(good(run_id="ahead", started_at=NOW + 9_999 * DAY, ended_at=NOW + 9_999 * DAY))

    assert judged(looked(ahead)).verdict == "sufficient"
    assert codes(judged(looked(look(good()), look=ahead))) == {"future"}
    assert codes(judged(looked(ahead, look=look(good(), reused=20)))) == {"future"}


def test_a_bound_below_the_threshold_is_never_shown_as_the_threshold() -> None:
    fields = good().__dict__ | {"lower_bound_95": 0.4999999999995}
    verdict = judged(evidence(good(), report=BenchRunReport.model_construct(**fields)), "bronze")

    (only,) = verdict.reasons
    assert str(only) == "bca_bound: BCa lower bound 0.499 is below 0.5"
    assert only.numbers["lower_bound_95"] < only.numbers["threshold"] == 0.5, "and not rounded"


def test_a_clock_that_is_a_day_ahead_is_no_reason() -> None:
    assert judged(evidence(good(ended_at=NOW + DAY))).verdict == "sufficient"
    assert judged(evidence(good(started_at=NOW - 90 * DAY))).verdict == "sufficient"


# What is no number.


def test_a_threshold_that_is_no_number_passes_nothing() -> None:
    for threshold in (NAN, float("inf"), float("-inf"), -1.0, 0.0, 1.5):
        fields = POLICY.model_dump() | {"thresholds": {"silver": threshold}}
        verdict = judged(evidence(good()), "silver", TierPolicy.model_construct(**fields))

        assert verdict.verdict == "insufficient"
        assert codes(verdict) == {"bad_threshold"}
        assert verdict.threshold is None


def test_a_bound_that_is_no_number_passes_nothing() -> None:
    for bound in (NAN, float("-inf")):
        fields = good().__dict__ | {"lower_bound_95": bound}
        of = BenchRunReport.model_construct(**fields)
        verdict = judged(evidence(good(), report=of))

        assert verdict.verdict == "insufficient"
        assert codes(verdict) == {"bca_bound"}


def test_an_alpha_that_is_no_number_judges_nothing() -> None:
    fields = POLICY.model_dump() | {"alpha": NAN}

    with pytest.raises(ValueError, match="alpha"):
        judged(evidence(good()), "silver", TierPolicy.model_construct(**fields))


# What the gate does not do.


def test_a_bare_report_is_never_sufficient_and_an_incomplete_one_is_refused() -> None:
    gate = PromotionGate(POLICY)
    verdict = gate.evaluate_report(report(1000, 1000), "bronze")

    assert verdict.verdict == "insufficient"
    assert codes(verdict) == {"not_from_the_log"}
    with pytest.raises(IncompleteReportForPromotion) as caught:
        gate.evaluate_report(report(1000, 1000, complete=False), "bronze")
    assert caught.value.exit_code == 4


def test_the_gate_never_promotes() -> None:
    with pytest.raises(PromotionMustBeHumanAuthorized) as caught:
        PromotionGate(POLICY).apply()

    assert isinstance(caught.value, EvalError)
    assert caught.value.exit_code == 1
    assert "current_tiers" in str(caught.value)


def test_judging_changes_nothing_and_says_the_same_again() -> None:
    of = evidence(good(), other_looks=(look(report(20, 3)),))

    assert judged(of) == judged(of)
    assert judged(of).model_dump_json() == judged(of).model_dump_json()


@pytest.mark.parametrize(("isolation_class", "against"), [("subprocess", True), ("landlock", False)])
def test_code_of_an_agent_that_was_executed_unconfined_is_not_evidence(
    isolation_class: IsolationClass, against: bool
) -> None:
    step = {"kind": "program", "name": "cli", "argv": ["python3", "main.py"]}
    plain = started(30, isolation=proof(isolation_class))
    with_steps = plain.model_copy(
        update={"cases": tuple(BenchCase(**{**dict(case), "execute": [step]}) for case in plain.cases)}
    )
    ran = report(30, 30, isolation_class=isolation_class)

    assert ("unconfined_execution" in codes(judged(evidence(ran, started=with_steps)))) is against
    assert "unconfined_execution" not in codes(judged(evidence(ran, started=plain)))
