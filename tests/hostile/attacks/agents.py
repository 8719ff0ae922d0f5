"""Agents in the harness's process that attack by what they return, claim, spend and write."""

import asyncio
import contextlib
import io
import threading
import time
from pathlib import Path
from typing import Any, NoReturn, cast

from codegenie.eval.models import BenchRunReport
from codegenie.eval.ports import SutCase, SutResult, SystemUnderTest
from tests.hostile.attackers.hostile_bench import (
    HONEST,
    HOSTILE,
    judged,
    run_cases,
    unless_the_run_ends,
    what_it_met,
)
from tests.hostile.attackers.in_process_agents import agent_that, answers, measured, passed
from tests.hostile.engine.stage import Outcome, attack, files_that_hold, twin
from tests.support.benches import HONEST_RUBRIC, right_answer

MIB = 1 << 20


@attack("exit_in_the_process")
def exit_in_the_process(room: Path) -> Outcome:
    def leaves(_case: SutCase) -> NoReturn:
        raise SystemExit(0)

    return judged(measured(room, leaves))


@twin("exit_in_the_process")
def exit_that_is_caught(room: Path) -> Outcome:
    def nearly_leaves(case: SutCase) -> dict[str, str]:
        with contextlib.suppress(SystemExit):
            raise SystemExit(0)
        return answers(case)

    return passed(room, nearly_leaves)


class Untold(Exception):  # noqa: N818 - what matters is what it cannot say
    """An exception whose message raises another one."""

    def __str__(self) -> str:
        """Raise where only a text was asked for."""
        raise RuntimeError("not even that")


@attack("exception_that_cannot_be_told")
def exception_that_cannot_be_told(room: Path) -> Outcome:
    def raises(_case: SutCase) -> NoReturn:
        raise Untold

    with contextlib.redirect_stderr(io.StringIO()) as shown:
        outcome = judged(measured(room, raises, timeout_seconds=1.0))
    harm = "its thread died, and said so on the harness's standard error" if shown.getvalue() else None
    return Outcome(outcome.met, harm, outcome.sibling)


@twin("exception_that_cannot_be_told")
def exception_without_a_message_that_is_caught(room: Path) -> Outcome:
    def recovers(case: SutCase) -> dict[str, str]:
        with contextlib.suppress(Untold):
            raise Untold
        return answers(case)

    return passed(room, recovers)


@attack("cancellation_swallowed")
def cancellation_swallowed(room: Path) -> Outcome:
    async def stays(_case: SutCase) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    return judged(measured(room, stays, timeout_seconds=0.3))


@twin("cancellation_swallowed")
def cancellation_of_its_own_task(room: Path) -> Outcome:
    async def cancels_a_part(case: SutCase) -> dict[str, str]:
        part = asyncio.ensure_future(asyncio.sleep(3600))
        part.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await part
        return answers(case)

    return passed(room, cancels_a_part)


def _beside_a_blocker(room: Path, seconds: float) -> Outcome:
    """Block on the first case until the second was asked, or this long; never yield to a loop."""
    others = threading.Event()
    waited: list[bool] = []

    def system(case: SutCase) -> dict[str, str]:
        if case.case_id == HONEST:
            waited.append(others.wait(seconds))
            time.sleep(0.1)
        else:
            others.set()
        return answers(case)

    report = run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), cast("SystemUnderTest", system), concurrency=2)
    met = " ".join(sorted({what_it_met(score) for _, score in report.per_case}))
    return Outcome(met, None if waited == [True] else "nobody else was asked while it blocked")


@attack("event_loop_blocked")
def event_loop_blocked(room: Path) -> Outcome:
    return _beside_a_blocker(room, 2.0)


@twin("event_loop_blocked")
def event_loop_left_alone(room: Path) -> Outcome:
    report = run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), right_answer, concurrency=2)
    return Outcome(" ".join(sorted({what_it_met(score) for _, score in report.per_case})))


