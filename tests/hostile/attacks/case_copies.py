"""Cases that change between their review, the plan, the copy and the verdict."""

import os
import shutil
import threading
import time
from pathlib import Path

from codegenie.eval.ports import SutCase
from tests.hostile.attackers.changed_benches import SECRET, Agent, attempt, bench_with, met, undeserved
from tests.hostile.engine.stage import Outcome, attack, files_that_hold, twin
from tests.support.benches import CaseFiles
from tests.support.stub_benches import digested, sparse, written

NO_IDEA = "no idea"
PATIENCE_SECONDS = 20.0


def _edits(directory: Path, by: str, victim: str) -> Agent:
    """Return an agent without answers that, when it is asked about one case, edits the answer of another."""

    def deed(case: SutCase) -> None:
        if case.case_id == by:
            written(f"cases/{victim}/expected/answer.txt", NO_IDEA)(directory)

    return Agent(directory.parents[1], NO_IDEA, deed)


@attack("answer_rewritten_for_the_next_case")
def answer_rewritten_for_the_next_case(room: Path) -> Outcome:
    directory = bench_with(room, cases=("one", "two"))
    return undeserved(attempt(room, _edits(directory, "one", "two"), concurrency=1))


@twin("answer_rewritten_for_the_next_case")
def answers_left_alone(room: Path) -> Outcome:
    bench_with(room, cases=("one", "two"))
    return Outcome(met(attempt(room, Agent(room), concurrency=1)))


@attack("answer_rewritten_under_the_agent")
def answer_rewritten_under_the_agent(room: Path) -> Outcome:
    directory = bench_with(room)
    return undeserved(attempt(room, _edits(directory, "one", "one")))


@twin("answer_rewritten_under_the_agent")
def copy_rewritten_by_the_agent(room: Path) -> Outcome:
    bench_with(room)
    scribble = Agent(room, deed=lambda case: Path(case.input_dir, "question.txt").write_text("?"))
    return Outcome(met(attempt(room, scribble)))


def _makes_beside_its_copy(room: Path, *names: str) -> Outcome:
    """Run an agent that makes directories beside its own; the harm is that nobody gets a report."""

    def deed(case: SutCase) -> None:
        own = Path(case.input_dir).parent
        for name in names:
            (own.parent / name.format(own.name.partition("-")[2])).mkdir(exist_ok=True)

    bench_with(room, cases=("one", "two"))
    result = attempt(room, Agent(room, deed=deed), concurrency=1)
    return Outcome(met(result), f"the run ends: {result}" if isinstance(result, str) else None)


@attack("name_of_the_next_copy")
def name_of_the_next_copy(room: Path) -> Outcome:
    return _makes_beside_its_copy(room, "rubric", "rubric-{}", "rubric-0", "rubric-1", "sut-1")


@twin("name_of_the_next_copy")
def name_of_its_own(room: Path) -> Outcome:
    return _makes_beside_its_copy(room, "notes-of-the-agent")


