"""Runs, policies and clocks arranged so that an agent looks better than it is."""

import asyncio
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.models import RunOptions, SutNetwork
from codegenie.eval.ports import SutCase, SutFault, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import (
    POLICY,
    UNITS,
    ForeignAgent,
    ShiftedClock,
    advice,
    policy_in,
    refused,
    units,
)
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support import gate
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.logs import StopAfter, record_run


def knows(count: int) -> ForeignAgent:
    """Return an agent that knows so many cases from the first on, and is wrong about the others."""

    def reply(case: SutCase) -> dict[str, str]:
        return {"answer": f"it is {case.case_id}" if int(case.case_id[-2:]) < count else "it is not"}

    return ForeignAgent(reply=reply)


def measured(
    room: Path,
    sut: SystemUnderTest | SutRunner | None = None,
    cases: Iterable[str | CaseFiles] | None = None,
    policy: str = POLICY,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> None:
    """Record a run of a bench, which is written if there is none, under a policy."""
    if not (room / "bench").exists():
        write_bench(room / "bench", cases=units() if cases is None else cases)
    options = {"policy_digest": policy_in(room, policy).digest, **options}
    record_run(room / "bench", room / "runs", sut or ForeignAgent(), **options)


def judged(room: Path, harm: str, *arguments: str) -> Outcome:
    """Ask the gate; a sufficient verdict is the harm."""
    met = advice(room, *arguments)
    return Outcome(met, harm if met == "sufficient" else None)


def good_run(room: Path) -> Outcome:
    """Judge a whole run of a good agent under the policy of today."""
    measured(room)
    return Outcome(advice(room))


for _scenario in (
    "silent_bootstrap",
    "failures_out_of_the_denominator",
    "three_of_three",
    "best_prefix",
    "misspelled_policy",
    "one_case_in_many_copies",
    "trials_as_units",
    "agent_inside_the_harness",
    "best_of_three",
    "weak_isolation",
    "agent_without_walls",
    "no_case_held_out",
):
    twin(_scenario)(good_run)


# Numbers.


@attack("bound_that_is_no_number")
def bound_that_is_no_number(_room: Path) -> Outcome:
    perfect = gate.report(20, 20)
    broken = perfect.model_copy(update={"lower_bound_95": math.nan})
    verdict = gate.judged(gate.evidence(broken))
    met = " ".join([verdict.verdict, *sorted(gate.codes(verdict))])
    return Outcome(met, "a bound that is no number is above 0.8" if met == "sufficient" else None)


@twin("bound_that_is_no_number")
def bound_that_is_one(_room: Path) -> Outcome:
    return Outcome(gate.judged(gate.evidence(gate.report(20, 20))).verdict)


@attack("silent_bootstrap")
def silent_bootstrap(room: Path) -> Outcome:
    write_bench(room / "bench", HONEST_RUBRIC.replace("score = float(right)", "score = 0.1"), units())
    measured(room)
    return judged(room, "passed with a tenth of the score, and alike, so that no bootstrap speaks")


def fails_on_the_hard(case: SutCase) -> dict[str, str] | SutFault:
    """Know the first cases and break down on the others."""
    if int(case.case_id[-2:]) >= UNITS:
        return SutFault("sut.exception", "out of memory")
    return {"answer": f"it is {case.case_id}"}


@attack("failures_out_of_the_denominator")
def failures_out_of_the_denominator(room: Path) -> Outcome:
    measured(room, ForeignAgent(reply=fails_on_the_hard), units(8))
    return judged(room, "5 of 8 are 5 of 5: what fails does not count")


@attack("three_of_three")
def three_of_three(room: Path) -> Outcome:
    measured(room, cases=units(3))
    return judged(room, "three perfect cases certify 0.5")


@attack("one_case_in_many_copies")
def one_case_in_many_copies(room: Path) -> Outcome:
    measured(room, cases=[CaseFiles(name, fields={"family": "the-one"}) for name in units()])
    return judged(room, "five copies of one case are five units")


@attack("trials_as_units")
def trials_as_units(room: Path) -> Outcome:
    measured(room, cases=units(3), trials=5)
    return judged(room, "three cases, tried five times, are fifteen units")


# Which run is shown.


@attack("best_of_three")
def best_of_three(room: Path) -> Outcome:
    for agent in (knows(2), knows(3), knows(UNITS)):
        measured(room, agent)
    return judged(room, "the lucky run of three is shown")


@attack("stopped_after_the_easy_cases")
def stopped_after_the_easy_cases(room: Path) -> Outcome:
    watch = StopAfter(UNITS)
    stopping = {"runner": Runner(progress=watch), "stop": watch.stop, "concurrency": 1}
    measured(room, knows(UNITS), units(6), policy="thresholds: {bronze: 0.4}\n", **stopping)
    return judged(room, "a run that was ended in time is evidence")


@twin("stopped_after_the_easy_cases")
def not_stopped(room: Path) -> Outcome:
    measured(room, knows(UNITS), units(6), policy="thresholds: {bronze: 0.4}\n")
    return Outcome(advice(room))


@attack("best_prefix")
def best_prefix(room: Path) -> Outcome:
    write_bench(room / "bench", cases=units(8))
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=room / "bench",
        out_dir=room / "runs",
        case_filter=units(),
        options=RunOptions(isolation="subprocess", policy_digest=policy_in(room).digest),
    )
    asyncio.run(runner.execute(plan, system_under_test=knows(UNITS)))
    # The cases that would have been missed leave the bench, so that it is the one that was measured.
    for name in units(8)[UNITS:]:
        shutil.rmtree(room / "bench" / TASK_CLASS / "cases" / name)
    task_class = load_task_class(TASK_CLASS, bench_root=room / "bench")
    write_digests(task_class, digest_statuses(task_class))
    return judged(room, "the run ended where it looked best", "--run", "latest")


