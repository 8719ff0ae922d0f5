"""Logs that were cut, written anew, spliced, left unwritten or swapped while they were read."""

import asyncio
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import DEVNULL, run
from typing import Any

from codegenie.eval.canonical import canonical_json
from codegenie.eval.gate.deciding import Gatekeeper
from codegenie.eval.log.chain import Link, record_hash, record_name
from codegenie.eval.log.disk import HEAD
from codegenie.eval.models import RunOptions
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.system.clock import SystemClock
from tests.hostile.attackers.hostile_bench import (
    ForeignAgent,
    ShiftedClock,
    advice,
    ask,
    policy_in,
    refused,
    units,
)
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import environment, eval_argv
from tests.support.logs import (
    StopAfter,
    forge,
    read_records,
    reckon,
    record_files,
    record_run,
    verified,
    write_log,
)


def wrong_about(_case: SutCase) -> dict[str, str]:
    """Know nothing."""
    return {"answer": "it is not"}


def bad() -> ForeignAgent:
    """Return an agent that knows nothing; as far as the log can tell it is the same as the good one."""
    return ForeignAgent(reply=wrong_about)


def logged(
    room: Path, *agents: ForeignAgent, cases: Sequence[str] = ("one", "two"), policy_digest: str | None = None
) -> Path:
    """Run agents one after the other on one bench, and return the log."""
    root = room / "bench"
    if not root.exists():
        write_bench(root, cases=cases)
    for agent in agents:
        record_run(root, room / "runs", agent, policy_digest=policy_digest)
    return room / "runs"


def checked(room: Path, *arguments: str, harm: str) -> Outcome:
    """Verify the log of a room; to take it is the harm."""
    said = ask(room, "verify", "--out", "runs", "--json", *arguments)
    met = f"exit {said.code} {said.document.get('file', '')}".strip()
    return Outcome(met, None if said.code else harm)


def honest(room: Path, *arguments: str) -> Outcome:
    """Verify a log that nobody touched."""
    return Outcome(checked(room, *arguments, harm="").met)


def head_of(log: Path) -> str:
    """Return the hash that somebody outside has noted."""
    return record_hash(record_files(log)[-1].read_bytes())


def untouched(room: Path) -> Outcome:
    """Verify a log of two runs."""
    logged(room, bad(), ForeignAgent())
    return honest(room)


for _scenario in ("tail_cut_and_head_left", "tail_cut_and_head_removed", "records_of_another_log"):
    twin(_scenario)(untouched)


# Cut and written anew.


@attack("tail_cut")
def tail_cut(room: Path) -> Outcome:
    log = logged(room, ForeignAgent(), bad())
    noted = head_of(log)
    write_log(log, read_records(log)[:2])
    return checked(room, "--expect-head", noted, harm="the bad run is gone, and nobody can tell")


@twin("tail_cut")
def a_log_that_went_on(room: Path) -> Outcome:
    log = logged(room, ForeignAgent())
    noted = head_of(log)
    logged(room, bad())
    return honest(room, "--expect-head", noted)


@attack("written_anew_without_the_bad_run")
def written_anew_without_the_bad_run(room: Path) -> Outcome:
    log = logged(room, bad(), ForeignAgent())
    noted = head_of(log)
    write_log(log, read_records(log)[2:])
    return checked(room, "--expect-head", noted, harm="the bad run was never there")


@twin("written_anew_without_the_bad_run")
def a_log_with_its_bad_run(room: Path) -> Outcome:
    log = logged(room, bad(), ForeignAgent())
    return honest(room, "--expect-head", head_of(log))


def cut(room: Path) -> Path:
    """Remove the last run of a log and nothing else."""
    log = logged(room, ForeignAgent(), bad())
    for path in record_files(log)[2:]:
        path.unlink()
    return log


@attack("tail_cut_and_head_left")
def tail_cut_and_head_left(room: Path) -> Outcome:
    cut(room)
    return checked(room, harm="the bad run is gone")


@attack("tail_cut_and_head_removed")
def tail_cut_and_head_removed(room: Path) -> Outcome:
    (cut(room) / HEAD).unlink()
    return checked(room, harm="the bad run is gone, with all that counted it")


