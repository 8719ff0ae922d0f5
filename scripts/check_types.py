"""Run mypy on the source, on the tests and on every bench, all equally strict.

Benches are programs that repeat module names (`rubric`, `registration`), and each runs beside its own
files only. So each bench has its own mypy run, in this process and with one cache; the order of the runs
does not matter.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parent.parent
TREES = ("src", "tests", "benchmarks", "scripts")
BENCH_ROOTS = ("bench", "tests/fixtures/bench")
# `cases/` is data and may hold files of any kind, so only the parts that the contract names are code.
BENCH_CODE = ("registration.py", "breakdown_keys.py", "rubric.py", "rubric_lib/**/*.py")


def benches() -> Iterator[tuple[Path, list[Path]]]:
    """Yield every bench directory that holds code, with its code."""
    for root in BENCH_ROOTS:
        for directory in sorted((ROOT / root).glob("*/")):
            code = [found for pattern in BENCH_CODE for found in sorted(directory.glob(pattern))]
            if code:
                yield directory, code


def beside_a_rubric() -> list[Path]:
    """Return the directory of `codegenie_rubric`, which the harness puts next to a running rubric."""
    return [found.parent for found in sorted((ROOT / "src").rglob("codegenie_rubric.py"))]


def clean(targets: list[Path], search_path: list[Path]) -> bool:
    """Check `targets` with `search_path` in front of the configured one, and print what is wrong."""
    os.environ["MYPYPATH"] = os.pathsep.join(map(str, search_path))
    relative = [str(target.relative_to(ROOT)) for target in targets]
    findings, failure, status = api.run(["--config-file", "pyproject.toml", "--no-error-summary", *relative])
    sys.stdout.write(findings)
    sys.stderr.write(failure)
    return status == 0


def main() -> int:
    """Check everything, even after a finding; return the exit status."""
    os.chdir(ROOT)
    verdicts = [clean([ROOT / tree for tree in TREES if any((ROOT / tree).rglob("*.py"))], [])]
    verdicts += [clean(code, [directory, *beside_a_rubric()]) for directory, code in benches()]
    if all(verdicts):
        print(f"types: source, tests and {len(verdicts) - 1} benches are clean")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
