"""Rolling again by ending a run, luck collected in the store, planted entries, keys that miss something."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.models import RunOptions
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from tests.hostile.attackers.hostile_bench import ForeignAgent, ask, policy_in, refused, right_about, units
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.logs import read_records, record_run, write_journal
from tests.support.stores import Bench, NotingSut, tagged

WRONG = "it is not"


def passed(log: Path) -> str:
    """Say how many cases of the newest run passed."""
    report = read_records(log)[-1]["body"]["report"]
    return f"{report['passed_count']} of {len(report['per_case'])} passed"


def asked_again(log: Path) -> str:
    """Say which trials of the newest run were asked for in vain before, by its record."""
    trials = read_records(log)[-1]["body"]["trials"]
    named = [f"{trial['case_id']} {trial['interrupted']}" for trial in trials if trial.get("interrupted")]
    return f"asked again: {', '.join(named) or 'none'}"


# Rolling again.


@dataclass
class HangsWhereItFails(NotingSut):
    """Answers rightly; where it would fail it hangs instead, and somebody then ends the run."""

    misses: dict[str, int] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        await super().ask(case, seconds)
        if self.misses.get(case.case_id, 0):
            self.misses[case.case_id] -= 1
            self.stop.everything("ended by SIGTERM")
            await asyncio.sleep(60)
        return SutAnswer(canonical_json(right_about(case)), 0.25)


def run_until_it_passes(room: Path, misses: dict[str, int]) -> Outcome:
    """Give the same command again until its run is finished."""
    root = write_bench(room / "bench", cases=units())
    agent = HangsWhereItFails(misses=misses)
    for _ in range(9):
        agent.stop = Stop()
        done = record_run(
            root, room / "runs", agent, stop=agent.stop, concurrency=1, cache_dir=room / "cache"
        )
        if done.report.complete:
            break
    met = f"{passed(room / 'runs')}, {asked_again(room / 'runs')}"
    rolled = len(agent.asked) > len(set(agent.asked)) and met.endswith("none")
    return Outcome(met, "a failed trial was rolled again, and nothing says so" if rolled else None)


@attack("rolled_again_by_ending_the_run")
def rolled_again_by_ending_the_run(room: Path) -> Outcome:
    return run_until_it_passes(room, {"case-01": 2})


@twin("rolled_again_by_ending_the_run")
def never_ended(room: Path) -> Outcome:
    return run_until_it_passes(room, {})


def died_before_it_was_judged(room: Path, answer: str) -> Bench:
    """End a run while the rubric has the output of its one case."""
    write_bench(room / "bench")
    stop = Stop()

    def reply(_case: SutCase) -> Mapping[str, Any]:
        asyncio.get_running_loop().call_soon(stop.everything, "Ctrl-C")
        return {"answer": answer}

    agent = ForeignAgent(reply=reply)
    bench = Bench(room, agent)
    record_run(room / "bench", bench.log, agent, stop=stop, cache_dir=bench.store)
    agent.reply = lambda _case: {"answer": answer}
    return bench


def resumed(bench: Bench) -> Outcome:
    bench.run()
    met = f"{passed(bench.log)}, {asked_again(bench.log)}"
    return Outcome(met, "an agent that is always wrong has passed" if met.startswith("1") else None)


@attack("output_planted_under_the_open_run")
def output_planted_under_the_open_run(room: Path) -> Outcome:
    bench = died_before_it_was_judged(room, WRONG)
    (entry,) = (bench.store / "outputs").rglob("*.json")
    value = decode_json(entry.read_bytes()[:-65], 1 << 20)
    value["value"]["produced"] = '{"answer":"it is one"}'
    entry.write_bytes(tagged(bench.store, canonical_json(value)))
    for file in (bench.log / "artifacts").rglob("*"):
        if file.is_file():
            file.unlink()
    return resumed(bench)


@twin("output_planted_under_the_open_run")
def an_output_that_is_still_there(room: Path) -> Outcome:
    return Outcome(resumed(died_before_it_was_judged(room, "it is one")).met)


# Luck.

_WAVERS = """\
import json, os, sys
lucky = os.path.exists({mood!r})
json.dump({{"passed": lucky, "score": float(lucky), "breakdown": {{}}, "failure_modes": []}}, sys.stdout)
"""


@dataclass(frozen=True)
class Wavering:
    """A bench whose rubric passes everything while it is lucky, and nothing otherwise."""

    room: Path

    def written(self, cases: list[str]) -> "Wavering":
        write_bench(self.room / "bench", _WAVERS.format(mood=str(self.room / "lucky")), cases)
        return self

    def run(self, *, lucky: bool, only: str | None = None, **options: Any) -> RecordedRun:  # noqa: ANN401
        (self.room / "lucky").touch() if lucky else (self.room / "lucky").unlink(missing_ok=True)
        runner = Runner()
        plan = runner.plan(
            task_class_name=TASK_CLASS,
            bench_root=self.room / "bench",
            out_dir=self.room / "runs",
            case_filter=only,
            options=RunOptions(cache_dir=self.room / "cache", isolation="subprocess", **options),
        )
        return asyncio.run(runner.record(plan, system_under_test=NotingSut(answer=WRONG)))


def picked_and_run(room: Path, *, lucky_at_last: bool) -> Outcome:
    bench = Wavering(room).written(units())
    digest = policy_in(room).digest
    for case in units():
        bench.run(lucky=True, only=case, fresh=True, policy_digest=digest)
    bench.run(lucky=lucky_at_last, policy_digest=digest)
    met = passed(room / "runs")
    return Outcome(met, "luck of many runs is the evidence of one" if met.startswith("5") else None)


@attack("lucky_scores_collected")
def lucky_scores_collected(room: Path) -> Outcome:
    return picked_and_run(room, lucky_at_last=False)


@twin("lucky_scores_collected")
def scores_that_come_out_again(room: Path) -> Outcome:
    return Outcome(picked_and_run(room, lucky_at_last=True).met)


@attack("rubric_run_again_until_it_passes")
def rubric_run_again_until_it_passes(room: Path) -> Outcome:
    bench = Wavering(room).written(["one"])
    bench.run(lucky=False)
    bench.run(lucky=True, fresh=True)
    score = dict(read_records(room / "runs")[-1]["body"]["report"]["per_case"])["one"]
    met = (score["failure_modes"] or [{"detail": passed(room / "runs")}])[0]["detail"]
    bench.run(lucky=False)
    lucky = score["passed"] or passed(room / "runs").startswith("1")
    return Outcome(met, "the second score stands in the log, or in the store" if lucky else None)


@twin("rubric_run_again_until_it_passes")
def a_rubric_that_says_the_same_again(room: Path) -> Outcome:
    bench = Wavering(room).written(["one"])
    bench.run(lucky=True)
    bench.run(lucky=True, fresh=True)
    return Outcome(passed(room / "runs"))


# Planted entries.


def planted(room: Path, answer: str, key: bytes | None) -> Outcome:
    """Let somebody put the right output where that of an agent lies, tagged as well as they can."""
    write_bench(room / "bench")
    bench = Bench(room, NotingSut(answer=answer))
    bench.run()
    (entry,) = (bench.store / "outputs").rglob("*.json")
    value = decode_json(entry.read_bytes()[:-65], 1 << 20)
    value["value"]["produced"] = '{"answer":"it is one"}'
    body = canonical_json(value)
    tag = blake3(body) if key is None else blake3(body, key=key)
    entry.write_bytes(body + b"\n" + tag.hexdigest().encode())
    bench.run()
    met = "; ".join(bench.recorded.notes) or passed(bench.log)
    wrong = answer == WRONG and passed(bench.log).startswith("1")
    return Outcome(met, "an agent that is always wrong has passed" if wrong else None)


@attack("entry_planted_without_the_key")
def entry_planted_without_the_key(room: Path) -> Outcome:
    return planted(room, WRONG, None)


@twin("entry_planted_without_the_key")
def an_entry_of_its_own_store(room: Path) -> Outcome:
    write_bench(room / "bench")
    bench = Bench(room, NotingSut())
    bench.run()
    bench.run()
    assert bench.reused() == ["both"]
    return Outcome(passed(bench.log))


def run_with_key_of_mode(room: Path, mode: int) -> Outcome:
    write_bench(room / "bench")
    bench = Bench(room, NotingSut())
    bench.run()
    (bench.store / "key").chmod(mode)
    met = refused(bench.run)
    open_to_all = mode & 0o077 and met == "accepted"
    return Outcome(met, "entries are taken that everybody could have tagged" if open_to_all else None)


@attack("key_that_everybody_reads")
def key_that_everybody_reads(room: Path) -> Outcome:
    return run_with_key_of_mode(room, 0o644)


@twin("key_that_everybody_reads")
def key_that_only_the_owner_reads(room: Path) -> Outcome:
    return run_with_key_of_mode(room, 0o600)


# Keys.


def oracle_after(room: Path, solution: str) -> Outcome:
    """Measure the oracle, write another solution, renew the digest, and measure it again."""
    recorded = {"solution/harness_output.json": json.dumps({"answer": "it is one"})}
    write_bench(room / "bench", cases=[CaseFiles("one", recorded)])
    bench = Bench(room)
    command = ("run", TASK_CLASS, "--sut", "oracle", "-q", "--out", "runs", "--cache", "cache")
    assert ask(room, *command).code == 0
    (bench.case / "solution" / "harness_output.json").write_text(solution, encoding="utf-8")
    bench.digest()
    assert ask(room, *command).code == 0
    met = passed(bench.log)
    stale = "it is one" not in solution and met.startswith("1")
    return Outcome(met, "a solution that does not solve the case has passed" if stale else None)


@attack("stale_oracle")
def stale_oracle(room: Path) -> Outcome:
    return oracle_after(room, '{"answer": "it is not"}')


@twin("stale_oracle")
def another_solution_that_is_right(room: Path) -> Outcome:
    return oracle_after(room, '{"answer": "it is one", "by": "other means"}')


def named_alike(room: Path, answer: str) -> Outcome:
    """Measure one object of the caller's, then another one of the same qualified name."""
    root = write_bench(room / "bench")

    async def agent(_case: SutCase) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        return {"answer": answer}

    agent.__module__, agent.__qualname__ = right_answer.__module__, right_answer.__qualname__
    for system in (right_answer, agent):
        record_run(root, room / "runs", system, cache_dir=room / "cache")
    met = passed(room / "runs")
    served = answer == WRONG and met.startswith("1")
    return Outcome(met, "it is served what another object produced" if served else None)


