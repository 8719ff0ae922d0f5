"""The fence: every rule on every file, against a walk that only reads the same files."""

from pathlib import Path

from benchmarks.generated_bench import generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread, interleaved, program, run_child

TARGET_SECONDS = 2.0
TARGET_CASES = 1_000


def measure_fence(directory: Path, cases: int, rounds: int) -> Section:
    """Time `inspect_paths` and the plain walk, without start-up, on the same tree."""
    bench = generate_bench(directory / "fence", cases)
    costs = interleaved(
        {
            "walk": lambda: run_child(program("probe.py", "walk", bench), directory),
            "fence": lambda: run_child(program("probe.py", "fence", bench), directory),
        },
        rounds,
        warm_up=True,
    )
    fence, walk = ([cost.printed for cost in costs[name]] for name in ("fence", "walk"))
    if any(printed["cases"] != cases or printed["findings"] for printed in fence):
        raise NotMeasurable(f"not all of {cases} cases were looked at, or not all were clean")
    ours, theirs = ([printed["seconds"] for printed in found] for found in (fence, walk))
    beyond = [(one - other) * TARGET_CASES / cases for one, other in zip(ours, theirs, strict=True)]
    rows = [
        Row(f"{TARGET_CASES:,} cases, beyond reading them", Spread.of(beyond), "s", TARGET_SECONDS),
        Row("fence ÷ plain walk", Spread.of_ratios(ours, theirs), "times"),
        Row("fence", Spread.of([seconds * 1e6 / walk[0]["files"] for seconds in ours]), "µs a file"),
    ]
    how = (
        f"{cases:,} cases of four files and 8 KB, warm caches, {rounds} rounds. The walk is the one of the "
        "loading; the fence does all that loading does, and looks for invisible characters, look-alikes, "
        "credentials, pointers and files of tools."
    )
    return Section("Fence", how, rows)
