"""Dead runs that are trimmed, kept from their lock or given wrong advice before they are resumed."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from tests.hostile.attackers.hostile_bench import ForeignAgent, advice, ask, policy_in, right_about, units
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.hostile.engine.table import ROOT
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import SOURCES, environment
from tests.support.logs import StopAfter, read_records, record_run


@dataclass
class UnluckyOnce:
    """Replies wrongly about some cases when it is first asked, and rightly when it is asked again."""

    cases: set[str] = field(default_factory=set)

    def __call__(self, case: SutCase) -> Mapping[str, Any]:
        if case.case_id in self.cases:
            self.cases.remove(case.case_id)
            return {}
        return right_about(case)


class Candidate:
    """An agent that is measured on as many units as can certify a tier, and killed on the way."""

    def __init__(self, room: Path, unlucky: set[str]) -> None:
        self.room = room
        self.log = room / "runs"
        self.agent = ForeignAgent(reply=UnluckyOnce(unlucky))
        self._policy = policy_in(room)
        self._root = write_bench(room / "bench", cases=units())

    def run(self, after: int | None = None) -> None:
        """Run the same command, to its end or until so many trials are known; a dead run loses its store."""
        watch = StopAfter(after or 10**6)
        record_run(
            self._root,
            self.log,
            self.agent,
            runner=Runner(progress=watch),
            stop=watch.stop,
            concurrency=1,
            cache_dir=self.room / "cache",
            policy_digest=self._policy.digest,
        )
        shutil.rmtree(self.room / "cache", ignore_errors=True)

    @property
    def journal(self) -> Path:
        (journal,) = (self.log / "journal").iterdir()
        return journal

    def keep_lines(self, wanted: Callable[[int, bytes], bool]) -> None:
        lines = enumerate(self.journal.read_bytes().splitlines(keepends=True))
        self.journal.write_bytes(b"".join(line for number, line in lines if wanted(number, line)))

    def judged(self) -> Outcome:
        said = advice(self.room)
        got = "an agent that failed a case is sufficient without a miss"
        return Outcome(said, got if said == "sufficient" else None)


@attack("failed_lines_dropped_from_the_journal")
def failed_lines_dropped_from_the_journal(room: Path) -> Outcome:
    candidate = Candidate(room, {"case-00"})
    candidate.run(after=4)
    candidate.keep_lines(lambda _number, line: b'"case-00"' not in line)
    candidate.run()
    return candidate.judged()


@twin("failed_lines_dropped_from_the_journal")
def nothing_dropped(room: Path) -> Outcome:
    candidate = Candidate(room, set())
    candidate.run(after=4)
    candidate.run()
    return Outcome(candidate.judged().met)


@attack("journal_cut_between_resumptions")
def journal_cut_between_resumptions(room: Path) -> Outcome:
    candidate = Candidate(room, {"case-02"})
    candidate.run(after=3)
    candidate.run(after=3)
    # Its header, and what was asked, produced and measured in two trials.
    candidate.keep_lines(lambda number, _line: number < 1 + 2 * 3)
    candidate.run()
    return candidate.judged()


@twin("journal_cut_between_resumptions")
def resumed_twice(room: Path) -> Outcome:
    candidate = Candidate(room, set())
    for after in (2, 3, None):
        candidate.run(after)
    return Outcome(candidate.judged().met)


@attack("artefact_of_a_failed_trial_damaged")
def artefact_of_a_failed_trial_damaged(room: Path) -> Outcome:
    candidate = Candidate(room, {"case-00"})
    candidate.run(after=4)
    for file in (candidate.log / "artifacts").rglob("*"):
        if file.is_file() and file.read_bytes() == b"{}":
            file.write_bytes(b"")
    candidate.run()
    again = candidate.agent.asked.count("case-00#0") > 1
    return Outcome(candidate.judged().met, "a trial that had failed was asked for again" if again else None)


@twin("artefact_of_a_failed_trial_damaged")
def artefacts_deleted(room: Path) -> Outcome:
    candidate = Candidate(room, set())
    candidate.run(after=4)
    shutil.rmtree(candidate.log / "artifacts")
    candidate.run()
    return Outcome(candidate.judged().met)


def stopped_while_it_is_judged(room: Path, version: str | None) -> Outcome:
    """Stop a run when the rubric has the output of its one case, and run the same command again."""
    root = write_bench(room / "bench", cases=["one"])
    stop = Stop()

    def reply(case: SutCase) -> Mapping[str, Any]:
        # Comes about as soon as something is waited for again, and that is the rubric.
        asyncio.get_running_loop().call_soon(stop.everything, "Ctrl-C")
        return right_about(case)

    agent = ForeignAgent(SutIdentity(spec="command:foreign", version=version), reply=reply)
    record_run(root, room / "runs", agent, stop=stop, cache_dir=room / "cache")
    agent.reply = right_about
    record_run(root, room / "runs", agent, cache_dir=room / "cache")
    (trial,) = read_records(room / "runs")[-1]["body"]["trials"]
    often = "once" if len(agent.asked) == 1 else f"{len(agent.asked)} times"
    rolled = "the agent was paid and asked twice for one trial" if often != "once" else None
    return Outcome(f"asked {often}, output {trial['reused']} reused", rolled)


@attack("second_roll_by_stopping_the_rubric")
def second_roll_by_stopping_the_rubric(room: Path) -> Outcome:
    return stopped_while_it_is_judged(room, None)


@twin("second_roll_by_stopping_the_rubric")
def stopped_with_a_version(room: Path) -> Outcome:
    return stopped_while_it_is_judged(room, "1")


def resumed_after_a_reboot(room: Path, kernel: str) -> Outcome:
    candidate = Candidate(room, set())
    candidate.run(after=4)
    now = os.uname()
    rebooted = os.uname_result((now.sysname, now.nodename, kernel, now.version, now.machine))
    with patch.object(os, "uname", lambda: rebooted):
        candidate.run()
    said = advice(room)
    return Outcome(said, None if said == "sufficient" else "a run that died can never be finished")


@attack("agent_barred_by_a_kernel_update")
def agent_barred_by_a_kernel_update(room: Path) -> Outcome:
    return resumed_after_a_reboot(room, "99.0.0-other")


@twin("agent_barred_by_a_kernel_update")
def rebooted_with_the_same_kernel(room: Path) -> Outcome:
    return resumed_after_a_reboot(room, os.uname().release)


_COSTLY = """\
from codegenie.eval.ports import SutResult


