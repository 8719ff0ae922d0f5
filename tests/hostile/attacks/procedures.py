"""Procedures that edit no record and end in a false `sufficient`: second tries, other agents, clones."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegenie.eval.canonical import canonical_json
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutRunner
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import (
    UNITS,
    ForeignAgent,
    ShiftedClock,
    advice,
    ask,
    policy_in,
    refused,
    right_about,
    units,
)
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.logs import forge, record_files, record_run, stopped_run

AGENT = "python:agents:solve"
RIGHT = "return {'answer': 'it is ' + case.case_id}"
WRONG = "return {'answer': 'it is not'}"


def furnished(room: Path, cases: list[str] | list[CaseFiles] | None = None) -> Path:
    """Write a bench and a policy."""
    write_bench(room / "bench", cases=units() if cases is None else cases)
    policy_in(room)
    return room


def measured(room: Path, body: str = RIGHT, *arguments: str, sut: str = AGENT, more: str = "") -> None:
    """Let an agent whose function has this body be measured by the command line."""
    (room / "agents.py").write_text(f"{more}def solve(case):\n    {body}\n", encoding="utf-8")
    ask(room, "run", TASK_CLASS, "--sut", sut, "--out", "runs", "-q", *arguments)


def promoted(room: Path, harm: str, *whose: str) -> Outcome:
    """Ask about the agent that lies there; a sufficient verdict is the harm."""
    met = advice(room, *(whose or ("--sut", AGENT)))
    return Outcome(met, harm if met == "sufficient" else None)


def good_agent(room: Path) -> Outcome:
    """Measure a good agent once and ask about it."""
    measured(furnished(room))
    return Outcome(advice(room, "--sut", AGENT))


for _scenario in (
    "killed_until_it_passes",
    "bad_runs_given_up",
    "oracle_in_place_of_an_agent",
    "worse_agent_ends_early",
    "agent_changed_after_its_run",
    "a_comment_for_every_try",
    "a_call_of_a_call",
    "clones_under_many_names",
    "runner_that_claims_a_process",
    "one_run_of_the_year_2040",
):
    twin(_scenario)(good_agent)


# Second tries.


@attack("killed_until_it_passes")
def killed_until_it_passes(room: Path) -> Outcome:
    measured(furnished(room))

    def was_asked_twice(record: dict[str, Any]) -> None:
        record["body"]["trials"][0]["interrupted"] = 3

    # As a resumed run writes it down; how it gets there is for those who attack the journal.
    forge(room / "runs", 1, was_asked_twice)
    return promoted(room, "the fourth answer counts as the first")


@attack("bad_runs_given_up")
def bad_runs_given_up(room: Path) -> Outcome:
    digest = policy_in(furnished(room)).digest
    bad, good = ForeignAgent(reply=lambda _case: {"answer": "no"}), ForeignAgent(reply=right_about)
    stopped_run(room / "bench", room / "runs", 2, sut=bad, policy_digest=digest)
    ask(room, "abandon", "latest", "--because", "it goes badly", "--out", "runs")
    record_run(room / "bench", room / "runs", good, policy_digest=digest)
    return promoted(room, "a run that goes badly is taken back", "--run", "latest")


# Other agents.


@attack("another_agent_finishes_last")
def another_agent_finishes_last(room: Path) -> Outcome:
    measured(furnished(room), WRONG)
    (room / "good.py").write_text(f"def solve(case):\n    {RIGHT}\n", encoding="utf-8")
    ask(room, "run", TASK_CLASS, "--sut", "python:good:solve", "--out", "runs", "-q")
    said = ask(room, "promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--json")
    if said.code == 0:
        return Outcome("sufficient", "whoever finished last was judged")
    return Outcome(f"{said.document['error']['type']} exit {said.code}")


@twin("another_agent_finishes_last")
def the_only_agent_need_not_be_named(room: Path) -> Outcome:
    measured(furnished(room))
    said = ask(room, "promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--json")
    return Outcome(said.document["verdict"])


@attack("oracle_in_place_of_an_agent")
def oracle_in_place_of_an_agent(room: Path) -> Outcome:
    solved = [
        CaseFiles(name, {"solution/harness_output.json": f'{{"answer": "it is {name}"}}'}) for name in units()
    ]
    measured(furnished(room, solved), sut="oracle")
    return promoted(room, "who knows the solutions is promoted", "--sut", "oracle")


@attack("worse_agent_ends_early")
def worse_agent_ends_early(room: Path) -> Outcome:
    measured(furnished(room))
    good = (room / "agents.py").read_bytes()
    costly = "from codegenie.eval.ports import SutResult\n\n\n"
    measured(room, "return SutResult({}, 1.0)", "--max-cost-usd", "1", more=costly)
    (room / "agents.py").write_bytes(good)
    return promoted(room, "a start that came to nothing is passed over")


@attack("agent_changed_after_its_run")
def agent_changed_after_its_run(room: Path) -> Outcome:
    measured(furnished(room))
    (room / "agents.py").write_text(f"def solve(case):\n    {WRONG}\n", encoding="utf-8")
    return promoted(room, "an agent that was never measured is promoted")


@attack("a_comment_for_every_try")
def a_comment_for_every_try(room: Path) -> Outcome:
    furnished(room)
    body = f"return {{'answer': open({str(room / 'word')!r}).read() + case.case_id}}"
    for number, word in enumerate(("it was ", "it is ")):
        (room / "word").write_text(word, encoding="utf-8")
        measured(room, f"{body}  # try {number}")
    return promoted(room, "the second try is a new candidate")


@attack("a_call_of_a_call")
def a_call_of_a_call(room: Path) -> Outcome:
    furnished(room)
    body = f"return {{'answer': open({str(room / 'word')!r}).read() + case.case_id}}"
    (room / "word").write_text("it was ", encoding="utf-8")
    measured(room, body)
    (room / "word").write_text("it is ", encoding="utf-8")
    (room / "agents.py").write_text(f"def solve(case):\n    {body}\n", encoding="utf-8")
    name = f"{AGENT}.__call__"
    said = ask(room, "run", TASK_CLASS, "--sut", name, "--out", "runs", "-q", "--json")
    if said.code:
        return Outcome(f"{said.document['error']['type']} exit {said.code}")
    return promoted(room, "the same agent under another name is a new candidate", "--sut", name)


def claim(room: Path) -> str:
    said = ask(room, "promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--sut", AGENT)
    assert said.code == 0, said.out
    return "a rate is claimed" if "at most 5 % of the time" in said.out else "no rate is claimed"


@attack("five_percent_of_twenty_tries")
def five_percent_of_twenty_tries(room: Path) -> Outcome:
    furnished(room)
    for body in (WRONG, "return {}", RIGHT):
        measured(room, body)
    met = claim(room)
    return Outcome(met, None if met == "no rate is claimed" else "5 % are claimed of the best of three")


@twin("five_percent_of_twenty_tries")
def five_percent_of_one_try(room: Path) -> Outcome:
    measured(furnished(room))
    return Outcome(claim(room))


# Units and boundaries.


@attack("clones_under_many_names")
def clones_under_many_names(room: Path) -> Outcome:
    same = {"input/question.txt": "what is it?\n", "expected/answer.txt": "it is that"}
    measured(furnished(room, [CaseFiles(name, same) for name in units()]), "return {'answer': 'it is that'}")
    return promoted(room, f"one case under {UNITS} names is {UNITS} units")


@dataclass
class Stranger(SutRunner):
    """A runner that an embedder wrote; its agent is a function in this very process."""

    identity: SutIdentity = field(default_factory=lambda: SutIdentity(spec="command:agent"))
    boundary: SutBoundary = "process"
    wants_input: bool = False

    async def prepare(self) -> None:
        """Need nothing."""

    async def ask(self, case: SutCase, _seconds: float) -> SutAnswer:
        """Answer in this process."""
        answer: Mapping[str, Any] = right_about(case)
        return SutAnswer(canonical_json(answer), 0.0)

    async def close(self) -> None:
        """Hold nothing open."""


@attack("runner_that_claims_a_process")
def runner_that_claims_a_process(room: Path) -> Outcome:
    digest = policy_in(furnished(room)).digest
    met = refused(lambda: record_run(room / "bench", room / "runs", Stranger(), policy_digest=digest))
    return Outcome(met) if met != "accepted" else promoted(room, "it is evidence", "--run", "latest")


# Clocks and links.


@attack("one_run_of_the_year_2040")
def one_run_of_the_year_2040(room: Path) -> Outcome:
    measured(furnished(room))

    def ahead(record: dict[str, Any]) -> None:
        record["recorded_at"] = "2040-01-01T00:00:00Z"
        report = record["body"].get("report", {})
        report |= dict.fromkeys(("started_at", "ended_at"), record["recorded_at"]) if report else {}

    forge(room / "runs", 1, ahead)
    forge(room / "runs", 0, ahead)
    measured(room, RIGHT, "--no-cache")
    met = advice(room, "--sut", AGENT)
    return Outcome(met, None if met == "sufficient" else "the agent is barred until 2040")


def started_by_a_clock(room: Path, days: int) -> str:
    furnished(room)
    runner = Runner(clock=ShiftedClock(days))
    return refused(lambda: record_run(room / "bench", room / "runs", ForeignAgent(), runner=runner))


@attack("one_run_of_the_year_2099")
def one_run_of_the_year_2099(room: Path) -> Outcome:
    met = started_by_a_clock(room, 73 * 365)
    return Outcome(met, "the log holds a run of 2099" if met == "accepted" else None)


@twin("one_run_of_the_year_2099")
def one_run_of_tomorrow(room: Path) -> Outcome:
    return Outcome(started_by_a_clock(room, 1))


def link_under_way(room: Path, *, turn: bool) -> Outcome:
    """Run with a link as log, which is perhaps turned when the agent is asked for the first time."""
    furnished(room)
    link = room / "log"
    for name in ("here", "there"):
        (room / name).mkdir()
    link.symlink_to(room / "here")

    def reply(case: SutCase) -> dict[str, str]:
        if turn:
            link.unlink()
            link.symlink_to(room / "there")
        return {"answer": f"it is {case.case_id}"}

    plan = Runner().plan(task_class_name=TASK_CLASS, bench_root=room / "bench", out_dir=link)
    met = refused(lambda: asyncio.run(Runner().execute(plan, system_under_test=ForeignAgent(reply=reply))))
    counts = [len(record_files(room / name)) for name in ("here", "there")]
    if counts == [2, 0] and met == "accepted":
        return Outcome("one log with 2 records")
    return Outcome(f"{met} {counts}", "a start without a finish bars the agent")


@attack("log_behind_a_turned_link")
def log_behind_a_turned_link(room: Path) -> Outcome:
    return link_under_way(room, turn=True)


@twin("log_behind_a_turned_link")
def log_behind_a_link(room: Path) -> Outcome:
    return link_under_way(room, turn=False)
