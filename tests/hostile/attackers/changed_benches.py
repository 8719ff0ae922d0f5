"""Benches that somebody changed after they were written, and whoever meets them."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from codegenie.eval.bench.loading import BenchRoot
from codegenie.eval.errors import EvalError
from codegenie.eval.models import BenchRunReport, RunOptions
from codegenie.eval.ports import SutCase, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner
from tests.hostile.engine.stage import Outcome
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import call, environment, eval_argv
from tests.support.stub_benches import Edit, in_turn

SECRET = b"k3y-0f-s0meb0dy-else"


def bench_with(
    room: Path, *edits: Edit, rubric: str = HONEST_RUBRIC, cases: Iterable[str | CaseFiles] = ("one",)
) -> Path:
    """Write an honest bench anew, let somebody edit it, and return its directory."""
    shutil.rmtree(room / "bench", ignore_errors=True)
    directory = write_bench(room / "bench", rubric, cases) / TASK_CLASS
    in_turn(*edits)(directory)
    return directory


class Agent:
    """Gives one answer, or the right one; notes in a file whom it was asked about, and does a deed first."""

    def __init__(self, room: Path, answer: str = "it is {}", deed: Callable[[SutCase], object] = id) -> None:
        self._notes = room / "asked"
        self._notes.touch()
        self._answer = answer
        self._deed = deed

    async def __call__(self, case: SutCase) -> dict[str, object]:
        """Note the case, do the deed and answer."""
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(f"{case.case_id}\n")
        self._deed(case)
        return {"answer": self._answer.format(case.case_id)}

    @property
    def asked(self) -> list[str]:
        """Return the cases that it was asked about, in order."""
        return self._notes.read_text(encoding="utf-8").split()


def attempt(
    room: Path,
    sut: SystemUnderTest | SutRunner,
    *,
    name: str = TASK_CLASS,
    roots: BenchRoot | None = None,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> BenchRunReport | str:
    """Plan and run the bench that lies in the room; return the report, or the refusal and its exit code."""
    runner = Runner()
    try:
        plan = runner.plan(
            task_class_name=name,
            bench_root=roots or room / "bench",
            out_dir=room / "runs",
            options=RunOptions(**{"isolation": "subprocess", **options}),
        )
        return asyncio.run(runner.execute(plan, system_under_test=sut))
    except EvalError as refusal:
        return f"{type(refusal).__name__} exit {refusal.exit_code}"


def met(result: BenchRunReport | str) -> str:
    """Say what a run came to in a few words."""
    if isinstance(result, str):
        return result
    scores = [score for _, score in result.per_case]
    codes = {mode.code for score in scores for mode in score.failure_modes}
    return " ".join(sorted(codes)) or ("passed" if all(score.passed for score in scores) else "not passed")


def undeserved(result: BenchRunReport | str) -> Outcome:
    """Say what an agent without an answer met; any score of it is harm."""
    scores = (
        [] if isinstance(result, str) else [f"{case_id} {score.score}" for case_id, score in result.per_case]
    )
    got = [score for score in scores if not score.endswith(" 0.0")]
    return Outcome(met(result), f"nothing was answered and scored: {', '.join(got)}" if got else None)


def all_met(outcomes: Iterable[Outcome]) -> Outcome:
    """Put the outcomes of several spellings together; the first that does harm is enough."""
    seen = []
    for outcome in outcomes:
        if outcome.harm:
            return outcome
        seen.append(outcome.met)
    return Outcome(" | ".join(sorted(set(seen))))


def as_python_reads(file: Path, expression: str, cwd: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Run a file as an ordinary Python does, and return an expression of its names; None if it fails."""
    program = f"import json, runpy; names = runpy.run_path({str(file)!r}); print(json.dumps({expression}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def listed(room: Path, prefix: Iterable[str] = ()) -> Outcome:
    """List a root that also holds an honest class; the harm is that nothing is said of that one."""
    if not (room / "bench" / "honest-class").exists():
        write_bench(room / "bench", name="honest-class")
    done = call([*prefix, *eval_argv("list", "--json", "--bench-root", str(room / "bench"))], room)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    own = [entry for entry in answer.get("task_classes", []) if not entry["shipped"]]
    problems = {entry["name"]: entry["problem"] for entry in own}
    if "honest-class" not in problems:
        return Outcome(f"exit {done.returncode}", f"the listing ends with {answer['error']['message'][:120]}")
    del problems["honest-class"]
    kinds = {problem.split(":")[0] if problem else "listed" for problem in problems.values()}
    return Outcome(" | ".join(sorted(kinds)))
