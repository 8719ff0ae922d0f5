"""Rubrics that turn against who watches over them, and against what the next case will find."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codegenie.eval.ports import SutCase
from tests.hostile.attackers.hostile_bench import (
    HONEST,
    HOSTILE,
    judged,
    run_cases,
    run_hostile,
    unless_the_run_ends,
    what_it_met,
    written,
)
from tests.hostile.attackers.perfect_rubrics import daemon, in_one_second, perfect, perfect_and, still_beats
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.commands import environment as with_sources
from tests.support.commands import run_argv, write_agent


@attack("supervisor_stopped")
def supervisor_stopped(room: Path) -> Outcome:
    # It lets go of its supervisor in the end, for the play in which nobody else does.
    stop = "os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(40)\nos.kill(os.getppid(), signal.SIGCONT)\n"
    rubric, cases = in_one_second(stop)
    return judged(run_cases(room, rubric, cases))


@twin("supervisor_stopped")
def supervisor_asked_whether_it_is_there(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and("os.kill(os.getppid(), 0)\n")))
    return Outcome(outcome.met, None, outcome.sibling)


@attack("supervisor_killed_over_a_daemon")
def supervisor_killed_over_a_daemon(room: Path) -> Outcome:
    kills = f"""\
supervisor = os.getppid()
if os.fork():
    while not os.path.exists({str(room / "beats")!r}):
        time.sleep(0.01)
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(6)
"""
    report = run_hostile(room, perfect_and(kills + daemon(room / "beats")))
    return judged(report, lambda _report: still_beats(room / "beats"))


@twin("supervisor_killed_over_a_daemon")
def supervisor_left_alone(room: Path) -> Outcome:
    return perfect(room)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return "gone"


def _stopped_or_ended(room: Path, rubric: str) -> Outcome:
    """Run the command in a session of its own until it ends or somebody has stopped it."""
    write_bench(room / "bench", rubric, (CaseFiles(HOSTILE, fields={"rubric_wall_clock_seconds": 1}), HONEST))
    write_agent(room)
    (room / "tmp").mkdir()
    argv = run_argv("--bench-root", "bench", "--out", "runs", "--cache", "cache", "--isolation", "subprocess")
    process = subprocess.Popen(
        argv,
        cwd=room,
        env=with_sources(TMPDIR=str(room / "tmp")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and (state := _state(process.pid)) != "T":
        time.sleep(0.01)
    stopped = process.returncode is None and state == "T"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return Outcome(f"exit {process.returncode}", "the harness was stopped" if stopped else None)


@attack("supervisors_group_stopped")
def supervisors_group_stopped(room: Path) -> Outcome:
    return _stopped_or_ended(
        room, perfect_and("os.killpg(os.getpgid(os.getppid()), signal.SIGSTOP)\ntime.sleep(6)\n")
    )


@twin("supervisors_group_stopped")
def own_group_addressed(room: Path) -> Outcome:
    return _stopped_or_ended(
        room, perfect_and("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.killpg(0, signal.SIGTERM)\n")
    )


_STARVES = """\
import resource
supervisor = os.getppid()
resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (4, 4))
os.setpriority(os.PRIO_PROCESS, supervisor, 19)
"""


def _followed(room: Path, does: str) -> Outcome:
    """Run the hostile case before an honest one that meets the same supervisor."""
    rubric = (
        perfect_and(does).replace('== "honest"', '!= "hostile"').replace("it is honest", "it is next-one")
    )
    scores = dict(run_cases(room, rubric, (HOSTILE, "next-one"), concurrency=1).per_case)
    met = what_it_met(scores["next-one"])
    return Outcome(met, None if met == "passed" else "the next case failed")


@attack("next_rubric_starved")
def next_rubric_starved(room: Path) -> Outcome:
    return _followed(room, _STARVES)


@twin("next_rubric_starved")
def own_limits_lowered(room: Path) -> Outcome:
    return _followed(room, _STARVES.replace("os.getppid()", "os.getpid()"))


@contextmanager
def temporary_directory(directory: Path) -> Iterator[Path]:
    """Let the run make its directories here."""
    directory.mkdir()
    before = tempfile.tempdir
    tempfile.tempdir = str(directory)
    try:
        yield directory
    finally:
        tempfile.tempdir = before


@attack("directory_without_bottom")
def directory_without_bottom(room: Path) -> Outcome:
    digs = "for _ in range(1_100):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\nos.chmod('.', 0)\n"
    with temporary_directory(room / "tmp") as place:
        outcome = unless_the_run_ends(lambda: judged(run_hostile(room, perfect_and(digs))))
        left = os.listdir(place)
    if left:
        subprocess.run(["rm", "-rf", str(room / "tmp")], check=True)
    return Outcome(outcome.met, "its directories are still there" if left else None, outcome.sibling)


@twin("directory_without_bottom")
def directory_with_a_bottom(room: Path) -> Outcome:
    with temporary_directory(room / "tmp") as place:
        outcome = judged(run_hostile(room, perfect_and("os.makedirs('a/b/c')\nos.chmod('a/b', 0)\n")))
        left = os.listdir(place)
    return Outcome(outcome.met, f"left {left}" if left else None, outcome.sibling)


class Neighbour:
    """An agent that looks at what lies beside its own directory."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, case: SutCase) -> dict[str, object]:
        """Note the neighbours' files and answer rightly."""
        own = Path(case.input_dir).parent
        self.seen += [str(file.name) for file in own.parent.rglob("*") if own not in (file, *file.parents)]
        return await right_answer(case)


