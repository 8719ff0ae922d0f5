"""Remove each defense, one at a time, and say which tests fail. A removal that no test notices is a failure.

Usage: python scripts/mutants.py [NAME ...]

Each switch and each restriction of `tests/hostile/tables/` is flipped in a copy of the source. For a switch
the tests of its scenarios are run there, and one of them has to go red. For a restriction all tests that it
names have to go red. First all tests are run on an unchanged copy and must pass: a test that is always red
notices nothing.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.hostile.engine.switching import switched_source  # noqa: E402 - the tests are not an installed package
from tests.hostile.engine.table import Portfolio, Restriction, Switch, read_portfolio  # noqa: E402

PATIENCE_SECONDS = 120.0
# Without its defense such a scenario never ends; with it, its tests take some seconds.
HANG_SECONDS = 25.0
_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
_TOTAL = re.compile(r"(\d+) (?:passed|failed)")
RED = 1  # pytest's exit code for failed tests; with any other code the tests did not run


@dataclass(frozen=True)
class Run:
    """The result of pytest: which tests failed, how many there were, and whether they ran at all."""

    failed: tuple[str, ...]
    total: int
    problem: str | None = None


def tests_of(portfolio: Portfolio, switch: Switch) -> list[str]:
    """Return the tests that have to notice that a switch was flipped."""
    if isinstance(switch, Restriction):
        return sorted(switch.tests)
    rows = [row for row in portfolio.scenarios.values() if row.defense == switch.name]
    return sorted({test for row in rows for test in row.tests})


def run_tests(tests: list[str], switch: Switch | None, patience: float, *, may_hang: bool = False) -> Run:
    """Run tests on a copy of the source."""
    with tempfile.TemporaryDirectory(prefix="codegenie-mutant-") as directory:
        source = switched_source(switch, Path(directory) / "source")
        argv = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        # No mark is selected, because a test that is named here may run only in `make test-all`.
        argv += [f"--basetemp={directory}/tests", "-m", "", *tests]
        try:
            done = subprocess.run(
                argv,
                cwd=ROOT,
                env=source.environment(),
                capture_output=True,
                text=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(("(no end)",), len(tests), None if may_hang else "no end")
    total = sum(int(count) for count in _TOTAL.findall(done.stdout))
    problem = None if done.returncode in {0, RED} else done.stdout.strip()[-500:] or done.stderr[-500:]
    return Run(tuple(sorted(set(_FAILED.findall(done.stdout)))), total, problem)


def flipped(portfolio: Portfolio, switch: Switch) -> Run:
    """Run the tests that have to notice, without the defense."""
    hangs = any(row.hangs for row in portfolio.scenarios.values() if row.defense == switch.name)
    patience = HANG_SECONDS if hangs else PATIENCE_SECONDS
    return run_tests(tests_of(portfolio, switch), switch, patience, may_hang=hangs)


def was_noticed(portfolio: Portfolio, switch: Switch, run: Run) -> bool:
    """Return whether enough tests went red: all for a restriction, one for a switch."""
    if run.problem is not None:
        return False
    return (
        set(tests_of(portfolio, switch)) <= set(run.failed)
        if isinstance(switch, Restriction)
        else bool(run.failed)
    )


def concerns_us(switch: Switch) -> bool:
    """Return whether the switch has an effect for the user that runs this."""
    return not (isinstance(switch, Restriction) and switch.root) or os.geteuid() == 0


def main(names: list[str]) -> int:
    """Flip every switch, or the named ones; return how many no test noticed."""
    portfolio = read_portfolio()
    known = {**portfolio.switches, **portfolio.restrictions}
    asked_for = [known[name] for name in names] or list(known.values())
    switches = [switch for switch in asked_for if concerns_us(switch)]
    for switch in asked_for:
        if switch not in switches:
            print(f"{switch.name}: not tried, it is in nobody's way but root's")
    every = sorted({test for switch in switches for test in tests_of(portfolio, switch)})
    untouched = run_tests(every, None, PATIENCE_SECONDS + len(every))
    if untouched.failed or untouched.problem:
        print(f"red before anything was flipped: {untouched.problem or ' '.join(untouched.failed)}")
        return 1
    survivors = 0
    # Each flip waits for its own processes, so one flip per processor runs at the same time.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for switch, run in zip(switches, pool.map(partial(flipped, portfolio), switches), strict=True):
            killed = was_noticed(portfolio, switch, run)
            survivors += not killed
            verdict = f"{len(run.failed)} red of {run.total}" if killed else f"SURVIVED {run.problem or ''}"
            print(f"{switch.name}: {verdict.strip()}", flush=True)
            for test in run.failed:
                print(f"    {test}")
    print(f"{len(switches)} switches, {len(switches) - survivors} killed, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
