"""Plays forgeries: each against the worker of a step of calls, and against a naive suite in one process.

Usage: python -m tests.hostile.engine.forging ROOM CLASS

The naive suite is the control. It runs as a step of kind `program` in a box, never on the host.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from codegenie.eval.bench.codegenie_rubric import returned
from codegenie.eval.models import IsolationClass
from tests.hostile.attackers.forgeries import FORGERIES, HONEST, Judge, Technique
from tests.support.executing import Bench, Execution, calls, calls_step, opened_bench, program_step

_ASKED: tuple[tuple[Any, Any, Any], ...] = ((2, 3, 5), (10, -4, 6), (0.5, 0.25, 0.75))


def _tag(number: float) -> dict[str, str]:
    return {"int": str(number)} if isinstance(number, int) else {"float": number.hex()}


_CALLS = calls(*(("add", [_tag(one), _tag(other)]) for one, other, _ in _ASKED))
_TESTS = "from calc import add\n\n\n" + "\n\n".join(
    f"def test_{number}():\n    assert add({one}, {other}) == {expected}\n"
    for number, (one, other, expected) in enumerate(_ASKED)
)
_MUST_FAIL = "\n\ndef test_must_fail():\n    assert add(2, 3) == 999\n"
_SUITE = """\
import json, os, sys

def run_one(name, test):
    try:
        test()
    except Exception:
        return "must_fail" in name
    return "must_fail" not in name

def main():
    if os.path.exists("conftest.py"):
        import conftest
    try:
        import test_calc
        tests = [(name, test) for name, test in vars(test_calc).items() if name.startswith("test_")]
        rows = [run_one(name, test) for name, test in tests]
        passed = bool(rows) and all(rows)
    except Exception:
        passed = False
    with open("result.json", "w") as file:
        json.dump({"passed": passed}, file)
    print("passed" if passed else "failed", flush=True)
    sys.exit(0 if passed else 1)

main()
"""
_INPUT = {"input/calc.py": "def add(a, b):\n    raise NotImplementedError\n"}
_CALL_SECONDS = 3


async def score_by_worker(bench: Bench, technique: Technique, *, fresh: bool = False) -> int:
    """Return 1 if every call is said to have returned exactly what is expected."""
    step = calls_step(fresh=fresh, call_seconds=_CALL_SECONDS)
    output = {"files": technique.files}
    done = await bench.execute([step], {**_INPUT, "execute/calls.json": _CALLS}, output)
    replies = done["values"]["replies"]
    assert len(replies) == len(_ASKED)
    rows = zip(replies, _ASKED, strict=True)
    return int(all(returned(reply, expected) for reply, (_, _, expected) in rows))


async def score_by_naive_suite(bench: Bench, technique: Technique, judge: Judge) -> int:
    """Return 1 if a judge who believes a suite in the same process believes that it passed."""
    tests = _TESTS + (_MUST_FAIL if judge == "must_fail" else "")
    files = {**_INPUT, "input/test_calc.py": tests, "execute/run_suite.py": _SUITE}
    place = {"run_suite.py": "execute/run_suite.py"}
    step = program_step("python3", "run_suite.py", place=place, outputs=["result.json"])
    done = await bench.execute([step], files, {"files": technique.files})
    return int(_believes(judge, done["cli"]))


def _believes(judge: Judge, done: Execution) -> bool:
    if judge == "file":
        text = done["files"]["result.json"] or "{}"
        return json.loads(text).get("passed") is True
    if judge == "stdout":
        return "passed" in done["stdout"] and "failed" not in done["stdout"]
    return bool(done["end"] == "exit:0")


async def all_scores(bench: Bench) -> dict[str, list[int]]:
    """Return, for each technique, its scores by the worker in both ways, and by the judge that it fools."""
    found = {}
    for name, technique in {**HONEST, **FORGERIES}.items():
        scores = [await score_by_worker(bench, technique, fresh=fresh) for fresh in (False, True)]
        fooled = [await score_by_naive_suite(bench, technique, technique.fools)] if technique.fools else []
        found[name] = scores + fooled
    return found


async def _play(isolation_class: IsolationClass) -> dict[str, list[int]]:
    async with opened_bench(isolation_class=isolation_class) as bench:
        return await all_scores(bench)


def main(room: Path, isolation_class: IsolationClass) -> None:
    """Play everything, and write the scores into the room."""
    scores = asyncio.run(_play(isolation_class))
    (room / "scores.json").write_text(json.dumps(scores), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])  # type: ignore[arg-type]  # a word that the test says
