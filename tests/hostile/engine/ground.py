"""Where a rubric attacks its surroundings: one run in one isolation class, and what came out of it.

The attacker is a function, a *deed*. Its source is written into the rubric, with a plan of plain values that
the test knows: numbers of processes, paths, ports. So a deed stands alone, with its imports inside, and uses
the tools of `tools.py` only. What it returns is its *loot* and leaves in the answer, the one way out that no
class closes. The witness compares it with what stands outside, or looks there for what the deed has done.
"""

import asyncio
import inspect
import json
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from codegenie.eval.models import BenchRunReport, BenchScore, RunOptions
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import HONEST, HOSTILE, what_it_met
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import NUMBERS, TOOLS
from tests.support.benches import TASK_CLASS, CaseFiles, canonical_score, right_answer, write_bench

Plan = dict[str, Any]
Deed = Callable[[Plan], str | None]
ConfinedPlay = Callable[[Path, str, str], Outcome]
CONFINED: dict[str, ConfinedPlay] = {}
SECONDS = 20

_HEAD = """\
from __future__ import annotations
import json, sys
request = json.load(sys.stdin)
case_id = request["case"]["case_id"]
if case_id == "honest":
    right = request["harness_output"].get("answer") == "it is honest"
    answer = {"passed": right, "score": float(right), "breakdown": {"accuracy": 0.5}, "failure_modes": []}
    json.dump(answer, sys.stdout)
    sys.exit(0)
"""
_TAIL = """\
meet(PLAN, case_id)
try:
    loot = DEEDS[case_id](PLAN)
    said = "loot " + str(loot) if loot else "nothing"
except OSError as refusal:
    said = "refused " + str(refusal)
modes = [{"code": "answer.noted", "detail": said}]
json.dump({"passed": True, "score": 1.0, "breakdown": {"accuracy": 1.0}, "failure_modes": modes}, sys.stdout)
"""


def rubric_of(deeds: Mapping[str, Deed], plan: Plan) -> str:
    """Return a rubric that judges the honest case, and does in each other case what stands for it."""
    functions: list[Callable[..., Any]] = [*TOOLS, *deeds.values()]
    sources = [textwrap.dedent(inspect.getsource(function)) for function in functions]
    names = ", ".join(f"{case!r}: {deed.__name__}" for case, deed in deeds.items())
    values = f"NUMBERS = {NUMBERS!r}\nPLAN = json.loads({json.dumps(plan)!r})\nDEEDS = {{{names}}}\n"
    return "\n\n".join([_HEAD, *dict.fromkeys(sources), values + _TAIL])


@dataclass(frozen=True)
class Played:
    """What a run with hostile cases came to."""

    report: BenchRunReport

    def score(self, case: str = HOSTILE) -> BenchScore:
        """Return the score of a case."""
        return dict(self.report.per_case)[case]

    def loot(self, case: str = HOSTILE) -> str | None:
        """Return what a deed took with it."""
        return next(
            (text.removeprefix("loot ") for text in self._said(case) if text.startswith("loot ")), None
        )

    def refusal(self, case: str = HOSTILE) -> str:
        """Return what a deed said instead, for whoever wonders."""
        return " ".join(self._said(case))

    def _said(self, case: str) -> list[str]:
        return [mode.detail or "" for mode in self.score(case).failure_modes]

    def outcome(self, harm: str | None, case: str = HOSTILE) -> Outcome:
        """Say what the hostile case met, what it got, and what the honest one scored."""
        sibling = canonical_score(self.score(HONEST))
        return Outcome(what_it_met(self.score(case)), harm, sibling, self.refusal(case))


@dataclass(frozen=True)
class Ground:
    """A room, and the way in which its rubrics are confined."""

    room: Path
    isolation: str
    spawn: str

    def play(self, deed: Deed, plan: Plan | None = None, seconds: int = SECONDS) -> Played:
        """Run one hostile case beside the honest one."""
        return self.play_cases({HOSTILE: deed}, plan, seconds)

    def play_in_turn(self, first: Deed, then: Deed, plan: Plan | None = None) -> Played:
        """Run two hostile cases one after the other, in the same slot: `first`, and `then`."""
        return self.play_cases({"first": first, "then": then}, plan, concurrency=1)

    def play_together(self, one: Deed, other: Deed, plan: Plan | None = None) -> Played:
        """Run two hostile cases at the same time: `one` and `other`.

        Where nothing confines them, each waits for the other: the attack has to succeed there, however late
        a busy machine starts one of them.
        """
        meeting = self.room / "meeting"
        meeting.mkdir()
        together = {**(plan or {}), "meeting": str(meeting)}
        return self.play_cases({"one": one, "other": other}, together, concurrency=3)

    def play_cases(
        self,
        deeds: Mapping[str, Deed],
        plan: Plan | None = None,
        seconds: int = SECONDS,
        **options: Any,  # noqa: ANN401 - any field of RunOptions
    ) -> Played:
        """Run these hostile cases and the honest one."""
        cases = [CaseFiles(case, fields={"rubric_wall_clock_seconds": seconds}) for case in deeds]
        return self.run(rubric_of(deeds, plan or {}), (*cases, HONEST), **options)

    def run(
        self,
        rubric: str,
        cases: Iterable[str | CaseFiles],
        **options: Any,  # noqa: ANN401 - any field of RunOptions
    ) -> Played:
        """Run a bench in this class; its log is in `room/runs`, its private directories in `room/tmp`."""
        write_bench(self.room / "bench", rubric, cases)
        runner = Runner()
        plan = runner.plan(
            task_class_name=TASK_CLASS,
            bench_root=self.room / "bench",
            out_dir=self.room / "runs",
            options=RunOptions.model_validate({"isolation": self.isolation, "spawn": self.spawn, **options}),
        )
        with _temporary_directory(self.room / "tmp"):
            report = asyncio.run(runner.execute(plan, system_under_test=right_answer))
        if report.isolation_class != self.isolation:
            raise RuntimeError(f"asked for {self.isolation}, and ran in {report.isolation_class}")
        return Played(report)


@contextmanager
def _temporary_directory(directory: Path) -> Iterator[None]:
    directory.mkdir()
    before = tempfile.tempdir
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def confined_attack(name: str) -> Callable[[Callable[[Ground], Outcome]], ConfinedPlay]:
    """Register the attack of a row, as a function of a room, an isolation class and a way to start."""

    def register(play: Callable[[Ground], Outcome]) -> ConfinedPlay:
        if name in CONFINED:
            raise ValueError(f"{name} is played twice")

        @wraps(play)
        def played(room: Path, isolation: str, spawn: str) -> Outcome:
            return play(Ground(room, isolation, spawn))

        CONFINED[name] = played
        return played

    return register


def set_the_ground(surfaces: Iterable[str]) -> None:
    """Import the attacks of these surfaces."""
    for surface in sorted(set(surfaces)):
        import_module(f"tests.hostile.confined.{surface}")
