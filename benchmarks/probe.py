"""One thing to measure, in a process of its own; prints one JSON document.

python probe.py run BENCH CONCURRENCY     a whole run, SUT null, through the Runner
python probe.py plan BENCH                load and digest-check every case
python probe.py walk BENCH                read every file of the cases, and nothing else
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def whole_run(bench: str, concurrency: str) -> dict[str, float]:
    """Run every case and say how many were scored and how large this process became."""
    import asyncio

    from codegenie.eval.models import RunOptions
    from codegenie.eval.runner import Runner
    from codegenie.eval.suts.own import NullSut

    options = RunOptions(concurrency=int(concurrency), isolation="subprocess")
    report = asyncio.run(
        Runner().run_eval(
            task_class_name=Path(bench).name,
            bench_root=Path(bench).parent,
            options=options,
            system_under_test=NullSut(),
        )
    )
    return {"cases": report.scored_count, "mean": report.mean_score, "peak_kib": peak_kib()}


def plan_only(bench: str) -> dict[str, float]:
    """Load and check every case; the time is the plan's alone, without imports."""
    from codegenie.eval.runner import Runner

    started = time.perf_counter()
    plan = Runner().plan(task_class_name=Path(bench).name, bench_root=Path(bench).parent)
    return {"seconds": time.perf_counter() - started, "cases": len(plan.cases)}


def plain_walk(bench: str) -> dict[str, float]:
    """Open, read and close every file of the cases, with the cheapest calls that Python has."""
    started = time.perf_counter()
    files = 0
    for directory, _, names in os.walk(f"{bench}/cases"):
        for name in names:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY)
            os.read(descriptor, LARGEST_FILE)
            os.close(descriptor)
            files += 1
    return {"seconds": time.perf_counter() - started, "files": files}


def peak_kib() -> int:
    """Return the largest resident size of this very process; ru_maxrss would inherit its parent's."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = next(line for line in file if line.startswith("VmHWM:"))
    return int(found.split()[1])


LARGEST_FILE = 8192
"""In the generated benches. A buffer of 1 MiB would double the time of the walk and flatter the plan."""

MODES: dict[str, Callable[..., dict[str, float]]] = {"run": whole_run, "plan": plan_only, "walk": plain_walk}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](*sys.argv[2:])))