@attack("records_of_another_log")
def records_of_another_log(room: Path) -> Outcome:
    log = logged(room, bad(), ForeignAgent())
    (room / "other").mkdir()
    other = logged(room / "other", ForeignAgent())
    for name in map(record_name, range(2)):
        shutil.copyfile(other / name, log / name)
    return checked(room, harm="a good run stands where a bad one stood")


# Spelled in another way.


def respelled(log: Path, spell: Callable[[bytes], bytes]) -> None:
    """Write the last record in another way and chain it anew."""
    *before, last = record_files(log)
    link = Link()
    for path in before:
        link = link.after(path.read_bytes())
    raw = spell(last.read_bytes())
    last.write_bytes(raw)
    (log / HEAD).write_bytes(link.after(raw).encode())


@attack("two_means_in_one_record")
def two_means_in_one_record(room: Path) -> Outcome:
    log = logged(room, bad())
    respelled(log, lambda raw: raw.replace(b'"mean_score":', b'"mean_score":1.0,"mean_score":', 1))
    twice = record_files(log)[-1].read_bytes().count(b'"mean_score":') == 2
    return checked(room, harm="who reads the first of two means reads 1.0" if twice else "")


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "a line feed behind it": lambda raw: raw + b"\n",
    "a space in it": lambda raw: raw.replace(b'"kind":', b'"kind": ', 1),
    "an escaped letter": lambda raw: raw.replace(b'"run.finished"', b'"\\u0072un.finished"', 1),
    "0 for 0.0": lambda raw: raw.replace(b'"mean_score":0.0', b'"mean_score":0', 1),
    "1e-1 notation": lambda raw: raw.replace(b'"mean_score":0.0', b'"mean_score":0.0e0', 1),
    "another order of keys": lambda raw: json.dumps(
        dict(reversed(json.loads(raw).items())), separators=(",", ":"), ensure_ascii=False
    ).encode(),
}


@attack("record_in_another_spelling")
def record_in_another_spelling(room: Path) -> Outcome:
    log = logged(room, bad())
    (honestly,) = [path.read_bytes() for path in record_files(log)[1:]]
    taken, met = [], set()
    for name, spell in SPELLINGS.items():
        respelled(log, lambda _raw, spell=spell: spell(honestly))  # type: ignore[misc]
        outcome = checked(room, harm="taken")
        met.add(outcome.met)
        taken += [name] * bool(outcome.harm)
    return Outcome(" ".join(sorted(met)), f"taken: {', '.join(taken)}" if taken else None)


@attack("record_names_its_own_algorithm")
def record_names_its_own_algorithm(room: Path) -> Outcome:
    log = logged(room, bad())
    write_log(log, [{**record, "alg": "none"} for record in read_records(log)])
    return checked(room, harm="a record says by what it is hashed, and is taken")


@twin("two_means_in_one_record")
@twin("record_in_another_spelling")
@twin("record_names_its_own_algorithm")
def written_anew_as_it_was(room: Path) -> Outcome:
    log = logged(room, bad())
    write_log(log, read_records(log))
    return honest(room)


# Not written, half written, written elsewhere.

_VANISHING = """\
import asyncio, os, sys
from pathlib import Path
from codegenie.eval.runner import Runner

async def agent(case):
    Path(sys.argv[1], "asked").touch()
    if sys.argv[2] == "vanish":
        os._exit(9)
    return {}

asyncio.run(Runner().run_eval(
    task_class_name="built-class", bench_root="bench", out_dir="runs", system_under_test=agent
))
"""


