"""Remove each restriction of the confined classes in a copy, and say whether the proof notices.

Usage: python scripts/proof_notices.py [NAME ...]

`tests/hostile/tables/restrictions.toml` names every restriction. A copy without one of them must fail to
prove at least one class, unless `tests/hostile/tables/proof/unnoticed.toml` says why no check at a start can
show it. Each copy runs `doctor` in its own pid and mount namespaces, below a parent that ignores a signal, as
nohup does.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from codegenie.eval.isolation.confinement import visible_paths  # noqa: E402 - beside the next two
from tests.hostile.engine.noticing import notice, unnoticed  # noqa: E402 - not an installed package
from tests.hostile.engine.table import Restriction, read_portfolio  # noqa: E402 - likewise

OF_PACKAGES = {"packages-are-covered", "landlock-of-packages", "landlock-of-the-zygote"}


def concerns_us(restriction: Restriction) -> bool:
    """Return whether the restriction has an effect for the user and the interpreter that run this."""
    if restriction.name in OF_PACKAGES and not visible_paths.masked():
        return False
    return not restriction.root or os.geteuid() == 0


def main(names: list[str]) -> int:
    """Play every restriction, or the named ones; return 1 if a result differs from the table."""
    known = read_portfolio().restrictions
    asked_for = [known[name] for name in names] or list(known.values())
    played = [each for each in asked_for if concerns_us(each)]
    excused = unnoticed()
    wrong = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for restriction, found in zip(played, pool.map(notice, played), strict=True):
            agrees = found.by is None if restriction.name in excused else found.by is not None
            wrong += not agrees
            print(f"{'' if agrees else 'WRONG '}{restriction.name}: {found.by or 'unnoticed'}", flush=True)
    print(f"{len(played)} restrictions, {wrong} not as the table says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