def _trials_beside(room: Path, does: str) -> Outcome:
    agent = Neighbour()
    report = run_cases(room, perfect_and(does), (HOSTILE,), agent, trials=2, concurrency=1)
    met = what_it_met(dict(report.per_case)[HOSTILE])
    return Outcome(met, f"the next trial finds {agent.seen[:3]}" if agent.seen else None)


@attack("notes_for_the_next_trial")
def notes_for_the_next_trial(room: Path) -> Outcome:
    return _trials_beside(room, "open('notes', 'w').write(open('expected/answer.txt').read())\n")


@twin("notes_for_the_next_trial")
def no_notes_for_the_next_trial(room: Path) -> Outcome:
    return _trials_beside(room, "open('notes', 'w').close()\nos.unlink('notes')\n")


_TAKES_NAMES = """\
here = os.getcwd()
stem, _, number = here.rpartition("-")
guesses = [f"{stem}-{n}" for n in range(64)] + [here.replace("rubric-", "sut-")]
for guess in guesses:
    if not os.path.lexists(guess):
        os.mkdir(guess)
"""


@attack("names_taken_beforehand")
def names_taken_beforehand(room: Path) -> Outcome:
    return unless_the_run_ends(lambda: _followed(room, _TAKES_NAMES))


@twin("names_taken_beforehand")
def names_taken_inside(room: Path) -> Outcome:
    return _followed(room, "os.mkdir('rubric-1')\nos.mkdir('sut-1')\n")


@attack("rubric_rewritten_under_way")
def rubric_rewritten_under_way(room: Path) -> Outcome:
    generous = f"import sys\nsys.stdout.write({written().decode()!r})\n"
    place = room / "bench" / TASK_CLASS / "rubric.py"
    deed = f"for path in ('rubric.py', {str(place)!r}):\n    open(path, 'w').write({generous!r})\n"
    rubric = perfect_and(deed).replace('== "honest"', '!= "hostile"')
    scores = dict(run_cases(room, rubric, (HOSTILE, "next-one"), concurrency=1).per_case)
    score = scores["next-one"]
    harm = f"the next case scored {score.score} by other rules than the log names" if score.score else None
    return Outcome(what_it_met(score), harm)


@twin("rubric_rewritten_under_way")
def rubric_that_reads_itself(room: Path) -> Outcome:
    return _followed(room, "json.dumps(open('rubric.py').read())\n")


def _with_an_open_file(room: Path, inheritable: bool) -> Outcome:
    """Run beside a file that the operator's shell left open for every child."""
    (room / "secret").write_text("-----BEGIN KEY-----", encoding="utf-8")
    reads = f"""\
found = []
for number in range(3, 256):
    try:
        found.append(os.pread(number, 100, 0).decode("utf-8", "replace"))
    except OSError:
        pass
json.dump(found, open({str(room / "found")!r}, "w"))
"""
    descriptor = os.open(room / "secret", os.O_RDONLY)
    os.set_inheritable(descriptor, inheritable)
    try:
        outcome = judged(run_hostile(room, perfect_and(reads)), lambda _report: None)
    finally:
        os.close(descriptor)
    found = json.loads((room / "found").read_bytes())
    harm = "it read an open file of the harness" if any("BEGIN KEY" in text for text in found) else None
    return Outcome(outcome.met, harm, outcome.sibling)


@attack("open_files_inherited")
def open_files_inherited(room: Path) -> Outcome:
    return _with_an_open_file(room, inheritable=True)


@twin("open_files_inherited")
def open_files_that_are_not_inheritable(room: Path) -> Outcome:
    return _with_an_open_file(room, inheritable=False)