class _Exchange(threading.Thread):
    """Waits until a file is open in this process, and puts a link in the place of a directory."""

    def __init__(self, opened: Path, directory: Path, target: Path) -> None:
        super().__init__(daemon=True)
        self._opened = str(opened)
        self._directory = directory
        self._target = target

    def run(self) -> None:
        """Exchange them in the moment in which the file is read."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._opened not in map(_open_file, os.listdir("/proc/self/fd")) and time.monotonic() < until:
            time.sleep(0.0002)
        self._directory.rename(self._directory.with_name("before"))
        self._directory.symlink_to(self._target)


def _open_file(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _copied_while(room: Path, *, exchanged: bool) -> Outcome:
    """Copy a case with a large file before a directory, which is perhaps exchanged meanwhile."""
    (room / "outside").mkdir()
    (room / "outside" / "notes.txt").write_bytes(SECRET)
    cases = (CaseFiles("one"), CaseFiles("two", {"input/z/notes.txt": "notes"}))
    directory = bench_with(
        room, digested(lambda bench: sparse(32 << 20)(bench / "cases/two/input/a.bin")), cases=cases
    )
    source = directory / "cases" / "two" / "input"
    exchange = _Exchange(source / "a.bin", source / "z", room / "outside")
    found: list[str] = []

    def deed(case: SutCase) -> None:
        if case.case_id == "one" and exchanged:
            exchange.start()
        found.extend(files_that_hold(SECRET, Path(case.input_dir)))

    answer = met(attempt(room, Agent(room, deed=deed), concurrency=1))
    if exchanged:
        exchange.join()
    return Outcome(answer, "the agent was given a file from outside the bench" if found else None)


@attack("directory_exchanged_during_the_copy")
def directory_exchanged_during_the_copy(room: Path) -> Outcome:
    return _copied_while(room, exchanged=True)


@twin("directory_exchanged_during_the_copy")
def directory_left_alone(room: Path) -> Outcome:
    return _copied_while(room, exchanged=False)


def _runs_its_tool(room: Path, *, flipped: bool) -> Outcome:
    """Run a case with a text that becomes a program after its review."""
    tool = "input/tool.sh"
    directory = bench_with(room, cases=[CaseFiles("one", {tool: "#!/bin/sh\n"})])
    if flipped:
        (directory / "cases" / "one" / tool).chmod(0o755)
    programs: list[str] = []

    def deed(case: SutCase) -> None:
        programs.extend(path.name for path in Path(case.input_dir).iterdir() if os.access(path, os.X_OK))

    answer = met(attempt(room, Agent(room, deed=deed)))
    return Outcome(answer, f"the agent can start {programs[0]}" if programs else None)


@attack("text_that_becomes_a_program")
def text_that_becomes_a_program(room: Path) -> Outcome:
    return _runs_its_tool(room, flipped=True)


@twin("text_that_becomes_a_program")
def text_that_stays_a_text(room: Path) -> Outcome:
    return _runs_its_tool(room, flipped=False)


def _swapped(directory: Path) -> None:
    cases = directory / "cases"
    for source, target in (("one", "spare"), ("two", "one"), ("spare", "two")):
        shutil.move(cases / source / "expected", cases / target / "expected")
    (cases / "spare").rmdir()


@attack("answers_of_two_cases_swapped")
def answers_of_two_cases_swapped(room: Path) -> Outcome:
    """Give each case the reviewed answer of the other: not a byte is new."""
    directory = bench_with(room, cases=("one", "two"))
    (directory / "cases" / "spare").mkdir()
    _swapped(directory)
    agent = Agent(room)
    answer = met(attempt(room, agent))
    return Outcome(answer, f"agents were asked about {' and '.join(agent.asked)}" if agent.asked else None)


@twin("answers_of_two_cases_swapped")
def answers_swapped_back(room: Path) -> Outcome:
    directory = bench_with(room, cases=("one", "two"))
    for _ in range(2):
        (directory / "cases" / "spare").mkdir()
        _swapped(directory)
    return Outcome(met(attempt(room, Agent(room))))


def _looks_around(room: Path, answer: str) -> Outcome:
    """Run an agent that searches all of its directory for what is expected of it."""
    found: list[str] = []

    def deed(case: SutCase) -> None:
        found.extend(files_that_hold(SECRET, Path(case.input_dir).parent))

    bench_with(room, cases=[CaseFiles("one", {"expected/answer.txt": answer})])
    result = met(attempt(room, Agent(room, answer, deed)))
    return Outcome(result, f"the agent read {Path(found[0]).name} in its own copy" if found else None)


@attack("answer_beside_the_input")
def answer_beside_the_input(room: Path) -> Outcome:
    return _looks_around(room, SECRET.decode())


@twin("answer_beside_the_input")
def nothing_beside_the_input(room: Path) -> Outcome:
    return _looks_around(room, "it is one")


_COPIES_THE_SOLUTION = """\
import glob, json, sys
json.load(sys.stdin)
right = bool(glob.glob("**/*solution*", recursive=True) + glob.glob("solution/*"))
answer = {"passed": right, "score": float(right), "breakdown": {}, "failure_modes": []}
json.dump(answer, sys.stdout)
"""


@attack("solution_beside_the_rubric")
def solution_beside_the_rubric(room: Path) -> Outcome:
    """Let a rubric pass whoever comes with a solution beside it: the null agent like the oracle."""
    bench_with(
        room, rubric=_COPIES_THE_SOLUTION, cases=[CaseFiles("one", {"solution/said.txt": "it is one"})]
    )
    return undeserved(attempt(room, Agent(room, NO_IDEA)))


@twin("solution_beside_the_rubric")
def solution_in_the_case(room: Path) -> Outcome:
    bench_with(room, cases=[CaseFiles("one", {"solution/said.txt": "it is one"})])
    return Outcome(met(attempt(room, Agent(room))))
