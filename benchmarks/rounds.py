"""Interleaved rounds of child processes, and the ratios between them.

Other people may use the machine, too. So the programs to compare run in the same round, in rotating order,
and each ratio is taken within one round. The median of the ratios is stable even if the figures are not.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Variables of a caller that would change the figures: without compiled modules a program takes twice as long.
_LEFT_OUT = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONOPTIMIZE", "PYTHONDEVMODE"}


class NotMeasurable(Exception):  # noqa: N818 - the only reason for which the program fails
    """A measured program did not run or gave a wrong answer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one child process, including all processes below it, and the document that it printed."""

    wall_seconds: float
    cpu_seconds: float
    printed: Mapping[str, Any]


def program(name: str, *arguments: str | Path | int) -> list[str]:
    """Return the command of one of the programs beside this file."""
    return [sys.executable, str(HERE / name), *map(str, arguments)]


def run_child(command: Sequence[str], temporary: Path) -> Cost:
    """Run a command to its end, in `temporary` and with its temporary files there.

    Its standard output is one JSON document, or is ignored.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    environment = {**kept, "TMPDIR": str(temporary)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    child = subprocess.run(command, cwd=temporary, env=environment, capture_output=True, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode != 0:
        last = child.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise NotMeasurable(f"{' '.join(command[1:])}: exit {child.returncode}: {' '.join(last)}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, json.loads(child.stdout) if child.stdout.startswith(b"{") else {})


def interleaved(
    contenders: Mapping[str, Callable[[], Cost]], rounds: int, *, warm_up: bool = False
) -> dict[str, list[Cost]]:
    """Run every contender once a round; the order rotates by one from round to round.

    A warm-up fills the caches of the file system and of compiled modules, and is not counted.
    """
    if warm_up:
        for contender in contenders.values():
            contender()
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            costs[name].append(contenders[name]())
    return costs


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        """Summarise figures, one of each round."""
        return cls(statistics.median(figures), min(figures), max(figures))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> "Spread":
        """Summarise the ratios within the rounds."""
        return cls.of([one / other for one, other in zip(ours, theirs, strict=True)])