def watched(room: Path, what: str) -> Outcome:
    """Run an agent that notes that it was asked, in a process of its own; see what the log knows of it."""
    write_bench(room / "bench")
    run(
        [sys.executable, "-c", _VANISHING, str(room), what],
        cwd=room, env=environment(), stderr=DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    kinds = [record["kind"] for record in read_records(room / "runs")]
    unknown = (room / "asked").exists() and "run.started" not in kinds
    return Outcome(" ".join(kinds), "an agent was asked, and no log knows" if unknown else None)


@attack("killed_before_it_could_lose")
def killed_before_it_could_lose(room: Path) -> Outcome:
    return watched(room, "vanish")


@twin("killed_before_it_could_lose")
def not_killed(room: Path) -> Outcome:
    return watched(room, "stay")


@attack("edited_log_is_written_on")
def edited_log_is_written_on(room: Path) -> Outcome:
    log = logged(room, bad(), ForeignAgent())
    first = record_files(log)[1]
    first.write_bytes(first.read_bytes().replace(b'"mean_score":0.0', b'"mean_score":1.0'))
    agent = ForeignAgent()
    met = refused(lambda: logged(room, agent))
    return Outcome(met, f"asked about {len(agent.asked)} cases on a broken log" if agent.asked else None)


@attack("forged_log_is_written_on")
def forged_log_is_written_on(room: Path) -> Outcome:
    log = logged(room, bad(), ForeignAgent())
    forge(log, 1, lambda record: record["body"]["report"].update(mean_score=1.0))
    agent = ForeignAgent()
    met = refused(lambda: logged(room, agent))
    return Outcome(met, f"asked about {len(agent.asked)} cases on a broken log" if agent.asked else None)


@attack("plan_copied_with_fewer_cases")
def plan_copied_with_fewer_cases(room: Path) -> Outcome:
    return executed(room, 1)


@twin("plan_copied_with_fewer_cases")
def plan_copied_as_it_is(room: Path) -> Outcome:
    return executed(room, 2)


def executed(room: Path, cases: int) -> Outcome:
    """Execute a copy of a plan with so many of its two cases, and see whether the log still holds."""
    root = write_bench(room / "bench", cases=["one", "two"])
    options = RunOptions(isolation="subprocess")
    plan = Runner().plan(task_class_name=TASK_CLASS, bench_root=root, out_dir=room / "runs", options=options)
    copy = plan.model_copy(update={"cases": plan.cases[:cases]})
    met = refused(lambda: asyncio.run(Runner().execute(copy, system_under_test=right_answer)))
    return Outcome(met, still_holds(room))


def still_holds(room: Path) -> str | None:
    said = ask(room, "verify", "--out", "runs", "--json")
    return "the log does not verify any more" if said.code == 3 else None


@attack("log_removed_under_way")
def log_removed_under_way(room: Path) -> Outcome:
    return measured_while(room, lambda: shutil.rmtree(room / "runs"))


@twin("log_removed_under_way")
def log_looked_at_under_way(room: Path) -> Outcome:
    return measured_while(room, lambda: os.listdir(room / "runs"))


def measured_while(room: Path, deed: Callable[[], object]) -> Outcome:
    async def agent(case: SutCase) -> dict[str, Any]:
        deed()
        return await right_answer(case)

    root = write_bench(room / "bench")
    met = refused(lambda: record_run(root, room / "runs", agent))
    return Outcome(met, still_holds(room))


@twin("forged_log_is_written_on")
@twin("edited_log_is_written_on")
def a_whole_log_is_written_on(room: Path) -> Outcome:
    logged(room, bad())
    return Outcome(refused(lambda: logged(room, ForeignAgent())))


_WORDY = """\
import json, sys
modes = [{"code": "answer.noted", "detail": f"{number}" * 150} for number in range(9)]
json.dump({"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": modes}, sys.stdout)
"""
RUN = ("run", TASK_CLASS, "--sut", "null", "--quiet", "--no-cache", "--isolation", "subprocess")


def within(room: Path, share: float) -> Outcome:
    """Run where no file may be larger than a share of the finish that the run would write."""
    write_bench(room / "bench", _WORDY, cases=["one", "two", "three"])
    ask(room, *RUN, "--out", "whole")
    most = int((room / "whole" / record_name(1)).stat().st_size * share)
    done = run(
        eval_argv(*RUN, "--out", "runs"), cwd=room, env=environment(), capture_output=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)), check=False,
    )  # fmt: skip
    said = ask(room, "verify", "--out", "runs", "--json")
    got = f"half a record was left in the log: {said.document['reason']}" if said.code else None
    return Outcome(f"exit {done.returncode}, {said.document['records']} records", got)