@attack("lambda_of_the_same_name")
def lambda_of_the_same_name(room: Path) -> Outcome:
    return named_alike(room, WRONG)


@twin("lambda_of_the_same_name")
def an_object_that_is_right_itself(room: Path) -> Outcome:
    return named_alike(room, "it is one")


# The journal.


def verified_after(room: Path, *, rewritten: bool) -> Outcome:
    """Finish a run that was asked twice for one trial, and rewrite the journal that is left of it."""
    run_until_it_passes(room, {"case-01": 1})
    (journal,) = (
        file
        for file in (room / "runs" / "artifacts").rglob("*")
        if file.is_file() and b"codegenie.eval.journal" in file.read_bytes()
    )
    values = [json.loads(line.split(b" ", 1)[1]) for line in journal.read_bytes().splitlines()]
    asked = [value for value in values if value.get("kind") == "asked" and value["case_id"] == "case-01"]
    assert len(asked) == 2
    if rewritten:
        values.remove(asked[0])
        write_journal(journal, values)
    said = ask(room, "verify", "--out", "runs", "--json")
    missed = rewritten and not said.code
    return Outcome(f"exit {said.code}", "the log verifies with another journal" if missed else None)


@attack("journal_rewritten_after_the_finish")
def journal_rewritten_after_the_finish(room: Path) -> Outcome:
    return verified_after(room, rewritten=True)


@twin("journal_rewritten_after_the_finish")
def journal_left_alone(room: Path) -> Outcome:
    return verified_after(room, rewritten=False)
