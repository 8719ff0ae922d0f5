"""What the trials of a run used together: the sums, and the lines of a report that show them."""

import itertools

import pytest

from codegenie.eval.accounting import Totals
from codegenie.eval.aggregation import combine_trials, steadiness
from codegenie.eval.evidence import Answer, Attempt, TrialEvidence, Usage, score_of
from codegenie.eval.models import BenchScore
from codegenie.eval.reporting.run_text import render_report, steadiness_document
from codegenie.eval.reporting.usage_text import render_totals
from codegenie.eval.wording import duration, short_count
from tests.support.gate import scored

UNKNOWN = {
    "input_tokens": None,
    "cached_tokens": None,
    "output_tokens": None,
    "requests": None,
    "models": None,
    "provider_wait_ms": None,
    "attempts": None,
    "void_attempts": None,
}


def a_trial(case_id: str = "c01", **account: object) -> TrialEvidence:
    plain = {
        "case_id": case_id,
        "trial": 0,
        "answer": Answer(passed=True, score=1.0),
        "cost_usd": None,
        "wall_clock_ms": 9,
    }
    return TrialEvidence.model_validate({**plain, **account})


def used(tokens: int | None, *models: str, **more: object) -> Usage:
    counts = {"input_tokens": tokens, "cached_tokens": 1, "output_tokens": 2, "requests": 3}
    return Usage.model_validate({"counted_by": "broker", "models": models, **counts, **more})


def lines(*trials: TrialEvidence, trials_per_case: int = 1) -> list[str]:
    return list(render_totals(Totals.of(trials), trials_per_case))


def test_trials_without_a_box_use_nothing_that_is_known() -> None:
    totals = Totals.of([a_trial(), a_trial("c02", wall_clock_ms=30)])

    assert totals.usage() == UNKNOWN
    assert totals.durations() == {"sum_ms": 39, "longest_ms": 30}
    assert lines(a_trial()) == []
    assert Totals().usage() == UNKNOWN


def test_what_every_trial_used_is_added_up_in_any_order() -> None:
    attempts = (Attempt(n=1, cause="no box", wall_ms=4, provider_wait_ms=5), Attempt(n=2, wall_ms=6))
    trials = [
        a_trial("c01", usage=used(10, "b", "a"), attempts=attempts),
        a_trial("c02", usage=used(20, "c"), attempts=attempts[1:]),
        a_trial("c03", usage=used(30), attempts=attempts),
    ]
    sums = [Totals.of(order).usage() for order in itertools.permutations(trials)]
    texts = [lines(*order) for order in itertools.permutations(trials)]

    assert sums[0] == {
        "input_tokens": 60,
        "cached_tokens": 3,
        "output_tokens": 6,
        "requests": 9,
        "models": ["a", "b", "c"],
        "provider_wait_ms": 10,
        "attempts": 5,
        "void_attempts": 2,
    }
    assert all(one == sums[0] for one in sums)
    assert all(text == texts[0] for text in texts)
    assert texts[0] == [
        "tokens           60 in (3 cached) · 6 out · 9 requests · a, b, c (counted by the broker)",
        "attempts         5 for 3 cases: c01 void (no box), c03 void (no box)",
    ]


@pytest.mark.parametrize("other", [a_trial("c02"), a_trial("c02", usage=used(None))])
def test_a_number_that_is_unknown_for_one_trial_is_unknown_for_the_run(other: TrialEvidence) -> None:
    known = a_trial(usage=used(1_234))

    assert Totals.of([known, other]).usage()["input_tokens"] is None
    assert "tokens           at least 1,234 in" in lines(known, other)[0]
    assert lines(other)[:1] == [] or "unknown in" in lines(other)[0]


def test_a_number_that_was_stated_is_not_shown_as_one_that_was_counted() -> None:
    stated = a_trial("c02", usage=used(5, counted_by="agent"))

    assert lines(stated)[0].endswith("(stated by the agent)")
    assert lines(stated, a_trial(usage=used(5)))[0].endswith(
        "(partly counted by the broker, partly stated by the agent)"
    )


def test_a_long_list_of_void_attempts_is_cut_and_counted() -> None:
    void = (Attempt(n=1, cause="no box", wall_ms=4),)
    (line,) = lines(*(a_trial(f"c{n}", attempts=void) for n in range(7)), trials_per_case=2)

    assert line.startswith("attempts         7 for 7 trials: c0#0 void (no box), ")
    assert line.endswith("c4#0 void (no box) and 2 more")


def trials_of(*scores: float) -> BenchScore:
    answers = [Answer(passed=score == 1.0, score=score) for score in scores]
    return combine_trials([score_of(a_trial(answer=answer)) for answer in answers])


def test_the_steadiness_is_the_share_of_cases_that_always_pass_and_the_mean_spread() -> None:
    share, spread = steadiness((("a", trials_of(1.0, 1.0, 1.0)), ("b", trials_of(1.0, 0.0, 0.5))))

    assert share == 0.5
    assert spread == pytest.approx(0.25)


def test_the_report_and_its_document_say_how_steady_the_agent_is() -> None:
    # 7 of 12 cases pass all three trials. The deviation of 1, 1, 0 and of 1, 0, 0 is the root of a third,
    # that of 1, 0.5, 0 is 0.5: (4 * 0.577350 + 0.5) / 12 is 0.234117.
    unsteady = [(1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.5, 0.0)]
    cases = [trials_of(1.0, 1.0, 1.0)] * 7 + [trials_of(*scores) for scores in unsteady]
    report = scored(cases, trials=3)

    assert "pass^3           0.58 · per-case spread 0.23" in render_report(report)
    assert steadiness_document(report) == {
        "trials": 3,
        "share_passing_all": pytest.approx(7 / 12),
        "spread": pytest.approx(0.234117, abs=1e-6),
    }


def test_a_case_that_always_fails_is_steady_and_one_trial_says_nothing() -> None:
    always_wrong = scored([trials_of(0.0, 0.0)], trials=2)
    once = scored([BenchScore(passed=True, score=1.0)])

    assert steadiness_document(always_wrong) == {"trials": 2, "share_passing_all": 0.0, "spread": 0.0}
    assert steadiness_document(once) is None
    assert not [line for line in render_report(once) if line.startswith("pass^")]


@pytest.mark.parametrize("trials", [1, 2])
def test_attempts_are_shown_only_if_one_of_them_was_void(trials: int) -> None:
    good, void = Attempt(n=1, cause=None, wall_ms=4), Attempt(n=1, cause="no box", wall_ms=4)
    one, other = a_trial("c01", attempts=(good,)), a_trial("c02", attempts=(void,))

    assert lines(one, one, trials_per_case=trials) == []
    assert [line[:20] for line in lines(one, other, trials_per_case=trials)] == ["attempts         2 f"]
    assert Totals.of([one]).usage()["attempts"] == 1


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_999, "59.9 s"),
        (60_000, "1:00 min"),
        (125_900, "2:05 min"),
        (3_599_999, "59:59 min"),
        (3_600_000, "1:00:00 h"),
        (3_725_000, "1:02:05 h"),
    ],
)
def test_a_duration_is_written_in_the_unit_that_suits_it(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (12_399, "12.3k"), (999_999, "999.9k"), (4_500_000, "4.5M")],
)
def test_a_large_count_is_shortened_and_never_rounded_up(count: int, text: str) -> None:
    assert short_count(count) == text
