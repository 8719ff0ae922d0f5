"""What ends a run while an agent is under way, and what the record then says of the trial."""

import asyncio
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.canonical import canonical_json
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.stopping import Stop
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import asked, call, environment, eval_argv, start
from tests.support.logs import journaled, read_records, record_run, stopped_run, verified
from tests.support.stores import Bench, NotingSut

CASES = [f"case-{number:02d}" for number in range(4)]

HANGS = """\
import os, time
from codegenie.eval.ports import SutResult

MISSES = {misses!r}


def solve(case):
    with open({calls!r}, "a+", encoding="utf-8") as file:
        file.seek(0)
        before = file.read().split()
        file.write(case.case_id + "\\n")
    if before.count(case.case_id) < MISSES.get(case.case_id, 0):
        open({hangs!r}, "w").close()
        time.sleep(300)
    # Who is asked beside one that hangs answers, and spends, when that one hangs.
    while {beside} and before.count("case-01") < MISSES["case-01"] and not os.path.exists({hangs!r}):
        time.sleep(0.01)
    return SutResult({{"answer": "it is " + case.case_id}}, cost_usd=1.0)
"""


class Shop:
    """A bench, an agent that hangs where it would fail, and one command that is given again and again."""

    def __init__(self, directory: Path, misses: dict[str, int], *, beside: bool = False) -> None:
        self.directory = directory
        self.log = directory / "runs"
        self.calls, self.hangs = directory / "calls", directory / "hangs"
        write_bench(directory / "bench", cases=CASES)
        (directory / "tmp").mkdir()
        (directory / "trust-tiers.yaml").write_text("thresholds: {bronze: 0.5}\n", encoding="utf-8")
        agent = HANGS.format(calls=str(self.calls), hangs=str(self.hangs), misses=misses, beside=beside)
        (directory / "agent.py").write_text(agent, encoding="utf-8")

    def argv(self, *more: str) -> list[str]:
        how = ["--out", "runs", "--cache", "cache", "--isolation", "subprocess", "--quiet", "--json", *more]
        return eval_argv("run", TASK_CLASS, "--sut", "python:agent:solve", "--sut-version", "1", *how)

    def end_when_it_hangs(self, number: signal.Signals) -> int:
        """Give the command, send it a signal as soon as the agent hangs, and return its exit code."""
        self.hangs.unlink(missing_ok=True)
        running = start(
            self.argv("--concurrency", "1"),
            self.directory,
            environment(TMPDIR=str(self.directory / "tmp")),
        )
        deadline = time.monotonic() + 120
        while running.poll() is None and not self.hangs.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if running.poll() is None:
            running.send_signal(number)
        return running.wait(60)

    def finish(self) -> dict[str, Any]:
        verified(self.log)
        return dict(read_records(self.log)[-1]["body"])

    def interrupted(self) -> dict[str, int]:
        """Return what the record says of the trials, by case."""
        return {
            trial["case_id"]: trial["interrupted"]
            for trial in self.finish()["trials"]
            if "interrupted" in trial
        }


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_loop_of_ended_runs_rolls_no_trial_unseen(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    misses = {"case-01": 2, "case-03": 1}
    shop = Shop(tmp_path, misses)
    codes: list[int] = []
    while not codes or codes[-1] == code:
        codes.append(shop.end_when_it_hangs(number))
    assert codes == [code, code, code, 0]
    finish = shop.finish()
    assert finish["report"]["passed_count"] == len(CASES), "the report is whole, and looks perfect"
    assert shop.interrupted() == misses
    resumed = [
        record["body"]["interrupted_trials"]
        for record in read_records(shop.log)
        if record["kind"] == "run.resumed"
    ]
    assert resumed == [1, 1, 1]


def test_a_cost_cap_that_is_raised_dollar_by_dollar_rolls_no_trial_unseen(tmp_path: Path) -> None:
    """Where the agent would fail it hangs; the other slot spends the dollar that ends the run."""
    shop = Shop(tmp_path, {"case-01": 2}, beside=True)
    codes: list[int] = []
    for dollars in range(1, 15):
        if codes[-1:] != [0]:
            shop.hangs.unlink(missing_ok=True)
            cap = ("--concurrency", "2", "--max-cost-usd", str(dollars))
            codes.append(call(shop.argv(*cap), tmp_path).returncode)
    assert codes[:2] == [4, 4]
    assert codes[-1] == 0
    assert shop.finish()["report"]["passed_count"] == len(CASES)
    said = shop.interrupted()
    assert said["case-01"] >= 2
    # Others may have been under way when the cap was reached; each time is on the record, too.
    for case in CASES:
        assert asked(shop.calls).count(case) <= 1 + said.get(case, 0)


def test_what_passed_by_being_ended_is_sufficient_only_if_a_human_waives_it(tmp_path: Path) -> None:
    """The whole procedure: a CI's retry loop, the verdict, and the waiver by the name of the run."""
    shop = Shop(tmp_path, {"case-01": 1, "case-03": 1})
    shutil.rmtree(tmp_path / "bench")
    write_bench(tmp_path / "bench", cases=[f"case-{number:02d}" for number in range(8)])
    while shop.end_when_it_hangs(signal.SIGTERM) != 0:
        pass
    run_id = shop.finish()["report"]["run_id"]
    ask = eval_argv(
        "promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--run", run_id, "--json"
    )
    refused = call(ask, tmp_path)
    waiver = f"  - {{refund: {run_id}, by: ann, on: '2026-11-16', because: the machine was restarted}}\n"
    policy = tmp_path / "trust-tiers.yaml"
    policy.write_text(f"{policy.read_text(encoding='utf-8')}waivers:\n{waiver}", encoding="utf-8")
    waived = call(ask, tmp_path)

    assert (refused.returncode, json.loads(refused.stdout)["verdict"]) == (1, "insufficient")
    assert json.loads(refused.stdout)["interrupted_units"] == {run_id: 2}
    assert (waived.returncode, json.loads(waived.stdout)["verdict"]) == (0, "sufficient"), waived.stdout
    assert [each["by"] for each in json.loads(waived.stdout)["waivers"]] == ["ann"]


# --- the lines themselves --------------------------------------------------------------------------


@dataclass
class ReadsTheJournal(NotingSut):
    """An agent that looks, when it is asked, what is on the disk about it.

    Other slots may have added lines since the last sync, so only what a sync has covered counts.
    """

    log: Path = Path()
    synced: list[int] = field(default_factory=list)
    found: list[list[dict[str, Any]]] = field(default_factory=list)

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        (journal,) = (self.log / "journal").iterdir()
        lines = journal.read_bytes()[: max(self.synced)].splitlines()
        self.found.append([json.loads(line.split(b" ", 1)[1]) for line in lines])
        return await super().ask(case, seconds)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_that_an_agent_is_asked_is_on_the_disk_before_it_hears_of_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    sut = ReadsTheJournal(log=tmp_path / "runs")
    fdatasync = os.fdatasync

    def noted(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        fdatasync(descriptor)
        sut.synced.append(size)

    monkeypatch.setattr(os, "fdatasync", noted)
    root = write_bench(tmp_path / "bench", cases=CASES)
    record_run(root, tmp_path / "runs", sut, concurrency=concurrency)
    for number, (lines, about) in enumerate(zip(sut.found, sut.asked, strict=True)):
        case_id = about.partition("#")[0]
        assert {"kind": "asked", "case_id": case_id, "trial": 0} in lines
        if concurrency == 1:
            measured = [line["case_id"] for line in lines if "answer" in line]
            assert measured == CASES[:number], "and so is what was measured before"


def test_what_was_produced_is_in_the_journal_before_it_is_judged(tmp_path: Path) -> None:
    rubric = (
        "import json, os, shutil, sys\n"
        f"(name,) = os.listdir({str(tmp_path / 'runs' / 'journal')!r})\n"
        f"shutil.copy({str(tmp_path / 'runs' / 'journal')!r} + '/' + name, {str(tmp_path / 'seen')!r})\n"
        "json.dump({'passed': True, 'score': 1.0, 'breakdown': {}, 'failure_modes': []}, sys.stdout)\n"
    )
    write_bench(tmp_path / "bench", rubric)
    bench = Bench(tmp_path)
    bench.run()
    seen = json.loads((tmp_path / "seen").read_bytes().splitlines()[-1].split(b" ", 1)[1])
    (trial,) = read_records(bench.log)[-1]["body"]["trials"]
    assert (seen["kind"], seen["output"]) == ("produced", trial["artifacts"]["output"])
    assert (seen["log"], seen["cost_usd"]) == (trial["artifacts"]["sut_log"], 0.25)


def test_a_failure_is_measured_at_once_and_needs_no_line_of_its_own(tmp_path: Path) -> None:
    class Fails(NotingSut):
        async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
            await super().ask(case, seconds)
            return SutFault("sut.exception", "not today", 0.5)

    root = write_bench(tmp_path / "bench", cases=CASES)
    stopped_run(root, tmp_path / "runs", 2, sut=Fails(), cache_dir=tmp_path / "cache")
    sut = Fails()
    done = record_run(root, tmp_path / "runs", sut, cache_dir=tmp_path / "cache")
    assert sorted(sut.asked) == [f"{case}#0" for case in CASES[2:]]
    assert done.report.block_severity_failure_modes == ("sut.exception",)
    verified(tmp_path / "runs")


def judged_never(directory: Path) -> NotingSut:
    """Leave a run behind that was ended while its one output was judged; its agent has no version."""
    write_bench(directory / "bench")
    stop = Stop()

    class Stops(NotingSut):
        async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
            answer = await super().ask(case, seconds)
            asyncio.get_running_loop().call_soon(stop.everything, "ended by SIGTERM")
            return answer

    sut = Stops()
    record_run(directory / "bench", directory / "runs", sut, stop=stop, cache_dir=directory / "cache")
    assert sut.asked == ["one#0"]
    return sut


def test_an_output_that_was_made_is_judged_and_its_trial_is_not_interrupted(tmp_path: Path) -> None:
    judged_never(tmp_path)
    sut = NotingSut()
    done = record_run(tmp_path / "bench", tmp_path / "runs", sut, cache_dir=tmp_path / "cache")
    (trial,) = read_records(tmp_path / "runs")[-1]["body"]["trials"]
    assert (sut.asked, trial["reused"], trial["cost_usd"]) == ([], "none", 0.25)
    assert "interrupted" not in trial
    assert done.notes == ()


def test_what_was_spent_on_an_output_that_is_taken_by_its_hash_counts_for_the_cap(tmp_path: Path) -> None:
    judged_never(tmp_path)
    shutil.copytree(tmp_path / "bench", tmp_path / "kept")
    stop = Stop()
    record_run(
        tmp_path / "bench",
        tmp_path / "runs",
        NotingSut(),
        stop=stop,
        cache_dir=tmp_path / "cache",
        max_cost_usd=0.25,
    )
    assert stop.requested


@pytest.mark.parametrize("damage", ["gone", "emptied", "another output"])
def test_an_output_that_is_there_no_longer_is_asked_for_again_and_that_is_said(
    tmp_path: Path, damage: str
) -> None:
    judged_never(tmp_path)
    shutil.rmtree(tmp_path / "cache")
    for file in [file for file in (tmp_path / "runs" / "artifacts").rglob("*") if file.is_file()]:
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(b"" if damage == "emptied" else canonical_json({"answer": "it is none"}))
    sut = NotingSut()
    done = record_run(tmp_path / "bench", tmp_path / "runs", sut, cache_dir=tmp_path / "cache")
    (trial,) = read_records(tmp_path / "runs")[-1]["body"]["trials"]
    assert (sut.asked, trial["interrupted"]) == (["one#0"], 1)
    assert done.report.passed_count == 1
    assert "one: the agent's output is missing from the store, and the agent is asked again" in done.notes
    assert "trials that were asked for again, since the run had ended early: 1" in done.notes
    verified(tmp_path / "runs")


def test_a_run_that_nobody_ended_says_nothing_of_it(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    bench = Bench(tmp_path)
    bench.run()
    started, finished = read_records(bench.log)
    assert "interrupted" not in json.dumps([started, finished])


def test_the_journal_lies_among_the_artefacts_of_a_finished_run(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=CASES)
    stopped_run(root, tmp_path / "runs", 2, sut=NotingSut(), cache_dir=tmp_path / "cache")
    (journal,) = (tmp_path / "runs" / "journal").iterdir()
    before = journal.read_bytes()
    record_run(root, tmp_path / "runs", NotingSut(), cache_dir=tmp_path / "cache")
    digest = read_records(tmp_path / "runs")[-1]["body"]["journal"]
    kept = (tmp_path / "runs" / "artifacts" / digest[:2] / digest).read_bytes()
    assert kept.startswith(before)
    assert kept.count(b'"kind":"asked"') == len(CASES)


def test_who_changes_the_journal_of_a_run_that_is_under_way_is_named(tmp_path: Path) -> None:
    log = tmp_path / "runs"

    class Rewrites(NotingSut):
        async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
            (journal,) = (log / "journal").iterdir()
            journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
            return await super().ask(case, seconds)

    root = write_bench(tmp_path / "bench")
    done = record_run(root, log, Rewrites())
    assert done.notes == ("the journal was changed by another program during the run",)
    verified(log)


def test_a_run_that_died_at_any_line_comes_to_what_its_lines_say(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=CASES)
    stopped_run(root, tmp_path / "dead", 3, sut=NotingSut(), cache_dir=tmp_path / "cache")
    (journal,) = (tmp_path / "dead" / "journal").iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3 * 3
    for count in range(1, len(lines) + 1):
        log = tmp_path / f"runs-{count}"
        shutil.copytree(tmp_path / "dead", log)
        (log / "journal" / journal.name).write_bytes(b"".join(lines[:count]))
        left, sut = journaled(log), NotingSut()
        record_run(root, log, sut, cache_dir=tmp_path / f"cache-{count}", concurrency=1)
        assert sut.asked == [f"{case}#0" for case in CASES if case not in left.measured | left.produced]
        trials = read_records(log)[-1]["body"]["trials"]
        again = {trial["case_id"] for trial in trials if trial.get("interrupted") == 1}
        assert again == left.pending
        assert {trial["reused"] for trial in trials} == {"none"}
        verified(log)
