"""Golden values and edges of the estimators; the laws that hold for all data are in tests/laws."""

import functools
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from blake3 import blake3

from codegenie.eval.estimators.bounds import (
    MICRO,
    BcaBound,
    _bca_from_law,
    _bca_from_sums,
    _gaffke_p,
    bca_lower,
    clopper_pearson_lower,
    gaffke_lower,
)
from codegenie.eval.estimators.resampling import Law, exact_law, resampled_sums
from tests.support.sampling import sampled

EIGHTHS = [i / 8 for i in range(1, 8)]
SAMPLE_C = [0.75, 0.5, 1, 0.25, 0.875]
SAMPLE_E = [*([1.0] * 18), *EIGHTHS]
SAMPLE_F = [0.9137, 0.6421, 0.8873, 0.7719, 0.9549, 0.5387, 0.8011, 0.9983, 0.6907, 0.8461, 0.3593, 0.9271]
SAMPLE_B = [*([1.0] * 9), 0.0]


def micro(scores: Sequence[float]) -> list[int]:
    return sorted(round(score * MICRO) for score in scores)


def spread_scores(units: int, seed: int) -> list[int]:
    """Micro-scores without a common grid, which no exact law of this size can afford."""
    draw = random.Random(seed)  # noqa: S311 - test data
    return [draw.randint(0, MICRO) for _ in range(units)]


def exact_upper_tail(passed: int, units: int, share: float) -> Fraction:
    p = Fraction(share)
    return sum(
        (math.comb(units, j) * p**j * (1 - p) ** (units - j) for j in range(passed, units + 1)), Fraction(0)
    )


# Clopper-Pearson

certified = functools.cache(clopper_pearson_lower)


@pytest.mark.parametrize(
    ("passed", "units", "alpha", "expected"),
    [
        (9, 10, 0.05, 0.6058366975634952),
        (23, 25, 0.05, 0.7689600660418558),
        (45, 46, 0.05, 0.900975683180102),
        (50_000, 100_000, 0.05, 0.49739428226028354),
        (99_999, 100_000, 0.05, 0.9999525622428261),
        (1, 100_000, 0.05, 5.129328123254254e-07),
        (90_000, 100_000, 1e-6, 0.8954238721371616),
    ],
)
def test_clopper_pearson_agrees_with_the_beta_quantile(
    passed: int, units: int, alpha: float, expected: float
) -> None:
    assert clopper_pearson_lower(passed, units, alpha) == pytest.approx(expected, abs=1e-12)


def test_no_pass_certifies_nothing_and_neither_do_no_units() -> None:
    assert clopper_pearson_lower(0, 0) == 0.0
    assert clopper_pearson_lower(0, 1) == 0.0
    assert clopper_pearson_lower(0, 100_000) == 0.0


@pytest.mark.parametrize("units", [1, 2, 14, 29, 59, 100_000])
def test_units_without_a_failure_certify_the_root_of_alpha_and_never_one(units: int) -> None:
    assert clopper_pearson_lower(units, units) == 0.05 ** (1 / units) < 1.0


@pytest.mark.parametrize(
    ("threshold", "units_needed"),
    [(0.8, (14, 22, 30, 37, 44, 50)), (0.9, (29, 46, 61, 76, 89, 103)), (0.95, (59, 93, 124, 153, 181, 208))],
)
def test_the_units_needed_for_each_number_of_failures_are_the_textbook_ones(
    threshold: float, units_needed: tuple[int, ...]
) -> None:
    for failures, units in enumerate(units_needed):
        assert clopper_pearson_lower(units - failures, units) >= threshold
        assert clopper_pearson_lower(units - 1 - failures, units - 1) < threshold


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.5])
def test_the_clopper_pearson_bound_is_the_last_share_that_exact_arithmetic_rejects(alpha: float) -> None:
    for units in (2, 7, 30):
        for passed in range(1, units):
            bound = clopper_pearson_lower(passed, units, alpha)
            assert exact_upper_tail(passed, units, bound - 1e-12) <= alpha
            assert exact_upper_tail(passed, units, bound + 1e-12) > alpha


