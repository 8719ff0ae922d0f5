"""Journals of dead runs that were edited, invented, swapped or put back, so that a resumed run says more."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegenie.eval.runner import Runner
from tests.hostile.attackers.hostile_bench import ForeignAgent, ask
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import ECHO_RUBRIC, TASK_CLASS, write_bench
from tests.support.dead_runs import measured
from tests.support.logs import VERDICTS, StopAfter, read_records, record_run, stopped_run, write_journal

Line = dict[str, Any]


class DeadRun:
    """A run that died with two of its three trials measured, one of them blocked; its store is gone."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.log = room / "runs"
        self._root = write_bench(room / "bench", ECHO_RUBRIC, VERDICTS)
        stopped_run(self._root, self.log, 2, cache_dir=room / "cache")
        shutil.rmtree(room / "cache")
        (self.journal,) = (self.log / "journal").iterdir()

    def lines(self) -> list[Line]:
        """Return what the journal says: its header, all of the blocked trial, all of one that passed."""
        return [json.loads(line.split(b" ", 1)[1]) for line in self.journal.read_bytes().splitlines()]

    def write(self, lines: list[Line]) -> None:
        write_journal(self.journal, lines)

    def resume(self) -> str:
        """Run the same command again and return the kinds of all records."""
        record_run(self._root, self.log, cache_dir=self.room / "cache")
        return self.kinds

    @property
    def kinds(self) -> str:
        """Return the kinds of all records."""
        return " ".join(record["kind"].removeprefix("run.") for record in read_records(self.log))

    @property
    def scores(self) -> dict[str, Any]:
        """Return what the newest report says of every case."""
        return dict(read_records(self.log)[-1]["body"]["report"]["per_case"])


def resumed_with(room: Path, forge: Callable[[DeadRun], object]) -> Outcome:
    """Let somebody at the journal, resume, and see whether the blocked case has got away."""
    dead = DeadRun(room)
    forge(dead)
    kinds = dead.resume()
    measured_before = read_records(dead.log)[1]["body"].get("finished_trials", 0)
    blocked = dead.scores["blocked"]
    got = f"the blocked case scores {blocked['score']}" if blocked["score"] else None
    return Outcome(f"{kinds}, {measured_before} kept", got)


def untouched(room: Path) -> Outcome:
    """Resume a run whose journal nobody touched."""
    return resumed_with(room, lambda dead: dead)


for _scenario in ("journal_line_edited", "journal_line_forged"):
    twin(_scenario)(untouched)


@attack("journal_line_edited")
def journal_line_edited(room: Path) -> Outcome:
    def forge(dead: DeadRun) -> None:
        raw = dead.journal.read_bytes()
        start = raw.index(b'"failure_modes":[{')
        end = raw.index(b"]", start)
        dead.journal.write_bytes(raw[:start] + b'"failure_modes":[' + raw[end:])

    return resumed_with(room, forge)


@attack("journal_line_forged")
def journal_line_forged(room: Path) -> Outcome:
    def forge(dead: DeadRun) -> None:
        lines = dead.lines()
        blocked, _passed = measured(lines)
        blocked["answer"]["failure_modes"][0]["severity"] = "warn"
        dead.write(lines)

    return resumed_with(room, forge)


@attack("journal_line_twice")
def journal_line_twice(room: Path) -> Outcome:
    dead = DeadRun(room)
    lines = dead.lines()
    better = json.loads(json.dumps(measured(lines)[1]))
    better["answer"]["score"] = 1.0
    dead.write([*lines, better])
    kinds = dead.resume()
    score = dead.scores["passed"]["score"]
    return Outcome(kinds, f"a score of 0.75 became {score}" if score > 0.75 else None)


@twin("journal_line_twice")
def the_same_line_twice(room: Path) -> Outcome:
    dead = DeadRun(room)
    lines = dead.lines()
    dead.write([*lines, measured(lines)[1]])
    return Outcome(dead.resume())


@attack("journal_of_another_rubric")
def journal_of_another_rubric(room: Path) -> Outcome:
    dead = DeadRun(room)
    (room / "bench" / TASK_CLASS / "rubric.py").write_text(
        'print(\'{"passed": false, "score": 0.0, "breakdown": {}, "failure_modes": []}\')\n', encoding="utf-8"
    )
    kinds = dead.resume()
    kept = [case_id for case_id, score in dead.scores.items() if score["score"]]
    return Outcome(kinds, f"{kept} keep what the old rubric said" if kept else None)


@twin("journal_of_another_rubric")
def journal_of_the_same_rubric(room: Path) -> Outcome:
    return Outcome(DeadRun(room).resume())


def put_back(room: Path, *, journal: bool) -> Outcome:
    """Resume a run to its end, perhaps put its journal back, and run the command once more."""
    dead = DeadRun(room)
    kept = dead.journal.read_bytes()
    dead.resume()
    if journal:
        dead.journal.write_bytes(kept)
    dead.resume()
    said = ask(room, "verify", "--out", "runs", "--json")
    return Outcome(f"{dead.kinds}, exit {said.code}", "the log is broken for ever" if said.code else None)


@attack("journal_of_a_finished_run")
def journal_of_a_finished_run(room: Path) -> Outcome:
    return put_back(room, journal=True)


@twin("journal_of_a_finished_run")
def two_runs_after_each_other(room: Path) -> Outcome:
    return put_back(room, journal=False)


@attack("resumed_while_it_runs")
def resumed_while_it_runs(room: Path) -> Outcome:
    dead = DeadRun(room)
    with dead.journal.open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        kinds = dead.resume()
    return Outcome(kinds, "a run that is under way was taken over" if "resumed" in kinds else None)


@twin("resumed_while_it_runs")
def resumed_after_it_died(room: Path) -> Outcome:
    dead = DeadRun(room)
    with dead.journal.open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
    return Outcome(dead.resume())


def spent_in_two_runs(room: Path, cap: float) -> int:
    """Let a run with a cap die after two of six trials, resume it, and count how often the agent was paid."""
    root = write_bench(room / "bench", cases=[f"case-{number}" for number in range(6)])
    watch = StopAfter(2)
    agent = ForeignAgent()  # each of whose answers costs a quarter of a dollar
    options: dict[str, Any] = {"cache_dir": room / "cache", "concurrency": 1, "max_cost_usd": cap}
    runner = Runner(progress=watch)
    record_run(root, room / "runs", agent, runner=runner, stop=watch.stop, **options)
    record_run(root, room / "runs", agent, **options)
    return len(agent.asked)


@attack("budget_renewed_by_dying")
def budget_renewed_by_dying(room: Path) -> Outcome:
    asked = spent_in_two_runs(room, 0.75)
    return Outcome(f"asked {asked} times", f"paid {asked / 4} of 0.75 USD" if asked > 3 else None)


@twin("budget_renewed_by_dying")
def a_budget_for_all(room: Path) -> Outcome:
    return Outcome(f"asked {spent_in_two_runs(room, 9.0)} times")
