"""One measurement in its own process; prints one JSON document.

python probe.py run BENCH CONCURRENCY     a whole run, SUT null, through the Runner
python probe.py confined BENCH CONCURRENCY CLASS SPAWN   the same in a class, with latencies and memory
python probe.py proof CLASS SPAWN         prove a class of isolation
python probe.py plan BENCH                load and digest-check every case
python probe.py fence BENCH               look at every file of the bench by every rule
python probe.py walk BENCH                read every file of the cases, and nothing else
python probe.py warm BENCH CONCURRENCY    a run with a store; warm from the second call on
python probe.py parts BENCH CONCURRENCY   the share of journal, validation and log in a cold run
python probe.py log BENCH RUNS            write a log of so many runs
python probe.py verify BENCH              verify that log, and read and hash it for comparison
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def whole_run(
    bench: str, concurrency: str, isolation: str = "subprocess", spawn: str = "zygote"
) -> dict[str, float]:
    """Run every case; return how many were scored and how large this process became."""
    import asyncio

    from codegenie.eval.models import RunOptions
    from codegenie.eval.runner import Runner
    from codegenie.eval.suts.builtin import NullSut

    options = RunOptions(concurrency=int(concurrency), isolation=isolation, spawn=spawn)  # type: ignore[arg-type]
    report = asyncio.run(
        Runner().run_eval(
            task_class_name=Path(bench).name,
            bench_root=Path(bench).parent,
            out_dir=own_log(bench, str(os.getpid())),
            options=options,
            system_under_test=NullSut(),
        )
    )
    return {"cases": report.scored_count, "mean": report.mean_score, "peak_kib": peak_kib()}


def confined_run(bench: str, concurrency: str, isolation: str, spawn: str) -> dict[str, float]:
    """Run every case in a class; also time each rubric, and return how large all our processes became."""
    import statistics

    from codegenie.eval.isolation.launchers import ConfinedLauncher
    from codegenie.eval.isolation.rubric_runner import Rubrics

    seconds: list[float] = []
    others: list[int] = []
    run, close = Rubrics.run, ConfinedLauncher.close

    async def timed(*arguments: Any) -> Any:  # noqa: ANN401 - any arguments and any result
        started = time.perf_counter()
        try:
            return await run(*arguments)
        finally:
            seconds.append(time.perf_counter() - started)

    async def weighed(launcher: ConfinedLauncher) -> None:
        below = descendants(os.getpid())
        others.extend(peak_kib(number) for number in below)
        await close(launcher)

    Rubrics.run = timed  # type: ignore[method-assign,assignment]
    ConfinedLauncher.close = weighed  # type: ignore[method-assign,assignment]
    figures = whole_run(bench, concurrency, isolation, spawn)
    tenths = statistics.quantiles(seconds, n=10)
    figures |= {"p50_ms": statistics.median(seconds) * 1e3, "p90_ms": tenths[-1] * 1e3}
    return {**figures, "all_kib": figures["peak_kib"] + sum(others)}


def descendants(number: int) -> list[int]:
    """Return the numbers of all processes below a process."""
    listed = Path(f"/proc/{number}/task/{number}/children").read_text(encoding="ascii").split()
    return [found for child in map(int, listed) for found in (child, *descendants(child))]


def prove_class(isolation: str, spawn: str) -> dict[str, float]:
    """Prove a class as a run does at its start; the time is that of the proof alone, without imports."""
    import asyncio

    from codegenie.eval.isolation.rubric_runner import rubric_runner
    from codegenie.eval.system.run_directory import run_directory

    async def prove() -> float:
        with run_directory() as directory:
            started = time.perf_counter()
            rubrics = await rubric_runner(isolation, spawn, directory)  # type: ignore[arg-type]
            seconds = time.perf_counter() - started
            await rubrics.close()
        return seconds

    return {"seconds": asyncio.run(prove())}


def plan_only(bench: str) -> dict[str, float]:
    """Load and check every case; the time is the plan's alone, without imports."""
    from codegenie.eval.runner import Runner

    started = time.perf_counter()
    plan = Runner().plan(task_class_name=Path(bench).name, bench_root=Path(bench).parent)
    return {"seconds": time.perf_counter() - started, "cases": len(plan.cases)}


def fence_only(bench: str) -> dict[str, float]:
    """Check every file; the time is that of the checks alone, without imports."""
    from codegenie.eval.fence import inspect_paths

    started = time.perf_counter()
    report = inspect_paths([bench])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "cases": report.case_count, "findings": len(report.findings)}


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


