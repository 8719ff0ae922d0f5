"""The distribution ("law") of the sum of a resample: N scores drawn with replacement from N scores.

The bootstrap bound in `bounds` needs this law. There are two ways to get it. `exact_law` computes it: with
two different scores it is a binomial law, and otherwise it comes from the powers of a polynomial. If that
would cost too much, `resampled_sums` draws a fixed number of resamples, with the scores as the seed. Both
give the same result for the same scores on every machine. Scores are integers, so that sums compare without
rounding. `scores` is always ascending and holds at least two different values.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

# The budget of the exact law in multiply-adds, each about 0.17 us (CPython 3.11): 0.3 s in all.
_EXACT_WORK = 1_500_000
# How many sums are held at once: 15 MB. Ten scores have at most 92,378, so up to ten units are always exact.
_EXACT_SUMS = 100_000

_DRAWS_PER_BLOCK = 1 << 14  # 0.3 MB of indices and values at a time, which fits into the L2 cache
_VANISHED = 1e-300  # a weight relative to the largest one; no level in use depends on smaller ones


class Law(NamedTuple):
    """The exact law of the resampled sum, ascending, up to and including the observed sum."""

    sums: Sequence[int]
    cumulative: Sequence[float]


def exact_law(scores: Sequence[int]) -> Law | None:
    """Return the law of the sum of `len(scores)` draws; None if it costs too much."""
    lowest = scores[0]
    grid = math.gcd(*(score - lowest for score in scores))
    counts = Counter((score - lowest) // grid for score in scores)
    two_values = len(counts) == 2  # noqa: PLR2004 - then it is binomial, at any size
    reduced = _binomial_law(counts[1], len(scores)) if two_values else _convolution_law(counts)
    if reduced is None:
        return None
    base = len(scores) * lowest
    return reduced._replace(sums=[base + grid * total for total in reduced.sums])


def terms_above(start: int, units: int, odds: float) -> Iterator[float]:
    """Yield P(X = j) / P(X = start), X binomial, for j = start + 1 .. units until it vanishes.

    The values are relative to one probability, so neither factorials nor powers are needed.
    """
    term = 1.0
    for successes in range(start + 1, units + 1):
        term *= (units - successes + 1) / successes * odds
        if term < _VANISHED:
            break
        yield term


def _binomial_law(passed: int, units: int) -> Law:
    failed = units - passed
    downwards = list(terms_above(failed, units, failed / passed))  # counts failures instead
    upwards = list(accumulate(reversed(downwards)))
    upwards.append(upwards[-1] + 1.0)
    total = upwards[-1] + sum(terms_above(passed, units, passed / failed))
    first = passed - len(downwards)
    return Law(range(first, passed + 1), [mass / total for mass in upwards])


def _convolution_law(counts: Counter[int]) -> Law | None:
    """Return the coefficients of P(x)**N up to the observed sum; P counts how often each score occurs.

    Q = P**N satisfies P * Q' = N * P' * Q. This gives each coefficient from earlier ones, with one
    multiply-add for each different score. It is exact in integers, but useless in floats.
    """
    units, observed = counts.total(), sum(value * count for value, count in counts.items())
    steps = sorted((value, count) for value, count in counts.items() if value)
    sums = _reachable_sums([value for value, _ in steps], units, observed)
    if sums is None:
        return None
    total, mass = units**units, counts[0] ** units
    ways = {0: mass}
    cumulative = [mass / total]
    oldest = 0
    for current in sums[1:]:
        found = 0
        for value, count in steps:
            found += ((units + 1) * value - current) * count * ways.get(current - value, 0)
        ways[current] = found // (current * counts[0])
        mass += ways[current]
        cumulative.append(mass / total)
        while sums[oldest] < current - steps[-1][0]:  # no later step reaches back this far
            del ways[sums[oldest]]
            oldest += 1
    return Law(sums, cumulative)


def _reachable_sums(values: Sequence[int], units: int, limit: int) -> list[int] | None:
    """List the sums up to `limit` of at most `units` of `values`; None if they exceed the budget."""
    bits = int(units * math.log2(units))  # size of the coefficients; the weights were measured
    work_per_sum = len(values) * (4000 + bits) // 4000 + bits // 500
    most = min(_EXACT_SUMS, _EXACT_WORK // work_per_sum)
    seen, newest = {0}, {0}
    for _ in range(units):
        fresh: set[int] = set()
        for start in newest:
            fresh.update(total for value in values if (total := start + value) <= limit)
            if len(fresh) > most:
                return None
        newest = fresh - seen
        seen |= newest
        if len(seen) > most:
            return None
    return sorted(seen)


def resampled_sums(scores: Sequence[int], alpha: float, resamples: int) -> list[int]:
    """Draw the sums of `resamples` resamples from a stream that depends only on the arguments.

    numpy's generators do not guarantee the same stream in every version, so BLAKE3's extendable
    output is used. Word w of the stream picks score (w * units) >> 32, with a bias below units / 2**32.
    """
    # Imported here: the two imports cost 100 ms and 20 MB, and most runs have an exact law.
    import numpy as np
    from blake3 import blake3

    units = len(scores)
    content = f"bca-v1|{alpha.hex()}|{resamples}|{','.join(map(str, scores))}"
    stream = blake3(content.encode("ascii"))
    values = np.array(scores, dtype=np.int64)
    sums: list[int] = []
    rows_per_block = max(1, _DRAWS_PER_BLOCK // units)
    for first in range(0, resamples, rows_per_block):
        rows = min(rows_per_block, resamples - first)
        words = stream.digest(length=4 * rows * units, seek=4 * first * units)
        picks = np.frombuffer(words, dtype="<u4").astype(np.uint64)
        picks *= np.uint64(units)
        picks >>= np.uint64(32)
        sums.extend(values[picks.view(np.int64)].reshape(rows, units).sum(axis=1).tolist())
    return sums
