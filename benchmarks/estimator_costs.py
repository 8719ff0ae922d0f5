"""What the closing arithmetic of a run costs, and what share of the run that is."""

import time
from collections.abc import Callable, Sequence

from benchmarks.results import Row, Section
from benchmarks.rounds import Spread
from codegenie.eval.estimators.bounds import bca_lower, clopper_pearson_lower, gaffke_lower

MICRO = 1_000_000


def measure_estimators(sizes: Sequence[int], rounds: int, reference_seconds: float) -> Section:
    """Time every estimator at every number of units, on evenly spread scores."""
    bca_lower(_anywhere(60))  # draws, so that numpy is imported beforehand
    rows, shares = [], []
    for units in sizes:
        seconds = {name: [_timed(work) for _ in range(rounds)] for name, work in _estimators(units).items()}
        for name, found in seconds.items():
            rows.append(Row(f"{name}, {units} units", Spread.of([1000 * s for s in found]), "ms"))
        together = [sum(found) for found in zip(*seconds.values(), strict=True)]
        share = Spread.of([total / (units * reference_seconds) for total in together])
        shares.append(Row(f"all five, {units} units ÷ {units} cases of the reference", share, "times"))
    how = f"In one process, numpy imported beforehand, {rounds} rounds."
    return Section("Estimators", how, rows + shares)


def _estimators(units: int) -> dict[str, Callable[[], object]]:
    whole = [MICRO * (number % 5 > 0) for number in range(units)]
    steps = [MICRO // 4 * (number % 5) for number in range(units)]
    anywhere = _anywhere(units)
    return {
        "Clopper-Pearson": lambda: clopper_pearson_lower(units * 4 // 5, units),
        "Gaffke, partial scores": lambda: gaffke_lower([score / MICRO for score in anywhere]),
        "BCa, pass or fail (exact)": lambda: bca_lower(whole),
        "BCa, five steps (exact)": lambda: bca_lower(steps),
        "BCa, partial scores (drawn)": lambda: bca_lower(anywhere),
    }


def _anywhere(units: int) -> list[int]:
    # 618,034 is the golden ratio in millionths: its multiples are evenly spread and on no coarse grid.
    return [number * 618_034 % MICRO for number in range(units)]


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
