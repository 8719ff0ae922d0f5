"""What holds for the estimators whatever the data."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from statistics import NormalDist

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from codegenie.eval.estimators.bounds import (
    MICRO,
    _gaffke_by_bisection,
    _gaffke_p,
    bca_lower,
    clopper_pearson_lower,
    gaffke_lower,
)
from codegenie.eval.estimators.resampling import exact_law

GRID = 2.0**-39  # two steps of the grid that the Gaffke bound is rounded down to

shares = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0.0, 1.0))
scores_lists = st.lists(shares, min_size=1, max_size=12)
alphas = st.sampled_from([0.2, 0.05, 0.04, 0.01, 1e-4])
micro_lists = st.one_of(
    st.lists(st.sampled_from([0, 500_000, MICRO]), min_size=2, max_size=30),
    st.lists(st.integers(0, 20).map(lambda step: step * 50_000), min_size=2, max_size=30),
    st.lists(st.integers(0, MICRO), min_size=2, max_size=7),
)
quick = settings(deadline=None, max_examples=60, derandomize=True)


def test_gaffke_without_its_short_cut_is_clopper_pearson_on_every_small_binary_sample() -> None:
    for units in range(1, 31):
        for passed in range(units + 1):
            ordered = [0.0] * (units - passed) + [1.0] * passed
            expected = clopper_pearson_lower(passed, units)
            assert _gaffke_by_bisection(ordered, 0.05) == pytest.approx(expected, abs=1e-9)
            assert gaffke_lower(ordered) == expected


@quick
@given(st.integers(1, 60), alphas)
def test_perfect_scores_give_the_root_of_alpha(units: int, alpha: float) -> None:
    assert gaffke_lower([1.0] * units, alpha) == alpha ** (1 / units)
    assert _gaffke_by_bisection([1.0] * units, alpha) == pytest.approx(alpha ** (1 / units), abs=GRID)


@quick
@given(shares, alphas)
def test_one_score_gives_markovs_bound(score: float, alpha: float) -> None:
    assert gaffke_lower([score], alpha) == pytest.approx(alpha * score, abs=GRID)


@quick
@given(scores_lists, st.randoms(use_true_random=False))
def test_gaffke_is_bit_identical_in_any_order(scores: list[float], order: random.Random) -> None:
    shuffled = order.sample(scores, k=len(scores))

    assert gaffke_lower(shuffled).hex() == gaffke_lower(scores).hex()


@quick
@given(scores_lists, alphas)
def test_gaffke_is_never_above_the_mean_nor_above_what_perfect_scores_certify(
    scores: list[float], alpha: float
) -> None:
    bound = gaffke_lower(scores, alpha)

    assert 0.0 <= bound <= math.fsum(scores) / len(scores) + GRID
    assert bound <= alpha ** (1 / len(scores)) + GRID


@quick
@given(scores_lists, shares, st.integers(0, 11))
def test_raising_a_score_never_lowers_the_gaffke_bound(scores: list[float], other: float, at: int) -> None:
    at %= len(scores)
    low, high = sorted((scores[at], other))

    before = gaffke_lower([*scores[:at], low, *scores[at + 1 :]])
    after = gaffke_lower([*scores[:at], high, *scores[at + 1 :]])

    assert after >= before - GRID


@quick
@given(scores_lists)
def test_a_smaller_error_rate_never_raises_a_bound(scores: list[float]) -> None:
    passed = sum(score >= 0.5 for score in scores)
    for stricter, looser in itertools.pairwise((1e-6, 0.01, 0.04, 0.05, 0.2, 0.5)):
        assert gaffke_lower(scores, stricter) <= gaffke_lower(scores, looser)
        assert clopper_pearson_lower(passed, len(scores), stricter) <= clopper_pearson_lower(
            passed, len(scores), looser
        )


@quick
@given(scores_lists, alphas)
def test_the_gaffke_bound_is_the_last_point_of_its_grid_that_is_rejected(
    scores: list[float], alpha: float
) -> None:
    assume(any(scores))
    ordered = sorted(scores)

    bound = _gaffke_by_bisection(ordered, alpha)

    assert _gaffke_p(ordered, bound) <= alpha < _gaffke_p(ordered, bound + 2.0**-40)


@quick
@given(scores_lists)
def test_halving_every_score_halves_the_gaffke_bound(scores: list[float]) -> None:
    assert gaffke_lower([score / 2 for score in scores]) == pytest.approx(gaffke_lower(scores) / 2, abs=GRID)


@quick
@given(st.integers(1, 400), st.integers(0, 400), alphas)
def test_one_more_pass_raises_and_one_more_failure_lowers_what_is_certified(
    units: int, passed: int, alpha: float
) -> None:
    assume(passed <= units)

    bound = clopper_pearson_lower(passed, units, alpha)

    assert 0.0 <= bound <= passed / units
    assert clopper_pearson_lower(passed + 1, units + 1, alpha) > bound
    assert clopper_pearson_lower(passed, units + 1, alpha) <= bound


@quick
@given(micro_lists, st.randoms(use_true_random=False))
def test_bca_does_not_depend_on_order(scores: list[int], order: random.Random) -> None:
    assert bca_lower(order.sample(scores, k=len(scores))) == bca_lower(scores)


@quick
@given(micro_lists, alphas)
def test_bca_lies_between_the_lowest_score_and_the_mean(scores: list[int], alpha: float) -> None:
    bound = bca_lower(scores, alpha)

    if len(set(scores)) == 1:
        assert bound is None
    else:
        assert bound is not None
        assert min(scores) / MICRO <= bound.value <= sum(scores) / len(scores) / MICRO


@settings(deadline=None, max_examples=6, derandomize=True)
@given(st.lists(st.integers(0, MICRO), min_size=20, max_size=60, unique=True), alphas)
def test_drawn_bounds_repeat_and_stay_in_range(scores: list[int], alpha: float) -> None:
    bound = bca_lower(scores, alpha)

    assert bound is not None
    assert bound == bca_lower(sorted(scores, reverse=True), alpha)
    assert min(scores) / MICRO <= bound.value <= sum(scores) / len(scores) / MICRO


@quick
@given(
    st.lists(st.one_of(st.sampled_from([0, MICRO]), st.integers(0, MICRO)), min_size=2, max_size=6), alphas
)
def test_the_exact_bound_is_the_one_that_enumerating_every_resample_gives(
    scores: list[int], alpha: float
) -> None:
    assume(len(set(scores)) > 1)
    counts = Counter(sum(resample) for resample in itertools.product(scores, repeat=len(scores)))
    everything = len(scores) ** len(scores)
    observed = sum(scores)
    cumulative = {
        total: Fraction(sum(c for t, c in counts.items() if t <= total), everything) for total in counts
    }

    law = exact_law(sorted(scores))
    bound = bca_lower(scores, alpha)

    assert law is not None
    assert list(law.sums) == sorted(total for total in counts if total <= observed)
    assert law.cumulative == pytest.approx([float(cumulative[total]) for total in law.sums], rel=1e-12)
    level = _level_by_the_book(
        scores, float(cumulative[observed] - Fraction(counts[observed], 2 * everything)), alpha
    )
    # A level within rounding of a step may be read on either side of the step.
    assume(all(abs(float(step) - level) > 1e-9 for step in cumulative.values()))
    expected = min(observed, *(total for total in counts if cumulative[total] >= level))
    assert bound is not None
    assert bound.value == pytest.approx(expected / len(scores) / MICRO, abs=1e-12)


def _level_by_the_book(scores: list[int], centre: float, alpha: float) -> float:
    normal = NormalDist()
    mean = sum(scores) / len(scores)
    left_out = [(sum(scores) - score) / (len(scores) - 1) for score in scores]  # the jackknife itself
    influence = [mean - value for value in left_out]
    acceleration = math.fsum(i**3 for i in influence) / (6 * math.fsum(i**2 for i in influence) ** 1.5)
    bias = normal.inv_cdf(centre)
    shifted = bias + normal.inv_cdf(alpha)
    return normal.cdf(bias + shifted / (1 - acceleration * shifted))


@quick
@given(st.lists(st.integers(0, 10), min_size=2, max_size=20), st.integers(0, 50), st.integers(1, 5))
def test_bca_moves_with_the_scale_on_which_scores_are_written(
    steps: list[int], offset: int, width: int
) -> None:
    assume(len(set(steps)) > 1)

    plain = bca_lower(steps)
    moved = bca_lower([offset + width * step for step in steps])

    assert plain is not None
    assert moved is not None
    assert moved.value == pytest.approx((offset + width * plain.value * MICRO) / MICRO, abs=1e-12)
