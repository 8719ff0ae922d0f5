"""Rubric throughput: a whole run through the Runner, against the reference on the same cases."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.generated_bench import SCORER, generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import Cost, NotMeasurable, Spread, interleaved, program, run_child

CONCURRENCY = 2
TARGET = 1.10
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - used through tempfile, if it exists
_NAMES = {"harness": "harness", "in memory": "harness, copies of cases on tmpfs"}


def measure_throughput(directory: Path, cases: int, rounds: int) -> tuple[Section, float]:
    """Return the section, and the seconds that the reference needs for one case."""
    bench = generate_bench(directory / "throughput", cases)
    scorer = directory / "score.py"
    scorer.write_text(SCORER, encoding="utf-8")
    harness = program("probe.py", "run", bench, CONCURRENCY)
    reference = program("reference.py", bench / "cases", scorer, CONCURRENCY)
    contenders: dict[str, Callable[[], Cost]] = {
        "reference": partial(run_child, reference, directory),
        "harness": partial(run_child, harness, directory),
    }
    with ExitStack() as held:
        if os.access(_IN_MEMORY, os.W_OK):
            memory = Path(held.enter_context(tempfile.TemporaryDirectory(dir=_IN_MEMORY)))
            contenders["in memory"] = partial(run_child, harness, memory)
        costs = interleaved(contenders, rounds)
    for cost in (cost for found in costs.values() for cost in found):
        if cost.printed["cases"] != cases or cost.printed["mean"] != 0.0:
            raise NotMeasurable(f"{cost.printed['cases']} of {cases} cases were scored")
    how = (
        f"{cases:,} cases of four files and 8 KB, concurrency {CONCURRENCY}, SUT `null`, isolation class "
        f"`subprocess`, each a process of its own, start-up included, {rounds} rounds. The reference is "
        "`reference.py`: asyncio, one `python -I -S score.py` per case, the same scorer as the rubric. It "
        "copies nothing, so the harness is also measured with its copies on tmpfs: the rest is the disk's."
    )
    return Section("Throughput", how, list(_rows(costs, cases))), _wall(
        costs["reference"], cases
    ).median / 1e3


def _rows(costs: dict[str, list[Cost]], cases: int) -> Iterator[Row]:
    theirs = costs["reference"]
    for key, name in _NAMES.items():
        if key in costs:
            yield Row(f"wall, {name} ÷ reference", _ratio(costs[key], theirs), "times", TARGET)
    for key, found in costs.items():
        yield Row(f"wall of the {_NAMES.get(key, key)}", _wall(found, cases), "ms a case")
    for key, found in costs.items():
        yield Row(f"CPU of the {_NAMES.get(key, key)}, all processes", _cpu(found, cases), "ms a case")


def _ratio(ours: list[Cost], theirs: list[Cost]) -> Spread:
    return Spread.of_ratios([cost.wall_seconds for cost in ours], [cost.wall_seconds for cost in theirs])


def _wall(costs: list[Cost], cases: int) -> Spread:
    return Spread.of([cost.wall_seconds * 1000 / cases for cost in costs])


def _cpu(costs: list[Cost], cases: int) -> Spread:
    return Spread.of([cost.cpu_seconds * 1000 / cases for cost in costs])
