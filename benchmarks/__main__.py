"""Measure everything, print it, and write `benchmarks/RESULTS.md`.

    python -m benchmarks            the figures that are committed, some minutes
    python -m benchmarks --quick    smaller and fewer, printed only

Exits with 0 whatever the figures are, and with 1 only if something could not be measured.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.boxes import measure_boxes
from benchmarks.cold_start import measure_cold_start
from benchmarks.estimator_costs import measure_estimators
from benchmarks.evidence import measure_evidence
from benchmarks.fencing import measure_fence
from benchmarks.isolation import measure_isolation
from benchmarks.loading import measure_loading
from benchmarks.memory import measure_memory
from benchmarks.results import Section, render
from benchmarks.rounds import HERE, NotMeasurable
from benchmarks.throughput import measure_throughput


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    throughput_cases: int = 1_000
    throughput_rounds: int = 5
    cold_rounds: int = 15
    loading_cases: int = 10_000
    loading_rounds: int = 7
    fence_cases: int = 1_000
    memory_cases: Sequence[int] = (200, 1_000, 5_000)
    estimator_units: Sequence[int] = (25, 200, 500)
    estimator_rounds: int = 5
    warm_cases: int = 1_000
    logged_runs: int = 1_000
    boxed_files: Sequence[int] = (10, 100, 1_000)
    box_rounds: int = 25
    sleeping_boxes: int = 256


QUICK = Sizes(
    throughput_cases=200,
    throughput_rounds=3,
    cold_rounds=5,
    loading_cases=1_000,
    loading_rounds=3,
    fence_cases=250,
    memory_cases=(50, 200, 500),
    estimator_units=(25, 200),
    estimator_rounds=3,
    warm_cases=250,
    logged_runs=50,
    boxed_files=(10,),
    box_rounds=5,
    sleeping_boxes=16,
)


def measure(directory: Path, sizes: Sizes) -> list[Section]:
    """Measure one thing after the other; each is interleaved with its own baseline."""
    _say("throughput")
    throughput, seconds = measure_throughput(directory, sizes.throughput_cases, sizes.throughput_rounds)
    _say("isolation")
    isolation = measure_isolation(directory, sizes.throughput_cases, sizes.throughput_rounds)
    _say("boxes")
    boxes = measure_boxes(sizes.boxed_files, sizes.box_rounds, sizes.sleeping_boxes)
    _say("cold start")
    cold = measure_cold_start(directory, sizes.cold_rounds)
    _say("loading")
    loading = measure_loading(directory, sizes.loading_cases, sizes.loading_rounds)
    _say("fence")
    fence = measure_fence(directory, sizes.fence_cases, sizes.loading_rounds)
    _say("memory")
    memory = measure_memory(directory, sizes.memory_cases)
    _say("estimators")
    estimators = measure_estimators(sizes.estimator_units, sizes.estimator_rounds, seconds)
    _say("evidence")
    evidence = measure_evidence(directory, sizes.warm_cases, sizes.logged_runs, seconds)
    return [throughput, isolation, boxes, cold, loading, fence, memory, estimators, evidence]


def _say(what: str) -> None:
    print(f"measuring {what}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the measurements that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less of everything; writes nothing")
    quick = parser.parse_args().quick
    load, _, _ = os.getloadavg()
    try:
        with tempfile.TemporaryDirectory(prefix="codegenie-benchmarks-") as directory:
            sections = measure(Path(directory), QUICK if quick else Sizes())
    except NotMeasurable as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 1
    page = render(sections, "python -m benchmarks --quick" if quick else "make bench", load)
    print(page, end="")
    if not quick:
        (HERE / "RESULTS.md").write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