@pytest.mark.parametrize("threshold", sampled([0.5, 0.8, 0.9, 0.95], lambda threshold: threshold == 0.8))
def test_a_share_below_the_threshold_is_certified_in_at_most_five_percent_of_runs(threshold: float) -> None:
    shares = [threshold - 1e-9, *(threshold * step / 20 for step in range(1, 20))]
    for units in range(1, 61):
        passing = [k for k in range(units + 1) if certified(k, units) >= threshold]
        for share in shares if passing else ():
            wrong = math.fsum(math.comb(units, k) * share**k * (1 - share) ** (units - k) for k in passing)
            assert wrong <= 0.05


@pytest.mark.parametrize(("passed", "units"), [(-1, 3), (4, 3), (0, -1)])
def test_an_impossible_count_is_refused(passed: int, units: int) -> None:
    with pytest.raises(ValueError, match="cannot have passed"):
        clopper_pearson_lower(passed, units)


@pytest.mark.parametrize("alpha", [0.0, -0.05, 0.51, 1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "bound",
    [
        lambda alpha: clopper_pearson_lower(3, 4, alpha),
        lambda alpha: gaffke_lower([0.5, 1.0], alpha),
        lambda alpha: bca_lower([0, MICRO], alpha),
    ],
)
def test_an_error_rate_outside_zero_to_one_half_is_refused(
    bound: Callable[[float], object], alpha: float
) -> None:
    with pytest.raises(ValueError, match="alpha"):
        bound(alpha)


# Gaffke


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 1, 0.75, 0.5, 1, 0.875, 0.25, 1], 0.506809447887501),
        (SAMPLE_C, 0.333479645844290),
        (SAMPLE_E, 0.721371740655899),
        ([0.5, 0.5, 1], 0.232079441680639),
        ([*([1.0] * 20), *([0.5] * 5)], 0.774308701090080),
    ],
)
def test_the_gaffke_bound_has_its_golden_values(scores: list[float], expected: float) -> None:
    assert gaffke_lower(scores) == pytest.approx(expected, abs=1e-9)


def test_the_probability_behind_gaffkes_bound_is_exact_on_dyadic_scores() -> None:
    assert _gaffke_p([0.25, 0.75, 1.0, 1.0], 0.5) == pytest.approx(5 / 18, abs=1e-15)
    assert _gaffke_p([0.5, 0.5, 1.0], 0.5) == 0.5
    assert _gaffke_p([0.25, 0.5], 0.5) == 1.0


def test_no_units_and_nothing_but_zeros_give_a_gaffke_bound_of_zero() -> None:
    assert gaffke_lower([]) == 0.0
    assert gaffke_lower([0.0, 0.0, 0.0]) == 0.0


def test_equal_scores_are_not_taken_for_certainty() -> None:
    assert gaffke_lower([0.5] * 10) == pytest.approx(0.5 * 0.05 ** (1 / 10), abs=1e-11)


def test_a_negative_zero_is_an_ordinary_zero() -> None:
    assert gaffke_lower([-0.0, 0.5, 1.0]) == gaffke_lower([0.0, 0.5, 1.0])
    assert math.copysign(1.0, gaffke_lower([-0.0])) == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1 + 1e-12, -1e-300])
@pytest.mark.parametrize("others", [[], [0.5, 1.0], [0.0, 1.0]])
def test_a_score_outside_the_unit_interval_is_refused_wherever_it_stands(
    bad: float, others: list[float]
) -> None:
    for at in range(len(others) + 1):
        with pytest.raises(ValueError, match="outside"):
            gaffke_lower([*others[:at], bad, *others[at:]])


# BCa


