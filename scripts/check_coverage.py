"""Fail when too few branches were taken.

`coverage report --fail-under` counts lines, too, and lines are easier to cover: a suite can reach that floor
without taking any error path. This script counts branches alone.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Compare the branch coverage of the last run with the floor in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    floor = settings["tool"]["coverage"]["report"]["fail_under"]
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "--fail-under=0", "-o", "-"]
    measured = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    totals = json.loads(measured.stdout)["totals"]
    # Integers are compared, so that 89.96 is not rounded up to the floor.
    enough = 100 * totals["covered_branches"] >= floor * totals["num_branches"]
    print(f"branches taken: {totals['covered_branches']} of {totals['num_branches']} (floor {floor} %)")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