@attack("agent_inside_the_harness")
def agent_inside_the_harness(room: Path) -> Outcome:
    measured(room, right_answer)
    return judged(room, "an agent that could write into the harness's memory is evidence")


# The policy.


@attack("policy_lowered_afterwards")
def policy_lowered_afterwards(room: Path) -> Outcome:
    measured(room, knows(3))
    policy_in(room, "thresholds: {bronze: 0.15}\n")
    return judged(room, "the threshold came after the numbers")


@twin("policy_lowered_afterwards")
def a_human_promoted_meanwhile(room: Path) -> Outcome:
    measured(room)
    policy_in(room, POLICY + "current_tiers: {another-class: bronze}\n")
    return Outcome(advice(room))


@attack("policy_chosen_afterwards")
def policy_chosen_afterwards(room: Path) -> Outcome:
    measured(room, knows(3), policy_digest=None)
    policy_in(room, "thresholds: {bronze: 0.15}\n")
    return judged(room, "a run without a policy got one that it meets")


@twin("policy_chosen_afterwards")
def policy_chosen_before(room: Path) -> Outcome:
    measured(room, knows(3), policy="thresholds: {bronze: 0.15}\n")
    return Outcome(advice(room))


@attack("misspelled_policy")
def misspelled_policy(room: Path) -> Outcome:
    measured(room)
    demand = "minimum_isolaton: {bronze: namespace}\nweights: {hard: 0}\n"
    (room / "trust-tiers.yaml").write_text(POLICY + demand, encoding="utf-8")
    return judged(room, "a demand of the policy was passed over in silence")


def under(room: Path, policy: str, agent: ForeignAgent, tier: str) -> Outcome:
    """Measure an agent on a bench of six cases and two tiers, and judge it, all under one policy."""
    write_bench(room / "bench", cases=units(6))
    registration = room / "bench" / TASK_CLASS / "registration.py"
    both = registration.read_text(encoding="utf-8").replace('"bronze": 1', '"bronze": 1, "silver": 1')
    registration.write_text(both, encoding="utf-8")
    met = refused(lambda: measured(room, agent, policy=policy))
    if met == "accepted":
        return judged(room, f"sufficient for {tier} under a policy that asks for nothing", "--tier", tier)
    return Outcome(met)


