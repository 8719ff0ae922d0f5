"""Confined rubrics: the whole run by zygotes and in fresh interpreters, against the reference."""

from functools import partial
from pathlib import Path

from benchmarks.generated_bench import SCORER, generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import Cost, NotMeasurable, Spread, interleaved, program, run_child

CONCURRENCY = 2
_CLASSES = ("namespace", "landlock")
_RATIOS = {"zygote": 0.35, "cold": 1.4}
_ALL_MIB = 90.0
_PROOF_SECONDS = 0.25


def measure_isolation(directory: Path, cases: int, rounds: int) -> Section:
    """Run the same cases in every confined class, both ways, and by the reference; prove each class."""
    bench = generate_bench(directory / "isolation", cases)
    scorer = directory / "isolation-score.py"
    scorer.write_text(SCORER, encoding="utf-8")
    ways = [(isolation, spawn) for isolation in _CLASSES for spawn in _RATIOS]
    runs = {way: program("probe.py", "confined", bench, CONCURRENCY, *way) for way in ways}
    proofs = {way: program("probe.py", "proof", *way) for way in ways}
    contenders = {
        "reference": partial(
            run_child, program("reference.py", bench / "cases", scorer, CONCURRENCY), directory
        ),
        **{f"run {way}": partial(run_child, command, directory) for way, command in runs.items()},
        **{f"proof {way}": partial(run_child, command, directory) for way, command in proofs.items()},
    }
    costs = interleaved(contenders, rounds)
    rows = [row for way in ways for row in _rows(way, costs, cases)]
    how = (
        f"{cases:,} cases of four files and 8 KB, concurrency {CONCURRENCY}, SUT `null`, every restriction "
        f"on, each a process of its own, start-up and proof included, {rounds} rounds, against "
        "`reference.py`. A case is one rubric, from its copy of the case to its answer. Memory is the sum of "
        "the largest resident sizes of harness, guardian and zygotes; pages that they share count for each."
    )
    return Section("Isolation", how, rows)


def _rows(way: tuple[str, str], costs: dict[str, list[Cost]], cases: int) -> list[Row]:
    isolation, spawn = way
    found, theirs = costs[f"run {way}"], costs["reference"]
    if any(cost.printed["cases"] != cases for cost in found):
        raise NotMeasurable(f"not all of {cases} cases were scored in {isolation}")
    name = f"{isolation}, {spawn}"
    ratio = Spread.of_ratios([cost.wall_seconds for cost in found], [cost.wall_seconds for cost in theirs])
    proofs = Spread.of([cost.printed["seconds"] for cost in costs[f"proof {way}"]])
    target = _RATIOS[spawn] if isolation == "namespace" or spawn == "cold" else None
    return [
        Row(f"wall, {name} ÷ reference", ratio, "times", target),
        Row(f"a case, median, {name}", _printed(found, "p50_ms"), "ms"),
        Row(f"a case, ninth tenth, {name}", _printed(found, "p90_ms"), "ms"),
        Row(f"proof, {name}", proofs, "s", _PROOF_SECONDS),
        Row(f"memory, {name}", _printed(found, "all_kib", 1 / 1024), "MiB", _ALL_MIB),
    ]


def _printed(costs: list[Cost], key: str, times: float = 1.0) -> Spread:
    return Spread.of([cost.printed[key] * times for cost in costs])
