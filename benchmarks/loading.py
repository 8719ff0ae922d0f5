"""Loading: every case read, hashed and checked, against a walk that only reads the same files."""

from pathlib import Path

from benchmarks.generated_bench import generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread, interleaved, program, run_child

TARGET = 2.0


def measure_loading(directory: Path, cases: int, rounds: int) -> Section:
    """Time `Runner.plan` and the plain walk, without start-up, on the same tree."""
    bench = generate_bench(directory / "loading", cases)
    costs = interleaved(
        {
            "walk": lambda: run_child(program("probe.py", "walk", bench), directory),
            "plan": lambda: run_child(program("probe.py", "plan", bench), directory),
        },
        rounds,
        warm_up=True,
    )
    plan, walk = ([cost.printed for cost in costs[name]] for name in ("plan", "walk"))
    if any(printed["cases"] != cases for printed in plan):
        raise NotMeasurable(f"not all of {cases} cases were loaded")
    ours, theirs = ([printed["seconds"] for printed in found] for found in (plan, walk))
    files = walk[0]["files"]
    rows = [
        Row("plan ÷ plain walk", Spread.of_ratios(ours, theirs), "times", TARGET),
        Row("plain walk", Spread.of([seconds * 1e6 / files for seconds in theirs]), "µs a file"),
        Row("plan", Spread.of([seconds * 1e6 / files for seconds in ours]), "µs a file"),
        Row("plan of everything", Spread.of(ours), "s"),
    ]
    how = (
        f"{cases:,} cases of four files and 8 KB, warm caches, {rounds} rounds. The walk is `os.walk` with "
        "`os.open`, `os.read` and `os.close` on every file; the plan also refuses links and odd names, "
        "checks sizes, hashes every byte, reads every `case.toml` and compares every digest."
    )
    return Section("Loading and digest check", how, rows)