@pytest.mark.parametrize(
    ("scores", "seed", "expected"),
    [
        (SAMPLE_C, 42, 0.425),
        (SAMPLE_E, 1, 0.745),
        (SAMPLE_F, 7, 0.6806648477566732),
        (SAMPLE_B, 0, 0.6),
    ],
    ids=["C", "E", "F", "B"],
)
def test_bca_from_given_resamples_agrees_with_scipy(scores: list[float], seed: int, expected: float) -> None:
    in_order = [round(score * MICRO) for score in scores]
    picks = np.random.default_rng(seed).integers(0, len(scores), (1000, len(scores)))
    sums = np.array(in_order)[picks].sum(axis=1).tolist()

    assert _bca_from_sums(sums, sorted(in_order), 0.05) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (SAMPLE_B, 0.6),
        ([*([1.0] * 23), 0.0, 0.0], 0.8),
        ([0.3, 0.8], 0.3),
        ([0.0, 1.0], 0.0),
        (SAMPLE_C, 0.45),
        (SAMPLE_E, 0.75),
    ],
)
def test_bca_from_the_exact_law_has_its_golden_values(scores: list[float], expected: float) -> None:
    assert bca_lower(micro(scores)) == BcaBound(expected, exact=True, resamples=0)


@pytest.mark.parametrize("scores", [[], [0], [MICRO], [0, 0], [MICRO] * 10, [333_333] * 1000])
def test_bca_is_undefined_without_spread(scores: list[int]) -> None:
    assert bca_lower(scores) is None


@pytest.mark.parametrize("bad", [-1, MICRO + 1])
def test_a_micro_score_outside_its_range_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        bca_lower([0, bad, MICRO])
    with pytest.raises(ValueError, match="outside"):
        bca_lower([bad])


def test_a_micro_score_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        bca_lower([0.5, 1.0])  # type: ignore[list-item]


def test_ten_arbitrary_scores_still_have_an_exact_law() -> None:
    bound = bca_lower(spread_scores(10, seed=1))

    assert bound is not None
    assert bound.exact