@attack("cost_that_is_none")
def cost_that_is_none(room: Path) -> Outcome:
    claims: dict[str, Any] = {"less": -5.0, "much": 1e300, "true": True, "text": "0", "nan": float("nan")}

    async def claims_it(case: SutCase) -> SutResult:
        return SutResult(answers(case), cost_usd=claims[case.case_id])

    def play() -> Outcome:
        report = run_cases(room, HONEST_RUBRIC, claims, cast("SystemUnderTest", claims_it), concurrency=1)
        met = " ".join(sorted({what_it_met(score) for _, score in report.per_case}))
        costs = {name: score.cost_usd for name, score in report.per_case if score.cost_usd is not None}
        return Outcome(met, f"counted {costs}" if costs else None)

    return unless_the_run_ends(play)


@twin("cost_that_is_none")
def cost_that_is_one(room: Path) -> Outcome:
    return passed(room, lambda case: SutResult(answers(case), cost_usd=0.25, usage={"tokens": 3}))


def _spending(room: Path, each: float) -> tuple[BenchRunReport, int]:
    """Spend on each of twelve cases under a cap of three dollars; return how many agents were asked."""
    calls: list[str] = []

    async def spends(case: SutCase) -> SutResult:
        calls.append(case.case_id)
        return SutResult(answers(case), cost_usd=each)

    cases = [f"case-{number:02}" for number in range(12)]
    agent = cast("SystemUnderTest", spends)
    return run_cases(room, HONEST_RUBRIC, cases, agent, max_cost_usd=3.0, concurrency=1), len(calls)


@attack("wallet_emptied")
def wallet_emptied(room: Path) -> Outcome:
    report, calls = _spending(room, 1.0)
    met = " ".join(sorted({what_it_met(score) for _, score in report.per_case}))
    return Outcome(met, f"spent {calls} dollars of 3" if calls > 3 else None)


@twin("wallet_emptied")
def wallet_respected(room: Path) -> Outcome:
    report, calls = _spending(room, 0.1)
    met = " ".join(sorted({what_it_met(score) for _, score in report.per_case}))
    return Outcome(met, None if calls == 12 else "it was stopped early")


@attack("input_rewritten")
def input_rewritten(room: Path) -> Outcome:
    def rewrites(case: SutCase) -> dict[str, str]:
        (Path(case.input_dir) / "question.txt").write_text("what is easy?\n", encoding="utf-8")
        return {"answer": "easy"}

    outcome = unless_the_run_ends(lambda: judged(measured(room, rewrites)))
    changed = files_that_hold(b"what is easy?", room / "bench")
    return Outcome(outcome.met, "it rewrote the bench" if changed else None, outcome.sibling)


@twin("input_rewritten")
def input_rewritten_and_solved(room: Path) -> Outcome:
    def rewrites(case: SutCase) -> dict[str, str]:
        (Path(case.input_dir) / "question.txt").write_text("solved\n", encoding="utf-8")
        return answers(case)

    return passed(room, rewrites)


@attack("expected_answer_read")
def expected_answer_read(room: Path) -> Outcome:
    def looks_up(case: SutCase) -> dict[str, str]:
        found = sorted(Path(case.input_dir).parent.rglob("answer.txt"))
        return {"answer": found[0].read_text(encoding="utf-8") if found else "no idea"}

    return judged(measured(room, looks_up))


@twin("expected_answer_read")
def question_read(room: Path) -> Outcome:
    def reads(case: SutCase) -> dict[str, str]:
        question = (Path(case.input_dir) / "question.txt").read_text(encoding="utf-8")
        return {"answer": question.replace("what is", "it is").removesuffix("?\n")}

    return passed(room, reads)


@attack("request_never_read")
def request_never_read(room: Path) -> Outcome:
    answer = {"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}
    deaf = f"import json, sys\njson.dump({answer!r}, sys.stdout)\n"
    agent = agent_that(lambda case: {**answers(case), "diff": "x" * (4 * MIB)})
    report = run_cases(room, deaf, (HOSTILE,), agent)
    return Outcome(what_it_met(dict(report.per_case)[HOSTILE]))


@twin("request_never_read")
def request_read_in_full(room: Path) -> Outcome:
    return passed(room, lambda case: {**answers(case), "diff": "x" * (4 * MIB)})
