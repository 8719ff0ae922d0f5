"""What attackers of several surfaces need: a bench with one hostile and one honest case, run for them."""

import asyncio
import contextlib
import datetime as dt
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegenie.eval.canonical import canonical_json
from codegenie.eval.cli import run_command_line
from codegenie.eval.errors import EvalError
from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.gate.policy import TierPolicy
from codegenie.eval.models import BenchRunReport, BenchScore, RunOptions
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner
from codegenie.eval.system.clock import SystemClock
from tests.hostile.engine.stage import Outcome
from tests.support.benches import TASK_CLASS, CaseFiles, canonical_score, right_answer, write_bench
from tests.support.commands import without_a_box
from tests.support.stores import NotingSut
from tests.support.working_directory import Said

HOSTILE = "hostile"
HONEST = "honest"

_DISPATCH = """\
import json, sys
request = json.load(sys.stdin)
if request["case"]["case_id"] == "honest":
    right = request["harness_output"].get("answer") == "it is honest"
    answer = {"passed": right, "score": float(right), "breakdown": {"accuracy": 0.5}, "failure_modes": []}
    json.dump(answer, sys.stdout)
    sys.exit(0)
"""


def rubric_that(does: str) -> str:
    """Return a rubric that judges the honest case honestly and does this in the other one."""
    return _DISPATCH + does


def rubric_that_answers(answers: Mapping[str, bytes]) -> str:
    """Return a rubric that prints for each case the bytes that belong to it."""
    return rubric_that(f"sys.stdout.buffer.write({dict(answers)!r}[request['case']['case_id']])\n")


def rubric_that_prints(answer: str | bytes) -> str:
    """Return a rubric that prints these bytes for the hostile case."""
    raw = answer.encode() if isinstance(answer, str) else answer
    return rubric_that(f"sys.stdout.buffer.write({raw!r})\n")


def run_hostile(
    room: Path,
    rubric: str,
    sut: SystemUnderTest | SutRunner = right_answer,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> BenchRunReport:
    """Run a bench with the hostile and the honest case; its log is in `room/runs`."""
    return run_cases(room, rubric, (HONEST, HOSTILE), sut, **options)


def run_cases(
    room: Path,
    rubric: str,
    cases: Iterable[str | CaseFiles],
    sut: SystemUnderTest | SutRunner = right_answer,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> BenchRunReport:
    """Run a bench with these cases; its log is in `room/runs`."""
    write_bench(room / "bench", rubric, cases)
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=room / "bench",
        out_dir=room / "runs",
        options=RunOptions(**{"isolation": "subprocess", **options}),
    )
    return asyncio.run(runner.execute(plan, system_under_test=sut))


def judged(report: BenchRunReport, harm: Callable[[BenchRunReport], str | None] | None = None) -> Outcome:
    """Say what the hostile case met. Without another witness its harm is a score that it did not earn."""
    scores = dict(report.per_case)
    hostile = scores[HOSTILE]
    got = f"scored {hostile.score}" if hostile.score else None
    return Outcome(what_it_met(hostile), harm(report) if harm else got, canonical_score(scores[HONEST]))


def what_it_met(score: BenchScore) -> str:
    """Say that a case passed, or name the failures that it has, if it has any."""
    if score.passed:
        return "passed"
    return " ".join(sorted({mode.code for mode in score.failure_modes})) or "not passed"


def judged_answers(room: Path, answers: Mapping[str, bytes]) -> Outcome:
    """Print one answer for each hostile case, named like it; harm is every score that one of them got."""
    report = run_cases(room, rubric_that_answers(answers), (HONEST, *answers), concurrency=1)
    scores = dict(report.per_case)
    sibling = canonical_score(scores.pop(HONEST))
    got = [f"{name} scored {score.score}" for name, score in scores.items() if score.score]
    return Outcome(" ".join(sorted(set(map(what_it_met, scores.values())))), ", ".join(got) or None, sibling)


def unless_the_run_ends(play: Callable[[], Outcome]) -> Outcome:
    """Play, and take it for a harm if the whole run ends: every other case is lost with it."""
    try:
        return play()
    except Exception as crash:  # noqa: BLE001 - whatever it is, there is no report
        return Outcome("no report", f"the run ended with {type(crash).__name__}")


def refused(attempt: Callable[[], object]) -> str:
    """Return the type of the refusal, or `accepted`."""
    try:
        attempt()
    except EvalError as refusal:
        return f"{type(refusal).__name__} exit {refusal.exit_code}"
    return "accepted"


def written(**fields: object) -> bytes:
    """Return the bytes of a perfect answer, with some fields changed."""
    return json.dumps(answer_with(**fields)).encode()


def right_about(case: SutCase) -> dict[str, Any]:
    """Answer a case of an honest bench rightly."""
    return {"answer": f"it is {case.case_id}"}


@dataclass
class ForeignAgent(NotingSut):
    """An agent in a process of its own, as far as the runner knows; a fault in its reply is its failure."""

    reply: Callable[[SutCase], Mapping[str, Any] | SutFault] = right_about

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Reply, and note it."""
        await super().ask(case, seconds)
        reply = self.reply(case)
        return reply if isinstance(reply, SutFault) else SutAnswer(canonical_json(reply), 0.25)


def answer_with(**fields: object) -> Mapping[str, object]:
    """Return a perfect answer of a rubric, with some fields changed."""
    return {
        "passed": True,
        "score": 1.0,
        "breakdown": {"accuracy": 1.0},
        "failure_modes": [],
        **fields,
    }


def ask(directory: Path, *arguments: str) -> Said:
    """Call `codegenie eval` in a directory, and return what it said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(directory), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        # What these attackers meet is the harness itself, whatever the machine can add to it.
        how = (
            ("--isolation", "subprocess")
            if arguments[:1] == ("run",) and "--isolation" not in arguments
            else ()
        )
        code = run_command_line(["eval", *without_a_box(*arguments), *how])
    return Said(code, out.getvalue(), err.getvalue())


POLICY = "thresholds: {bronze: 0.5}\n"
UNITS = 5
"""As few as can certify 0.5."""


def units(count: int = UNITS) -> list[str]:
    """Name the cases of a bench of so many units."""
    return [f"case-{number:02}" for number in range(count)]


def policy_in(room: Path, text: str = POLICY) -> TierPolicy:
    """Write and read the policy of a room."""
    (room / "trust-tiers.yaml").write_text(text, encoding="utf-8")
    policy = load_policy(room / "trust-tiers.yaml")
    assert policy is not None
    return policy


def advice(room: Path, *arguments: str) -> str:
    """Ask the gate about the newest run in `room/runs`, or what the arguments say.

    By the run and not by the agent: most of these agents are objects of a test and lie on no disk.
    """
    which = () if {"--run", "--sut"} & set(arguments) else ("--run", "latest")
    asked = ("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--json", *which)
    said = ask(room, *asked, *arguments)
    document = said.document
    if "error" in document:
        return f"{document['error']['type']} exit {said.code}"
    codes = dict.fromkeys(reason.partition(":")[0] for reason in document["reasons"])
    return " ".join([document["verdict"], *codes])


class ShiftedClock(SystemClock):
    """The machine's clock, off by some days."""

    def __init__(self, days: int) -> None:
        self._by = dt.timedelta(days=days)

    def now(self) -> dt.datetime:
        """Return the wrong time."""
        return super().now() + self._by