@pytest.mark.parametrize(("units", "exact"), [(100, True), (500, False)])
def test_whole_percents_have_an_exact_law_until_it_costs_too_much(units: int, exact: bool) -> None:
    bound = bca_lower([score // 10_000 * 10_000 for score in spread_scores(units, seed=5)])

    assert bound is not None
    assert bound.exact is exact


def test_a_binary_law_stays_stable_at_a_hundred_thousand_units() -> None:
    bound = bca_lower([0] * 10_000 + [MICRO] * 90_000)

    assert bound is not None
    assert bound.exact
    normal = 0.9 - 1.6448536 * math.sqrt(0.09 / 100_000)
    assert bound.value == pytest.approx(normal, abs=2e-5)


def test_the_law_of_two_values_is_that_of_their_positions_not_of_their_size() -> None:
    bound = bca_lower([200_001] * 2 + [700_004] * 23)

    assert bound is not None
    assert bound.value == pytest.approx((5 * 200_001 + 20 * 700_004) / 25 / MICRO, abs=1e-12)


@pytest.mark.parametrize("units", [12, 25, 40])
def test_drawing_agrees_with_the_exact_law_within_its_monte_carlo_error(units: int) -> None:
    scores = sorted(value // 5_000 * 5_000 for value in spread_scores(units, seed=units))
    law = exact_law(scores)
    exact = bca_lower(scores)
    resamples = 99_999

    sums = resampled_sums(scores, 0.05, resamples)

    assert law is not None
    assert exact is not None
    assert exact.exact
    below = sum(total < sum(scores) for total in sums) / resamples
    assert below == pytest.approx(law.cumulative[-2], abs=4 * 0.5 / math.sqrt(resamples))
    error = float(np.std(scores)) / MICRO / math.sqrt(units)
    drawn = _bca_from_sums(sums, scores, 0.05)
    assert drawn == pytest.approx(exact.value, abs=4 * 4 * error / math.sqrt(resamples))


def test_the_stream_of_draws_is_pinned() -> None:
    first = resampled_sums([0, 250_001, 700_003, MICRO], 0.05, 9_999)

    assert first[:4] == [2_650_007, 2_950_004, 2_650_007, 1_650_007]
    bound = bca_lower(spread_scores(25, seed=25))
    assert bound is not None
    assert (bound.exact, bound.resamples) == (False, 99_999)
    assert bound.value == pytest.approx(0.43630070971789353, abs=1e-12)


def test_draws_come_in_blocks_that_leave_no_seam() -> None:
    scores = sorted(spread_scores(30_000, seed=3))  # two resamples a block, the last block half full
    rows = 5

    sums = resampled_sums(scores, 0.05, rows)

    assert len(sums) == rows == len(set(sums))
    assert sums == _sums_word_by_word(scores, 0.05, rows)


def _sums_word_by_word(scores: Sequence[int], alpha: float, rows: int) -> list[int]:
    units = len(scores)
    text = f"bca-v1|{alpha.hex()}|{rows}|{','.join(str(score) for score in scores)}"
    stream = blake3(text.encode()).digest(length=4 * units * rows)
    words = [int.from_bytes(stream[at : at + 4], "little") for at in range(0, len(stream), 4)]
    picked = [scores[word * units >> 32] for word in words]
    return [sum(picked[row * units : (row + 1) * units]) for row in range(rows)]


@pytest.mark.parametrize(("units", "resamples"), [(200, 99_999), (201, 9_999)])
def test_small_samples_are_drawn_ten_times_as_often_as_large_ones(units: int, resamples: int) -> None:
    bound = bca_lower(spread_scores(units, seed=4))

    assert bound is not None
    assert (bound.exact, bound.resamples) == (False, resamples)
    assert 0.3 < bound.value < 0.6


def test_a_level_that_rounding_lifts_just_above_a_step_is_still_read_on_the_step() -> None:
    barely_short = 0.05 * (1 - 1e-14)
    law = Law(sums=[0, MICRO], cumulative=[barely_short, 1 - barely_short])

    assert _bca_from_law(law, [0, MICRO], 0.05) == 0.0
    assert bca_lower([0, MICRO], 0.25) == BcaBound(0.0, exact=True, resamples=0)


def test_a_bias_so_large_that_the_level_passes_the_mean_yields_the_mean() -> None:
    below, above = 900_000, 1_200_000

    assert _bca_from_sums([below] * 8 + [above] * 2, [400_000, 600_000], 0.5) == 0.5


@pytest.mark.parametrize("side", [-1, 1])
def test_resamples_all_on_one_side_of_the_mean_give_the_lowest_score(side: int) -> None:
    scores = [400_000, 600_000]
    sums = [MICRO + side * distance for distance in (100_000, 150_000, 200_000)]

    assert _bca_from_sums(sums, scores, 0.05) == 0.4


def test_a_correction_past_its_pole_falls_to_the_lowest_score_and_not_to_nan() -> None:
    scores = [0] + [MICRO] * 400
    values = [bca_lower(scores, alpha) for alpha in (1e-3, 1e-9, 1e-15, 1e-60, 1e-300)]

    shown = [bound.value for bound in values if bound is not None]

    assert len(shown) == len(values)
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] == 0.0


def test_another_interpreter_with_another_hash_seed_prints_the_same_bytes() -> None:
    program = (
        "from codegenie.eval.estimators.bounds import bca_lower, clopper_pearson_lower, gaffke_lower;"
        "scores = [pow(7, i, 1_000_003) % 1_000_001 for i in range(30)];"
        "print(repr((bca_lower(scores), bca_lower([s // 1000 for s in scores]),"
        " gaffke_lower([s / 1e6 for s in scores]), clopper_pearson_lower(70, 77))))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    }

    scores = [pow(7, i, 1_000_003) % 1_000_001 for i in range(30)]
    here = (
        bca_lower(scores),
        bca_lower([s // 1000 for s in scores]),
        gaffke_lower([s / 1e6 for s in scores]),
        clopper_pearson_lower(70, 77),
    )
    assert outputs == {f"{here!r}\n".encode()}


def test_importing_the_estimators_does_not_import_numpy() -> None:
    program = (
        "import sys; from codegenie.eval.estimators.bounds import bca_lower;"
        "assert bca_lower([0, 500_000, 1_000_000]).exact; print('numpy' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert done.stdout == b"False\n"
