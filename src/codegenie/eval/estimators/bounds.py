"""Lower confidence bounds for scores in [0, 1]: arithmetic on plain numbers.

    clopper_pearson_lower   share of units passed; exact for independent units
    gaffke_lower            mean of unit scores; equals Clopper-Pearson on 0/1 scores, proved
                            for two-point scores and without a known counterexample otherwise
    bca_lower               bias-corrected bootstrap of the mean; a description, not a guarantee: for
                            ten 0/1 units with a mean just below 0.9 it says 1.0 in 35 % of runs

Every function sorts its input first, so the order in which cases finished does not matter. No
function reads a clock or a random generator, so the same scores give the same number. Wrong
arguments raise ValueError (TypeError for a micro-score that is not an integer): a bug of the caller.
"""

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from codegenie.eval.estimators.resampling import Law, exact_law, resampled_sums, terms_above

MICRO = 1_000_000

_CLOPPER_PEARSON_STEPS = 50  # a grid of 1e-15
_GAFFKE_STEPS = 40  # a grid of 1e-12; each step costs up to units**2 / 4 divisions
_NORMAL_RANGE = 38.0  # beyond it the normal tail is below the smallest double

_NEGLIGIBLE = 1e-18  # relative to a sum of positive terms: far below its last bit
_TIE = 1e-12  # relative tolerance for ties with a step of the law: erfc differs between C libraries

# One less than a power of ten, so that alpha * (B + 1) is whole at the usual levels. The error of
# the estimate is about 4 * SE / sqrt(B). In small samples SE is large and draws are cheap, so they
# get the large B (40 ms at 200 units). All other samples get the minimum of the contract.
_MANY_RESAMPLES = 99_999
_FEW_RESAMPLES = 9_999
_MANY_UP_TO_UNITS = 200


_THOUSANDTH = Decimal("0.001")


def floor3(value: float) -> str:
    """Format with three decimals, rounded down, so that a bound is never shown higher than it is."""
    # Rounded by its decimal digits, because 0.57 * 1000 is less than 570.
    return (
        str(Decimal(repr(value)).quantize(_THOUSANDTH, ROUND_FLOOR)) if math.isfinite(value) else str(value)
    )


@dataclass(frozen=True, slots=True)
class BcaBound:
    """A BCa lower bound, and whether it comes from the exact law or from `resamples` draws."""

    value: float
    exact: bool
    resamples: int


def clopper_pearson_lower(passed: int, units: int, alpha: float = 0.05) -> float:
    """Return the largest share p for which `passed` or more of `units` has probability <= alpha.

    The result is 0 if `passed` or `units` is 0, and `alpha ** (1 / units)` if all units passed. In
    between it is rounded down to a grid of 2**-50 and exceeds the true bound by at most 1e-12.
    """
    _require_alpha(alpha)
    if not 0 <= passed <= units:
        raise ValueError(f"{passed} of {units} units cannot have passed")
    if passed == 0:
        return 0.0
    if passed == units:
        return float(alpha ** (1.0 / units))
    return _last_accepted(
        lambda share: _upper_tail(passed, units, share) <= alpha, 0.0, 1.0, _CLOPPER_PEARSON_STEPS
    )


def gaffke_lower(means: Sequence[float], alpha: float = 0.05) -> float:
    """Return Gaffke's lower bound on the mean of the distribution from which `means` were drawn.

    It is the alpha quantile of the randomly weighted mean of the scores and one more score of zero.
    The time is quadratic in the number of units. Scores of only 0 and 1 give the value of
    `clopper_pearson_lower`. Other scores give a bound that is rounded down to a grid of 2**-40. It
    uses plain arithmetic, so it is the same on every machine.
    """
    _require_alpha(alpha)
    scores = _ordered_scores(means)
    ones = scores.count(1.0)
    if ones + scores.count(0.0) == len(scores):
        return clopper_pearson_lower(ones, len(scores), alpha)
    return _gaffke_by_bisection(scores, alpha)


def bca_lower(micro_means: Sequence[int], alpha: float = 0.05) -> BcaBound | None:
    """Return the one-sided BCa bound of the mean of integer micro-scores, as a share of one.

    None if the bootstrap says nothing: fewer than two units, or all of them equal. The law of the
    bootstrap mean is computed exactly if that is cheap. Otherwise it is sampled, with the scores
    themselves as the seed, so that the caller cannot move the bound by choosing a seed.

    The formula can leave its range: every resample is on one side of the mean, or the correction
    passes its pole at extreme alpha. Then the level is zero, its limit at that pole, and the bound
    is the lowest score. The bound is never below the lowest score and never above the mean.
    """
    _require_alpha(alpha)
    scores = sorted(operator.index(score) for score in micro_means)
    if scores and not 0 <= scores[0] <= scores[-1] <= MICRO:
        raise ValueError(f"a micro-score lies outside 0..{MICRO}")
    if len(scores) < 2 or scores[0] == scores[-1]:  # noqa: PLR2004 - one unit has no spread
        return None
    law = exact_law(scores)
    if law is not None:
        return BcaBound(_bca_from_law(law, scores, alpha), exact=True, resamples=0)
    resamples = _MANY_RESAMPLES if len(scores) <= _MANY_UP_TO_UNITS else _FEW_RESAMPLES
    sums = resampled_sums(scores, alpha, resamples)
    return BcaBound(_bca_from_sums(sums, scores, alpha), exact=False, resamples=resamples)