# Both say aloud that neither rubrics nor agents of these plays have walls: thresholds alone are attacked.
_WITHOUT_WALLS = "minimum_isolation: {silver: subprocess}\nminimum_sut_boundary: {silver: process}\n"
FALLING = f"{_WITHOUT_WALLS}thresholds: {{bronze: 0.5, silver: 0.2}}\n"
RISING = f"{_WITHOUT_WALLS}thresholds: {{bronze: 0.3, silver: 0.6}}\n"


@attack("falling_thresholds")
def falling_thresholds(room: Path) -> Outcome:
    return under(room, FALLING, knows(4), "silver")


@twin("falling_thresholds")
def rising_thresholds(room: Path) -> Outcome:
    return Outcome(under(room, RISING, knows(6), "silver").met)


@attack("even_chance_of_error")
def even_chance_of_error(room: Path) -> Outcome:
    return under(room, "thresholds: {bronze: 0.5}\nalpha: 0.5\n", knows(5), "bronze")


@twin("even_chance_of_error")
def small_chance_of_error(room: Path) -> Outcome:
    return Outcome(under(room, "thresholds: {bronze: 0.45}\nalpha: 0.1\n", knows(5), "bronze").met)


@attack("weak_isolation")
def weak_isolation(room: Path) -> Outcome:
    policy = POLICY + "minimum_isolation: {bronze: namespace}\n"
    measured(room, policy=policy, isolation="subprocess")
    return judged(room, "a tier that needs namespaces was reached without")


@attack("agent_without_walls")
def agent_without_walls(room: Path) -> Outcome:
    measured(room, policy=POLICY + "minimum_sut_boundary: {bronze: landlock}\n")
    return judged(room, "a tier that needs a box was reached by an agent that could read the answers")


def gold_with(network: SutNetwork) -> str:
    """Ask the gate for gold, about a perfect run in the strongest boxes."""
    verdict = gate.judged(gate.evidence(gate.report(29, 29, sut_network=network)), "gold")
    return " ".join([verdict.verdict, *sorted(gate.codes(verdict))])


@attack("gold_over_the_network_of_the_host")
def gold_over_the_network_of_the_host(_room: Path) -> Outcome:
    met = gold_with("host")
    return Outcome(met, "an agent that could fetch the answers is gold" if met == "sufficient" else None)


@twin("gold_over_the_network_of_the_host")
def gold_through_the_broker(_room: Path) -> Outcome:
    return Outcome(gold_with("broker"))


@attack("no_case_held_out")
def no_case_held_out(room: Path) -> Outcome:
    corpus = {"curation_class": "rag-corpus-derived"}
    cases = [CaseFiles(name, fields=corpus) for name in units()]
    measured(room, cases=cases, policy=POLICY + "minimum_held_out: {bronze: 5}\n")
    return judged(room, "an agent that may have seen every case is evidence")


# Time.


def dated(room: Path, days: int) -> Outcome:
    """Record a good run by a clock that is off by some days."""
    measured(room, runner=Runner(clock=ShiftedClock(days)))
    return judged(room, f"evidence dated {days} days from now is fresh")


@attack("stale_evidence")
def stale_evidence(room: Path) -> Outcome:
    return dated(room, -100)


@twin("stale_evidence")
def evidence_of_last_month(room: Path) -> Outcome:
    return Outcome(dated(room, -30).met)


@attack("evidence_from_the_future")
def evidence_from_the_future(room: Path) -> Outcome:
    return dated(room, 10)


@twin("evidence_from_the_future")
def clocks_that_differ_by_minutes(room: Path) -> Outcome:
    return good_run(room)


@attack("rubric_mended_since")
def rubric_mended_since(room: Path) -> Outcome:
    measured(room)
    rubric = room / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text(HONEST_RUBRIC.replace("right = ", "right = False and "), encoding="utf-8")
    return judged(room, "what a broken rubric said is still evidence")


@twin("rubric_mended_since")
def rubric_mended_before(room: Path) -> Outcome:
    measured(room)
    rubric = room / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text(HONEST_RUBRIC + "# mended\n", encoding="utf-8")
    measured(room)
    return Outcome(advice(room))
