"""What a system under test does in a process of its own, one function each, named like its case.

This file is copied to where a run is started and imported there as `agent`; `solve` is the system.
`ORACLE`, a directory that the test looks at afterwards, comes by `--sut-env`.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from codegenie.eval import SutCase, SutResult


async def solve(case: SutCase) -> Any:  # noqa: ANN401 - nonsense is the point
    """Do what the case is named after; answer the others."""
    deed = globals().get(case.case_id.replace("-", "_"))
    returned = {"answer": f"it is {case.case_id}"} if deed is None else deed(case)
    return await returned if asyncio.iscoroutine(returned) else returned


def raises(_case: SutCase) -> NoReturn:
    raise ValueError("no\x1b[31m luck")


def exits_with_zero(_case: SutCase) -> NoReturn:
    sys.exit(0)


def exits_with_a_word(_case: SutCase) -> NoReturn:
    sys.exit("bye")


def leaves_with_zero(_case: SutCase) -> NoReturn:
    os._exit(0)


def leaves_with_seven(_case: SutCase) -> NoReturn:
    os._exit(7)


def interrupts_itself(_case: SutCase) -> NoReturn:
    raise KeyboardInterrupt


def cancels_itself(_case: SutCase) -> NoReturn:
    raise asyncio.CancelledError


def crashes(_case: SutCase) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def blocks(_case: SutCase) -> None:
    time.sleep(3600)


async def swallows_its_cancellation(_case: SutCase) -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def ignores_every_signal(_case: SutCase) -> None:
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


def returns_none(_case: SutCase) -> None:
    pass


def returns_a_list(_case: SutCase) -> list[int]:
    return [1]


def returns_nan(_case: SutCase) -> dict[str, float]:
    return {"answer": math.nan}


def returns_bytes(_case: SutCase) -> dict[str, bytes]:
    return {"answer": b"x"}


def returns_odd_keys(_case: SutCase) -> dict[str, Any]:
    return {"answer": {1: "x"}}


def returns_a_cycle(_case: SutCase) -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["again"] = cycle
    return cycle


def returns_too_much(_case: SutCase) -> dict[str, str]:
    return {"answer": "x" * (17 << 20)}


def forges_on_stdout(case: SutCase) -> dict[str, str]:
    forged = {"harness_output": {"answer": f"it is {case.case_id}"}, "cost_usd": 0, "usage": None}
    sys.stdout.write(json.dumps(forged) + "\n")
    sys.stdout.flush()
    return {"answer": "wrong"}


def answers_twice(case: SutCase) -> dict[str, str]:
    os.write(3, b'{"harness_output": {}, "cost_usd": 0, "usage": null}')
    return {"answer": f"it is {case.case_id}"}


def forges_and_raises(case: SutCase) -> NoReturn:
    answers_twice(case)
    raise ValueError("after the answer")


def repeats_a_secret_key(_case: SutCase) -> NoReturn:
    key = os.environ["LONG_API_KEY"]
    os.write(3, f'{{"{key}": 1, "{key}": 2}}'.encode())
    os._exit(0)


def closes_its_result(_case: SutCase) -> dict[str, str]:
    os.close(3)
    return {"answer": "unheard"}


def floods_its_log(case: SutCase) -> dict[str, str]:
    for stream in (sys.stdout, sys.stderr):
        stream.write("x" * (8 << 20) + "\n")
    return {"answer": f"it is {case.case_id}"}


def leaves_a_daemon(case: SutCase) -> dict[str, str]:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        with (Path(os.environ["ORACLE"]) / "heartbeat").open("ab", buffering=0) as file:
            for _ in range(6_000):
                file.write(b".")
                time.sleep(0.005)
        os._exit(0)
    time.sleep(0.1)
    return {"answer": f"it is {case.case_id}"}


def kills_its_parent(_case: SutCase) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def looks_around(case: SutCase) -> dict[str, str]:
    here = Path.cwd()
    facts = {
        "environment": dict(os.environ),
        "case": [getattr(case, name) for name in ("case_id", "task_class", "input_dir", "trial")],
        "entries": sorted(str(path.relative_to(here)) for path in here.rglob("*")),
        "cwd": str(here),
        "path": sys.path[0],
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    }
    (Path(os.environ["ORACLE"]) / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return {"answer": f"it is {case.case_id}"}


def spends(case: SutCase) -> SutResult:
    return SutResult({"answer": f"it is {case.case_id}"}, cost_usd=0.25, usage={"tokens": 3})


def spends_nonsense(_case: SutCase) -> SutResult:
    return SutResult({}, cost_usd=-1)


class Configured:
    """A system that is a class: it is made without arguments and then called."""

    def __call__(self, case: SutCase) -> Mapping[str, Any]:
        return {"answer": f"it is {case.case_id}"}


def answer_at_once(case: SutCase) -> Mapping[str, Any]:
    """Answer without being a coroutine."""
    return {"answer": f"it is {case.case_id}"}


NOT_CALLABLE = 3