def _require_alpha(alpha: float) -> None:
    # With alpha above one half a "lower bound" may exceed the mean, so it certifies nothing.
    if not 0.0 < alpha <= 0.5:  # noqa: PLR2004 - the sentence above
        raise ValueError(f"alpha {alpha!r} lies outside (0, 0.5]")


def _last_accepted(accepts: Callable[[float], bool], low: float, high: float, steps: int) -> float:
    """Bisect for the upper end of the accepted points, and return a point on the accepted side.

    The points that are tried depend only on the range and not on the data. So the result is the true
    end, rounded down to a fixed grid. This keeps the order and absorbs differences in the last bit.
    """
    for _ in range(steps):
        middle = (low + high) / 2.0
        if accepts(middle):
            low = middle
        else:
            high = middle
    return low


# Clopper-Pearson.


def _mass_above(start: int, units: int, odds: float) -> float:
    """Sum P(X = j) / P(X = start) over j > start; infinite if the quotient overflows."""
    total = 0.0
    for term in terms_above(start, units, odds):
        total += term
        if term <= total * _NEGLIGIBLE or total == math.inf:
            break
    return total


def _upper_tail(passed: int, units: int, share: float) -> float:
    """Return P(X >= passed) for X ~ Binomial(units, share), 0 < share < 1."""
    odds = share / (1.0 - share)
    above = _mass_above(passed, units, odds)
    below = _mass_above(units - passed, units, 1.0 / odds)  # count failures instead
    return 1.0 / (1.0 + below / (1.0 + above))  # at most one of the two is infinite


# Gaffke's bound.


def _ordered_scores(means: Sequence[float]) -> list[float]:
    scores = sorted(map(float, means))
    for score in scores:  # each one is checked: with a NaN, sorting gives no order
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"score {score!r} lies outside [0, 1]")
    return scores


def _gaffke_by_bisection(scores: Sequence[float], alpha: float) -> float:
    return _last_accepted(lambda t: _gaffke_p(scores, t) <= alpha, 0.0, 1.0, _GAFFKE_STEPS)


def _gaffke_p(scores: Sequence[float], t: float) -> float:
    """Return P(sum of E_i * (score_i - t) - E_0 * t <= 0) for independent standard exponentials E.

    The computation is a race between the positive and the other coefficients, one pair of
    exponentials at a time. The one that is used up first leaves the rest of the other as new. Every
    step is a convex combination of earlier probabilities: nothing cancels, and ties need no care.
    """
    highs = [score - t for score in scores if score > t]
    if not highs:
        return 1.0
    lows = [t - score for score in scores if score <= t]
    lows.append(t)
    row = [0.0] * len(highs)
    for low in lows:
        won = 1.0
        following = []
        for high, before in zip(highs, row, strict=True):
            won = (high * before + low * won) / (low + high)
            following.append(won)
        row = following
    return row[-1]


# BCa.


def _bca_from_law(law: Law, scores: Sequence[int], alpha: float) -> float:
    def quantile(level: float) -> float:
        # The left-continuous inverse: the sampled quantile converges to it as B grows.
        at = bisect_left(law.cumulative, level * (1.0 - _TIE))
        return law.sums[min(at, len(law.sums) - 1)]

    return _bca((law.cumulative[-2] + law.cumulative[-1]) / 2.0, quantile, scores, alpha)


def _bca_from_sums(sums: Sequence[int], scores: Sequence[int], alpha: float) -> float:
    """Return the BCa bound from given resampled sums, with the linear quantile of numpy and scipy."""
    ordered = sorted(sums)
    last = len(ordered) - 1

    def quantile(level: float) -> float:
        position = level * last
        at = int(position)
        return ordered[at] + (position - at) * (ordered[min(at + 1, last)] - ordered[at])

    # Ties count half. The sums are integers, because float sums miss ties in most small samples.
    observed = sum(scores)
    twice_below = bisect_left(ordered, observed) + bisect_right(ordered, observed)
    return _bca(twice_below / (2 * len(ordered)), quantile, scores, alpha)


def _bca(centre: float, quantile: Callable[[float], float], scores: Sequence[int], alpha: float) -> float:
    """Read the `quantile` of the resampled sums at the corrected level, as a share of one."""
    lowest, whole = scores[0] / MICRO, len(scores) * MICRO
    level = _bca_level(centre, scores, alpha)
    if level == 0.0:
        return lowest
    return max(lowest, min(quantile(level) / whole, sum(scores) / whole))


def _bca_level(centre: float, scores: Sequence[int], alpha: float) -> float:
    """Return the level at which to read the bootstrap law; `centre` is its mass below the observed mean."""
    if not 0.0 < centre < 1.0:
        return 0.0
    bias = _normal_quantile(centre)
    shifted = bias + _normal_quantile(alpha)
    slack = 1.0 - _acceleration(scores) * shifted
    return _normal_cdf(bias + shifted / slack) if slack > 0.0 else 0.0


def _acceleration(scores: Sequence[int]) -> float:
    """Return a sixth of the skewness of the mean: the jackknife in closed form, from integers."""
    units, observed = len(scores), sum(scores)
    deviations = [units * score - observed for score in scores]
    squares = sum(deviation**2 for deviation in deviations)
    cubes = sum(deviation**3 for deviation in deviations)
    return cubes / squares / (6.0 * math.sqrt(squares))


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2.0)) / 2.0


def _normal_quantile(p: float) -> float:
    if p > 0.5:  # noqa: PLR2004 - by symmetry; the lower tail is the accurate one
        return -_normal_quantile(1.0 - p)
    return _last_accepted(lambda x: _normal_cdf(x) <= p, -_NORMAL_RANGE, 0.0, 60)
