"""Logs forged by somebody who knows the chain: every hash is right, and what they say never happened."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from codegenie.eval.models import RunOptions
from codegenie.eval.ports import SutCase, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import UNITS, ForeignAgent, advice, ask, policy_in, units
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.logs import read_records, reckon, record_run, write_log
from tests.support.working_directory import Said

Record = dict[str, Any]
Forgery = Callable[[Record, Record], object]
"""Changes the start and the finish of a run."""


def misses_some(case: SutCase) -> dict[str, str]:
    """Know every case but the first two."""
    return {"answer": "it is not" if case.case_id < "case-02" else f"it is {case.case_id}"}


def logged(
    room: Path,
    sut: SystemUnderTest | SutRunner,
    cases: Iterable[str | CaseFiles] | None = None,
    rubric: str = HONEST_RUBRIC,
    trials: int = 1,
) -> Path:
    """Record a run under a policy, and return the log."""
    write_bench(room / "bench", rubric, units() if cases is None else cases)
    record_run(room / "bench", room / "runs", sut, policy_digest=policy_in(room).digest, trials=trials)
    return room / "runs"


def forged(log: Path, forgery: Forgery) -> None:
    """Change a run of a log of one run and chain it anew."""
    start, finish = read_records(log)
    forgery(start, finish)
    write_log(log, [start, finish])


def nothing(_start: Record, _finish: Record) -> None:
    """Change nothing: writing a log anew as it was is no crime."""


def verify(room: Path, *arguments: str) -> Said:
    return ask(room, "verify", "--out", "runs", "--json", *arguments)


def held(said: Said, harm: str) -> Outcome:
    """Say how `verify` ended; to take the log is the harm."""
    return Outcome(
        f"exit {said.code} {said.document.get('file', '')}".strip(), harm if not said.code else None
    )


# Numbers.


def better_numbers(_start: Record, finish: Record) -> None:
    """Claim perfect numbers over the answers as they are."""
    finish["body"]["report"] |= {
        "mean_score": 1.0,
        "score_stddev": 0.0,
        "lower_bound_95": 0.9,
        "certified_lower_95": 0.9,
        "gaffke_lower_95": 0.9,
        "units_passed": UNITS,
        "passed_count": UNITS,
    }


def judged(room: Path, sut: SystemUnderTest | SutRunner, forgery: Forgery, harm: str) -> Outcome:
    """Forge a run and ask the gate; a sufficient verdict is the harm."""
    forged(logged(room, sut), forgery)
    met = advice(room)
    return Outcome(met, harm if met == "sufficient" else None)


@attack("stored_numbers_forged")
def stored_numbers_forged(room: Path) -> Outcome:
    harm = "the gate believed numbers that the answers do not give"
    return judged(room, ForeignAgent(reply=misses_some), better_numbers, harm)


@twin("stored_numbers_forged")
def stored_numbers_as_they_are(room: Path) -> Outcome:
    return Outcome(judged(room, ForeignAgent(), nothing, "").met)


@attack("report_of_another_boundary")
def report_of_another_boundary(room: Path) -> Outcome:
    def forgery(_start: Record, finish: Record) -> None:
        finish["body"]["report"]["sut_boundary"] = "process"
        finish["body"]["report"]["sut"]["spec"] = "python:agent:solve"

    return judged(room, right_answer, forgery, "an agent inside the harness's process is evidence")


@twin("report_of_another_boundary")
def report_of_its_own_boundary(room: Path) -> Outcome:
    return Outcome(judged(room, ForeignAgent(), nothing, "").met)


@attack("one_case_forged")
def one_case_forged(room: Path) -> Outcome:
    def forgery(_start: Record, finish: Record) -> None:
        finish["body"]["report"]["per_case"][0][1] |= {"passed": True, "score": 1.0}

    forged(logged(room, ForeignAgent(reply=misses_some), cases=units(3)), forgery)
    return held(verify(room), "a missed case is shown as passed")


@twin("one_case_forged")
def no_case_forged(room: Path) -> Outcome:
    forged(logged(room, ForeignAgent(reply=misses_some), cases=units(3)), nothing)
    return Outcome(held(verify(room), "").met)


# Evidence left out, added and weighed anew.


def right_at_first(case: SutCase) -> dict[str, str]:
    """Know the answer in the first trial only."""
    return {"answer": "it is not" if case.trial else f"it is {case.case_id}"}


@attack("bad_trials_left_out")
def bad_trials_left_out(room: Path) -> Outcome:
    def forgery(start: Record, finish: Record) -> None:
        finish["body"]["trials"] = [one for one in finish["body"]["trials"] if not one["trial"]]
        reckon(start, finish)

    forged(logged(room, ForeignAgent(reply=right_at_first), cases=units(3), trials=2), forgery)
    return held(verify(room), "of two trials only the good one is in the log")


@twin("bad_trials_left_out")
def all_trials_kept(room: Path) -> Outcome:
    forged(logged(room, ForeignAgent(reply=right_at_first), cases=units(3), trials=2), reckon)
    return Outcome(held(verify(room), "").met)


def answering(answer: str) -> str:
    """Return a rubric that always prints this."""
    return f"print({answer!r})\n"


BLOCKED = answering(
    '{"passed": true, "score": 1.0, "breakdown": {}, "failure_modes": [{"code": "answer.wrong"}]}'
)
UNKNOWN_KEY = answering('{"passed": true, "score": 1.0, "breakdown": {"charm": 1.0}, "failure_modes": []}')


def warned(_start: Record, finish: Record) -> None:
    """Make every failure a warning."""
    for trial in finish["body"]["trials"]:
        for mode in trial["answer"]["failure_modes"]:
            mode["severity"] = "warn"


@attack("block_made_a_warning")
def block_made_a_warning(room: Path) -> Outcome:
    def forgery(start: Record, finish: Record) -> None:
        warned(start, finish)
        reckon(start, finish)

    forged(logged(room, ForeignAgent(), ["one"], BLOCKED), forgery)
    return held(verify(room), "a blocked case passed")


@twin("block_made_a_warning")
def a_block_that_stays_one(room: Path) -> Outcome:
    forged(logged(room, ForeignAgent(), ["one"], BLOCKED), reckon)
    return Outcome(held(verify(room), "").met)


def elsewhere(room: Path, forgery: Forgery) -> Said:
    """Verify a forged log where there is no bench to compare it with."""
    forged(logged(room, ForeignAgent(), ["one"], UNKNOWN_KEY), forgery)
    return verify(room, "--bench-root", "nowhere")


@attack("failure_of_the_runner_made_a_warning")
def failure_of_the_runner_made_a_warning(room: Path) -> Outcome:
    def forgery(start: Record, finish: Record) -> None:
        start["body"]["severities"]["rubric.unknown_breakdown_key"] = "warn"
        warned(start, finish)
        reckon(start, finish)

    return held(elsewhere(room, forgery), "an answer that was refused passed")


@twin("failure_of_the_runner_made_a_warning")
def failure_of_the_runner(room: Path) -> Outcome:
    return Outcome(held(elsewhere(room, reckon), "").met)


def with_second_finish(room: Path, *, appended: bool) -> Outcome:
    """Append a perfect finish of a run that has finished badly; nothing that was there is touched."""
    log = logged(room, ForeignAgent(reply=misses_some))
    start, finish = read_records(log)
    noted = verify(room).document["chain_head"]
    better = {**finish, "body": {**finish["body"], "report": {**finish["body"]["report"]}}}
    better["body"]["trials"] = [
        {**trial, "answer": {**trial["answer"], "passed": True, "score": 1.0}}
        for trial in finish["body"]["trials"]
    ]
    reckon(start, better)
    write_log(log, [start, finish, better] if appended else [start, finish])
    said = verify(room, "--expect-head", noted)
    lucky = advice(room) == "sufficient"
    return Outcome(held(said, "").met, "the run finished twice, the second time well" if lucky else None)


@attack("second_finish")
def second_finish(room: Path) -> Outcome:
    return with_second_finish(room, appended=True)


@twin("second_finish")
def one_finish(room: Path) -> Outcome:
    return with_second_finish(room, appended=False)


# What the digests of a start cover.


def one_family(room: Path) -> Path:
    """Record an agent that passes five variations of one case, which are one unit."""
    cases = [CaseFiles(f"case-{number:02}", fields={"family": "the-one"}) for number in range(UNITS)]
    return logged(room, ForeignAgent(), cases)


def split(start: Record, finish: Record) -> None:
    """Say of every case that it is a family of its own; every digest stays what it was."""
    for case in start["body"]["cases"]:
        case["family"] = case["case_id"]
    reckon(start, finish)


@attack("families_split_in_the_log")
def families_split_in_the_log(room: Path) -> Outcome:
    forged(one_family(room), split)
    return held(verify(room), "one unit is verified as five")


@twin("families_split_in_the_log")
def a_family_stays_together(room: Path) -> Outcome:
    forged(one_family(room), reckon)
    return Outcome(held(verify(room), "").met)


@attack("families_split_for_the_gate")
def families_split_for_the_gate(room: Path) -> Outcome:
    forged(one_family(room), split)
    met = advice(room)
    return Outcome(met, "one unit is evidence as five" if met == "sufficient" else None)


@twin("families_split_for_the_gate")
def families_of_one_each(room: Path) -> Outcome:
    forged(logged(room, ForeignAgent()), split)
    return Outcome(advice(room))


def selected(room: Path, kind: str) -> Outcome:
    """Run two of three cases, and say in the log what was selected."""
    write_bench(room / "bench", cases=["one", "two", "three"])
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=room / "bench",
        out_dir=room / "runs",
        case_filter=["one", "two"],
        options=RunOptions(isolation="subprocess"),
    )
    asyncio.run(runner.execute(plan, system_under_test=ForeignAgent()))
    log = room / "runs"

    def forgery(start: Record, finish: Record) -> None:
        for body in (start["body"], finish["body"]["report"]):
            body["selection"] |= {"kind": kind}

    forged(log, forgery)
    return held(verify(room), "two of three cases are all of them")


@attack("selection_called_whole")
def selection_called_whole(room: Path) -> Outcome:
    return selected(room, "all")


@twin("selection_called_whole")
def selection_called_partial(room: Path) -> Outcome:
    return Outcome(selected(room, "partial").met)
