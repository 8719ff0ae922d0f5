"""Run every static check, two at a time, and print the output of each; fail if one failed.

    .venv/bin/python -m scripts.run_checks [NAME ...]

All together take less than half a minute on two cores, so that they are run often. The longest comes first.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from scripts.locks import ROOT

AT_ONCE = 2
HANG_SECONDS = 600
BIN = Path(sys.executable).parent
PYTHON = sys.executable
SPELLED = ("src", "docs", "tests", "scripts", "benchmarks", "bench", "Makefile", "pyproject.toml", ".ci")
CHECKS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "types": (PYTHON, "scripts/check_types.py"),
        "format": (f"{BIN}/ruff", "format", "--check", "."),
        "lint": (f"{BIN}/ruff", "check", "."),
        "layers": (f"{BIN}/lint-imports", "--no-logo"),
        "dead code": (f"{BIN}/vulture",),
        "spelling": (f"{BIN}/codespell", *SPELLED, *sorted(path.name for path in ROOT.glob("*.md"))),
        "dependencies": (PYTHON, "-m", "scripts.check_dependencies"),
        "locks": (PYTHON, "-m", "scripts.check_locks"),
        "links": (PYTHON, "-m", "scripts.check_links"),
    }
)


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Run one check; return its exit status and its output."""
    done = subprocess.run(
        argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def run_all(checks: Mapping[str, Sequence[str]]) -> list[str]:
    """Run the checks and print their outputs in order; return the checks that failed."""
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(run, argv) for name, argv in checks.items()}
        for name, check in running.items():
            status, said = check.result()
            if status:
                failed.append(name)
            print(f"{name}: {'FAILED' if status else 'ok'}\n{said.strip()}", end="\n" if said.strip() else "")
    return failed


def main(names: Sequence[str]) -> int:
    """Run the named checks, or all; return the exit status."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(
            f"run_checks: no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr
        )
        return 2
    started = time.monotonic()
    failed = run_all({name: argv for name, argv in CHECKS.items() if not names or name in names})
    verdict = f"failed: {', '.join(failed)}" if failed else "all checks passed"
    print(f"{verdict} ({time.monotonic() - started:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