def own_log(bench: str, name: str) -> Path:
    """Return where a measurement keeps its log: beside the bench, which is removed with it."""
    root = Path(bench).parent
    return root.parent / f"{root.name}-log-{name}"


def warm_run(bench: str, concurrency: str) -> dict[str, float]:
    """Time plan and run with a store that holds everything from the second call on."""
    import asyncio

    from codegenie.eval.models import RunOptions
    from codegenie.eval.runner import Runner
    from codegenie.eval.suts.builtin import NullSut

    store = own_log(bench, "store")
    started = time.perf_counter()
    report = asyncio.run(
        Runner().run_eval(
            task_class_name=Path(bench).name,
            bench_root=Path(bench).parent,
            out_dir=own_log(bench, "warm"),
            options=RunOptions(concurrency=int(concurrency), isolation="subprocess", cache_dir=store),
            system_under_test=NullSut(),
        )
    )
    return {"seconds": time.perf_counter() - started, "cases": report.scored_count}


def recorded_parts(bench: str, concurrency: str) -> dict[str, float]:
    """Time validation, journal and log inside a cold run, and return their share of its time."""
    from codegenie.eval import trial, validation
    from codegenie.eval.log.disk import AuditLog
    from codegenie.eval.log.group_commit import GroupCommit

    spent = 0.0

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: object, **named: object) -> object:
            nonlocal spent
            started = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                spent += time.perf_counter() - started

        return wrapper

    vars(trial)["judge"] = timed(validation.judge)
    AuditLog.append = timed(AuditLog.append)  # type: ignore[method-assign]
    flush = GroupCommit._flush  # noqa: SLF001 - the one to time
    GroupCommit._flush = timed(flush)  # type: ignore[method-assign]  # noqa: SLF001 - likewise
    started = time.perf_counter()
    whole_run(bench, concurrency)
    return {"share": spent / (time.perf_counter() - started)}


def write_log(bench: str, runs: str) -> dict[str, float]:
    """Run once, then append the same run under other ids: a log as large as many runs make it."""
    from codegenie.eval.log.chain import decode_record
    from codegenie.eval.log.disk import AuditLog
    from codegenie.eval.system.clock import SystemClock

    whole_run(bench, "2")
    first = own_log(bench, str(os.getpid()))
    bodies = [decode_record(path.name, path.read_bytes()).body for path in sorted(first.glob("*.json"))]
    log = AuditLog(own_log(bench, "many"), SystemClock())
    for number in range(int(runs)):
        run_id = f"run-{number}"
        for body in bodies:
            report = getattr(body, "report", None)
            if report is None:
                log.append(body, run_id)
                continue
            renamed = report.model_copy(update={"run_id": run_id})
            log.append(body.model_copy(update={"report": renamed}), run_id)
    return {"runs": float(runs)}


def verify_whole_log(bench: str) -> dict[str, float]:
    """Verify the large log; then only read and hash it, which any verification must."""
    from blake3 import blake3

    from codegenie.eval.log.reading import verify_log
    from codegenie.eval.system.clock import SystemClock

    directory = own_log(bench, "many")
    started = time.perf_counter()
    verified = verify_log(directory, SystemClock(), artifacts=False)
    seconds = time.perf_counter() - started
    peak = peak_kib()
    started = time.perf_counter()
    for path in directory.glob("*.json"):
        blake3(path.read_bytes()).hexdigest()
    read_seconds = time.perf_counter() - started
    runs = len(verified.history.runs)
    return {"seconds": seconds, "read_seconds": read_seconds, "peak_kib": peak, "runs": runs}


def peak_kib(number: int | None = None) -> int:
    """Return the largest resident size of a process; ru_maxrss would inherit its parent's."""
    with open(f"/proc/{number or 'self'}/status", encoding="ascii") as file:
        found = next((line for line in file if line.startswith("VmHWM:")), None)
    # A zygote that has ended and that its guardian has not reaped yet has no memory.
    return 0 if found is None else int(found.split()[1])


LARGEST_FILE = 8192
"""The largest file of the generated benches. A buffer of 1 MiB would double the time of the walk, and the
plan would look faster in comparison."""

MODES: dict[str, Callable[..., dict[str, float]]] = {
    "run": whole_run,
    "confined": confined_run,
    "proof": prove_class,
    "plan": plan_only,
    "fence": fence_only,
    "walk": plain_walk,
    "warm": warm_run,
    "parts": recorded_parts,
    "log": write_log,
    "verify": verify_whole_log,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](*sys.argv[2:])))