def solve(case):
    return SutResult({"answer": "it is " + case.case_id}, cost_usd=1.0)
"""


def advice_followed(room: Path, *flags: str) -> Outcome:
    """Let a run reach its cost cap, then do what its last line says, with more to spend."""
    write_bench(room / "bench", cases=["one", "two"])
    (room / "agent.py").write_text(_COSTLY, encoding="utf-8")
    command = ["run", TASK_CLASS, "--sut", "python:agent:solve", "-q", "--concurrency", "1", "--out", "runs"]
    command += ["--cache", "cache"]
    first = ask(room, *command, *flags, "--max-cost-usd", "1")
    assert "resumes it where it stopped" in first.out
    again = [] if "without --no-cache" in first.out else flags
    second = ask(room, *command, *again, "--max-cost-usd", "9")
    unfinished = ask(room, "verify", "--out", "runs", "--json").document["unfinished_runs"]
    count = len(unfinished) or "no"
    barred = "the run that was to be taken up counts as failed for ever" if unfinished else None
    return Outcome(f"exit {first.code}, exit {second.code}, {count} run unfinished", barred)


@attack("advice_that_bars_the_agent")
def advice_that_bars_the_agent(room: Path) -> Outcome:
    return advice_followed(room, "--no-cache")


@twin("advice_that_bars_the_agent")
def advice_after_an_ordinary_run(room: Path) -> Outcome:
    return advice_followed(room)


_FORKING = """\
import os, signal, sys
from pathlib import Path
from tests.support.logs import record_run

room, worker = Path(sys.argv[1]), sys.argv[2]

def agent(case):
    if case.case_id == "two" and not (room / "died").exists():
        told, tells = os.pipe()
        if worker == "worker" and os.fork() == 0:
            os.write(tells, b"1")
            signal.pause()
        if worker == "worker":
            os.read(told, 1)
        (room / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"answer": "it is " + case.case_id}

record_run(room / "bench", room / "runs", agent, cache_dir=room / "cache", concurrency=1)
"""


def killed_with(room: Path, worker: str) -> Outcome:
    """Kill a harness whose agent has, or has not, a worker of its own; run the same command again."""
    write_bench(room / "bench", cases=["one", "two"])
    (room / "measure.py").write_text(_FORKING, encoding="utf-8")
    (room / "tmp").mkdir()
    argv = [sys.executable, str(room / "measure.py"), str(room), worker]
    surroundings = environment(PYTHONPATH=os.pathsep.join([SOURCES, str(ROOT)]), TMPDIR=str(room / "tmp"))
    first = subprocess.Popen(argv, env=surroundings, start_new_session=True)
    try:
        assert first.wait(120) == -signal.SIGKILL
        subprocess.run(argv, env=surroundings, timeout=120, check=True)
    finally:
        if worker == "worker":
            os.killpg(first.pid, signal.SIGKILL)
    kinds = " ".join(record["kind"].removeprefix("run.") for record in read_records(room / "runs"))
    return Outcome(kinds, None if "resumed" in kinds else "the first run counts as failed")


@attack("lock_kept_by_a_forked_worker")
def lock_kept_by_a_forked_worker(room: Path) -> Outcome:
    return killed_with(room, "worker")


@twin("lock_kept_by_a_forked_worker")
def agent_without_a_worker(room: Path) -> Outcome:
    return killed_with(room, "none")