@attack("no_room_for_the_finish")
def no_room_for_the_finish(room: Path) -> Outcome:
    return within(room, 0.95)


@twin("no_room_for_the_finish")
def room_for_the_finish(room: Path) -> Outcome:
    return within(room, 2.0)


# Read twice.


def judged_after(room: Path, meanwhile: Callable[[Path], object]) -> Outcome:
    """Verify a log of a bad run, let somebody at it, then ask the gate about what was verified."""
    policy = policy_in(room)
    log = logged(room, bad(), cases=units(), policy_digest=policy.digest)
    found = verified(log)
    meanwhile(record_files(log)[-1])
    gatekeeper = Gatekeeper(found, policy, room / "bench", SystemClock())
    verdicts: list[str] = []
    met = refused(lambda: verdicts.append(gatekeeper.judge(found.find("latest"), "bronze").verdict))
    return Outcome(met, "the bad run is sufficient" if verdicts == ["sufficient"] else None)


def made_perfect(path: Path) -> None:
    """Let every case of a finish pass, with numbers to match."""
    start, finish = read_records(path.parent)
    for trial in finish["body"]["trials"]:
        trial["answer"] |= {"passed": True, "score": 1.0}
    reckon(start, finish)
    path.write_bytes(canonical_json(finish))


@attack("swapped_after_it_was_verified")
def swapped_after_it_was_verified(room: Path) -> Outcome:
    return judged_after(room, made_perfect)


@twin("swapped_after_it_was_verified")
def touched_after_it_was_verified(room: Path) -> Outcome:
    return judged_after(room, lambda path: path.write_bytes(path.read_bytes()))


# Around the log.


@attack("aborted_until_it_went_well")
def aborted_until_it_went_well(room: Path) -> Outcome:
    return with_aborted_runs(room, 2)


@twin("aborted_until_it_went_well")
def never_aborted(room: Path) -> Outcome:
    return with_aborted_runs(room, 0)


def with_aborted_runs(room: Path, times: int) -> Outcome:
    """End runs that go badly, then let one go well, and ask the gate."""
    policy = policy_in(room)
    logged(room, cases=units())
    for _ in range(times):
        watch = StopAfter(2)
        runner = Runner(progress=watch)
        record_run(
            room / "bench", room / "runs", bad(), runner=runner, stop=watch.stop, policy_digest=policy.digest
        )
    logged(room, ForeignAgent(), policy_digest=policy.digest)
    met = advice(room)
    forgotten = times and met == "sufficient"
    return Outcome(met, "the aborted runs are forgotten" if forgotten else None)


@attack("clock_set_back")
def clock_set_back(room: Path) -> Outcome:
    return with_clock(room, -1)


@twin("clock_set_back")
def clock_that_goes_on(room: Path) -> Outcome:
    return with_clock(room, 0)


def with_clock(room: Path, days: int) -> Outcome:
    """Record a run, then one by another clock, and see what `verify` notes."""
    log = logged(room, bad())
    record_run(room / "bench", log, ForeignAgent(), runner=Runner(clock=ShiftedClock(days)))
    notes = ask(room, "verify", "--out", "runs", "--json").document["notes"]
    missed = days and not notes
    return Outcome(f"{len(notes)} notes", "a run was dated back, and nobody is told" if missed else None)


@attack("edited_artefact")
def edited_artefact(room: Path) -> Outcome:
    log = logged(room, bad())
    for path in (log / "artifacts").rglob("*"):
        if path.is_file() and b"it is not" in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(b"it is not", b"it is fine"))
    outcome = checked(room, harm="what the agent wrote is not what it is shown to have written")
    return Outcome(outcome.met.partition(" artifacts")[0], outcome.harm)


@twin("edited_artefact")
def a_missing_artefact_is_told(room: Path) -> Outcome:
    shutil.rmtree(logged(room, bad()) / "artifacts")
    said = ask(room, "verify", "--out", "runs", "--json")
    return Outcome(f"exit {said.code}, not checked: {' '.join(said.document['not_checked'])}")
