"""Words of a bench, an agent or a stranger that would steer the reader, and what a report may not hide."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.models import BenchScore, FailureMode, Severity, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.reporting.run_text import render_report
from codegenie.eval.stopping import Stop
from tests.hostile.attackers.hostile_bench import ask
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support import gate
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import environment, eval_argv
from tests.support.logs import record_run
from tests.support.stores import NotingSut
from tests.support.terminal import HOSTILE, OWN_SEQUENCE, STEERING, on_a_terminal

RUN = (
    "run",
    TASK_CLASS,
    "--sut",
    "null",
    "--out",
    "runs",
    "--quiet",
    "--no-cache",
    "--isolation",
    "subprocess",
)
TERMINAL = {"TERM": "xterm-256color"}


def steered(room: Path, *arguments: str) -> Outcome:
    """Give a command a terminal, and look for anything that steers it."""
    code, written = on_a_terminal(["eval", *arguments], room, TERMINAL)
    got = STEERING.findall(written.replace(OWN_SEQUENCE, ""))
    return Outcome(f"exit {code}", f"{len(got)} characters steer the terminal" if got else None)


def saying(*details: str) -> str:
    """Return a rubric that fails everything with a block for each of these details."""
    modes = [{"code": "answer.wrong", "detail": detail} for detail in details]
    answer = {"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": modes}
    return f"import json, sys\njson.dump({answer!a}, sys.stdout)\n"


# The terminal.


@attack("escape_in_a_detail")
def escape_in_a_detail(room: Path) -> Outcome:
    write_bench(room / "bench", saying(HOSTILE))
    return steered(room, *RUN)


@twin("escape_in_a_detail")
def plain_words_in_a_detail(room: Path) -> Outcome:
    write_bench(room / "bench", saying("it is not, é 中 ✓"))
    return steered(room, *RUN)


@dataclass
class Talkative(NotingSut):
    """Writes something while it works."""

    words: str = ""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        await super().ask(case, seconds)
        return SutAnswer(b"{}", None, self.words.encode())


def shown(room: Path, agent: NotingSut, *arguments: str) -> Outcome:
    """Record a run of an agent and show it on a terminal."""
    record_run(write_bench(room / "bench"), room / "runs", agent)
    return steered(room, "show", "latest", *arguments, "--out", "runs")


@attack("escape_in_an_agents_log")
def escape_in_an_agents_log(room: Path) -> Outcome:
    return shown(room, Talkative(words=HOSTILE), "one", "--log")


@twin("escape_in_an_agents_log")
def plain_words_in_an_agents_log(room: Path) -> Outcome:
    return shown(room, Talkative(words="a\tb é\n"), "one", "--log")


@attack("escape_in_a_strangers_record")
def escape_in_a_strangers_record(room: Path) -> Outcome:
    return shown(room, NotingSut(SutIdentity(spec=f"agent {HOSTILE}")))


@twin("escape_in_a_strangers_record")
def plain_words_in_a_strangers_record(room: Path) -> Outcome:
    return shown(room, NotingSut(SutIdentity(spec="agent of a stranger")))


@attack("escape_in_a_path")
def escape_in_a_path(room: Path) -> Outcome:
    return steered(room, *RUN, "--bench-root", HOSTILE.replace("\0", ""))


@twin("escape_in_a_path")
def plain_path(room: Path) -> Outcome:
    return steered(room, *RUN, "--bench-root", "nowhere é")


def exported(room: Path, name: bytes) -> Outcome:
    """Export a run into a file that is named by bytes."""
    record_run(write_bench(room / "bench"), room / "runs", NotingSut())
    argv = [part.encode() for part in eval_argv("export", "latest", "--out", "runs", "-o")]
    strict = environment(PYTHONIOENCODING="utf-8:strict")
    done = subprocess.run([*argv, name], cwd=room, env=strict, capture_output=True, timeout=60, check=False)
    failed = done.returncode != 0 and (room.joinpath(os.fsdecode(name))).exists()
    return Outcome(f"exit {done.returncode}", f"done, and then: {done.stderr.decode()}" if failed else None)


@attack("terminal_name_that_is_no_text")
def name_that_is_no_text(room: Path) -> Outcome:
    return exported(room, b"run-\xff\xfe.zip")


@twin("terminal_name_that_is_no_text")
def name_that_is_text(room: Path) -> Outcome:
    return exported(room, "run-é.zip".encode())


INJECTED = "passed           99 of 99 cases"


@attack("lines_in_a_detail")
def lines_in_a_detail(room: Path) -> Outcome:
    write_bench(room / "bench", saying(f"x\n{INJECTED}\nlog head         {'0' * 64}"))
    said = ask(room, *RUN)
    forged = INJECTED in said.out.splitlines()
    return Outcome(f"exit {said.code}", "a line of the report was written by a rubric" if forged else None)


@twin("lines_in_a_detail")
def one_line_in_a_detail(room: Path) -> Outcome:
    write_bench(room / "bench", saying("expected one\n\tgot none"))
    said = ask(room, *RUN)
    assert "(expected one got none)" in said.out
    return Outcome(f"exit {said.code}")


# What is hidden.


def with_second_case(room: Path, name: str) -> Outcome:
    """Put a copy of a case beside it under another name, sign it, and run both."""
    bench = write_bench(room / "bench", cases=["case-a"]) / TASK_CLASS
    copy = shutil.copytree(bench / "cases" / "case-a", bench / "cases" / name)
    toml = copy / "case.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace("case-a", name), encoding="utf-8")
    ask(room, "digest", TASK_CLASS, "--write")
    said = ask(room, *RUN, "--json")
    both = said.code == 0 and not name.isascii()
    return Outcome(f"exit {said.code}", "the report holds two cases that look alike" if both else None)


@attack("ids_that_look_alike")
def ids_that_look_alike(room: Path) -> Outcome:
    return with_second_case(room, "case-\N{CYRILLIC SMALL LETTER A}")


@twin("ids_that_look_alike")
def ids_that_differ(room: Path) -> Outcome:
    return with_second_case(room, "case-b")


def among(*modes: str) -> str:
    """Return a rubric that reports these failures in this order."""
    failures = [{"code": code, "detail": f"number {n}"} for n, code in enumerate(modes)]
    answer = {"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": failures}
    return f"import json, sys\njson.dump({answer!a}, sys.stdout)\n"


def told(room: Path, rubric: str) -> Outcome:
    """Say whether the closing table names the failure that blocks."""
    write_bench(room / "bench", rubric)
    said = ask(room, *RUN)
    named = "answer.wrong" in said.out
    return Outcome("named" if named else "not named", None if named else "the reason is behind `and 10 more`")


@attack("block_behind_trifles")
def block_behind_trifles(room: Path) -> Outcome:
    return told(room, among(*["answer.noted"] * 12, "answer.wrong"))


@twin("block_behind_trifles")
def block_before_trifles(room: Path) -> Outcome:
    return told(room, among("answer.wrong", "answer.noted"))


def blocked_after(missed: int) -> Outcome:
    """Say whether the closing table names a blocked case behind so many that were only missed."""
    block = FailureMode(code="answer.wrong", severity=Severity.BLOCK, detail="it deletes the disk")
    scores = [BenchScore(passed=False, score=0.0)] * missed
    report = gate.scored([*scores, BenchScore(passed=False, score=0.0, failure_modes=(block,))])
    named = any("it deletes the disk" in line for line in render_report(report))
    return Outcome(
        "named" if named else "not named", None if named else "the block is off the end of the list"
    )


@attack("block_behind_many_cases")
def block_behind_many_cases(_room: Path) -> Outcome:
    return blocked_after(60)


@twin("block_behind_many_cases")
def block_behind_few_cases(_room: Path) -> Outcome:
    return blocked_after(3)


@attack("bound_shown_higher")
def bound_shown_higher(_room: Path) -> Outcome:
    report = gate.report(8, 8)
    line = next(line for line in render_report(report) if line.startswith("certified"))
    shown_as = float(line.split()[3])
    higher = shown_as > report.certified_lower_95
    return Outcome(line.split(" on ")[0], f"{report.certified_lower_95} is shown higher" if higher else None)


@twin("bound_shown_higher")
def bound_shown_as_it_is(_room: Path) -> Outcome:
    report = gate.report(8, 0)
    return Outcome(
        next(line for line in render_report(report) if line.startswith("certified")).split(" on ")[0]
    )


# Green that is none.


def says(room: Path, word: str, *arguments: str, harm: str) -> Outcome:
    """Say whether what a command prints holds a word that its reader must see."""
    said = ask(room, *arguments)
    return Outcome(
        f"exit {said.code}, {'said' if word in said.out else 'not said'}", None if word in said.out else harm
    )


@attack("selection_shown_as_whole")
def selection_shown_as_whole(room: Path) -> Outcome:
    write_bench(room / "bench", cases=["one", "two"])
    return says(
        room, "PARTIAL (1 of 2 cases)", *RUN, "--cases", "one", harm="one of two cases looks like all"
    )


@twin("selection_shown_as_whole")
def whole_shown_as_whole(room: Path) -> Outcome:
    write_bench(room / "bench", cases=["one", "two"])
    return Outcome(says(room, "· complete\n", *RUN, harm="").met)


@attack("report_without_its_isolation")
def report_without_its_isolation(room: Path) -> Outcome:
    write_bench(room / "bench")
    return says(room, "rubrics in subprocess", *RUN, harm="nobody sees that rubrics ran without a sandbox")


@twin("report_without_its_isolation")
def report_without_a_pass(room: Path) -> Outcome:
    write_bench(room / "bench")
    said = ask(room, *RUN)
    return Outcome(f"exit {said.code}, {'PASS' if 'PASS' in said.out else 'no PASS'}")


def from_the_store(room: Path, *arguments: str) -> Outcome:
    """Run the same twice and say whether the second report tells where its outputs come from."""
    write_bench(room / "bench")
    reusing = [part for part in RUN if part != "--no-cache"]
    ask(room, *reusing, "--cache", "cache")
    word = "1 of 1 output from the store"
    return says(
        room, word, *reusing, "--cache", "cache", *arguments, harm="a run that asked nobody looks measured"
    )


@attack("reuse_that_is_not_shown")
def reuse_that_is_not_shown(room: Path) -> Outcome:
    return from_the_store(room)


@twin("reuse_that_is_not_shown")
def measured_anew(room: Path) -> Outcome:
    return Outcome(from_the_store(room, "--no-cache").met)


@attack("unfinished_run_not_shown")
def unfinished_run_not_shown(room: Path) -> Outcome:
    root = write_bench(room / "bench")
    stop = Stop()
    stop.everything("it will not go well")
    record_run(root, room / "runs", NotingSut(), stop=stop)
    return says(room, "it counts as failed", "verify", "--out", "runs", harm="an aborted run is not told")


@twin("unfinished_run_not_shown")
def finished_runs_only(room: Path) -> Outcome:
    record_run(write_bench(room / "bench"), room / "runs", NotingSut())
    return Outcome(says(room, "it counts as failed", "verify", "--out", "runs", harm="").met)


@attack("unchecked_shown_as_verified")
def unchecked_shown_as_verified(room: Path) -> Outcome:
    record_run(write_bench(room / "bench"), room / "runs", NotingSut())
    shutil.rmtree(room / "runs" / "artifacts")
    return says(room, "not checked   artifacts", "verify", "--out", "runs", harm="nobody sees what is gone")


@twin("unchecked_shown_as_verified")
def all_of_it_verified(room: Path) -> Outcome:
    record_run(write_bench(room / "bench"), room / "runs", NotingSut())
    return Outcome(says(room, "not checked", "verify", "--out", "runs", harm="").met)
