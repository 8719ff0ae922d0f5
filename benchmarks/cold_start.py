"""Cold start: how long the command line takes to do the least that it can, against an empty interpreter."""

import sys
from functools import partial
from pathlib import Path

from benchmarks.generated_bench import NAME, generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import Spread, interleaved, run_child

ONE_CASE_SECONDS = 0.40
HELP_SECONDS = 0.12
_EMPTY = "python -c pass"


def measure_cold_start(directory: Path, rounds: int) -> Section:
    """Time one case, and the two screens of help."""
    bench = generate_bench(directory / "one", 1)
    run = ("eval", "run", NAME, "--sut", "null", "--bench-root", str(bench.parent))
    arguments = {
        "codegenie --help": ("-m", "codegenie", "--help"),
        "codegenie eval --help": ("-m", "codegenie", "eval", "--help"),
        "codegenie eval run, one case": ("-m", "codegenie", *run),
    }
    targets = dict.fromkeys(arguments, HELP_SECONDS) | {"codegenie eval run, one case": ONE_CASE_SECONDS}
    commands = {_EMPTY: ("-c", "pass"), **arguments}
    costs = interleaved(
        {name: partial(run_child, [sys.executable, *given], directory) for name, given in commands.items()},
        rounds,
        warm_up=True,
    )
    seconds = {name: [cost.wall_seconds for cost in found] for name, found in costs.items()}
    rows = [Row(_EMPTY, Spread.of(seconds[_EMPTY]), "s")]
    for name, target in targets.items():
        rows.append(Row(name, Spread.of(seconds[name]), "s", target))
        rows.append(Row(f"{name}, ÷ {_EMPTY}", Spread.of_ratios(seconds[name], seconds[_EMPTY]), "times"))
    how = (
        "Each a new process of the same interpreter, `python -m codegenie`; files and compiled modules are "
        f"in the caches of the system, {rounds} rounds."
    )
    return Section("Cold start", how, rows)
