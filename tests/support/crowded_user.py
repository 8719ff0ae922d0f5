"""Runs a bench as a user with few processes left.

Usage: python -m tests.support.crowded_user ROOM CLASS SPAWN CASES

Prints one JSON line: what each case of it met, what a second run met meanwhile, or the refusal. In a hostile
bench one case takes every thread that it can get, and those beside it need one.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codegenie.eval.errors import EvalError
from codegenie.eval.models import RunOptions
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import what_it_met
from tests.support.benches import TASK_CLASS, right_answer, write_bench

RUBRIC = """\
import json, sys, threading, time
request = json.load(sys.stdin)
end = threading.Event()
if request["case"]["case_id"] == "hostile":
    threading.stack_size(32 << 10)
    taken = []
    try:
        while len(taken) < 2_000:
            taken.append(threading.Thread(target=end.wait))
            taken[-1].start()
    except RuntimeError:
        pass
    time.sleep(4)
else:
    for _ in range(20):
        thread = threading.Thread(target=end.wait, args=(0.05,))
        thread.start()
        thread.join()
end.set()
json.dump({"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}, sys.stdout)
"""
asked: list[str] = []


async def agent(case: SutCase) -> Mapping[str, Any]:
    asked.append(case.case_id)
    return await right_answer(case)


def met(room: Path, way: tuple[str, str], cases: list[str]) -> object:
    """Run these cases; say what each met, or why there was no run."""
    write_bench(room / "bench", RUBRIC, cases)
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=room / "bench",
        out_dir=room / "runs",
        options=RunOptions.model_validate({"isolation": way[0], "spawn": way[1], "concurrency": 2}),
    )
    try:
        report = asyncio.run(runner.execute(plan, system_under_test=agent))
    except EvalError as refusal:
        return {"refusal": type(refusal).__name__, "message": str(refusal), "asked": len(asked)}
    return {name: what_it_met(score) for name, score in report.per_case}


def main(room: Path, way: tuple[str, str], cases: list[str]) -> None:
    """Run these cases, and beside a hostile one a second harness, once that has what it wants."""
    found: dict[str, object] = {}
    another: list[threading.Thread] = []
    if "hostile" in cases:
        (room / "another").mkdir()

        def run_another() -> None:
            found["another"] = met(room / "another", way, ["honest"])

        another.append(threading.Timer(2.0, run_another))
        another[0].start()
    found["run"] = met(room, way, cases)
    for thread in another:
        thread.join()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), (sys.argv[2], sys.argv[3]), sys.argv[4:])
