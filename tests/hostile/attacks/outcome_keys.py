"""One ingredient of a key changes and everything else stays: what was stored before must not be served."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import codegenie
from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from tests.hostile.attackers.hostile_bench import ForeignAgent, ask
from tests.hostile.engine.stage import Outcome, attack, twin, unmeasured
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call, eval_argv
from tests.support.logs import read_records
from tests.support.stores import Bench, NotingSut

WRONG = "it is not"


def measured(room: Path, rubric: str | None = None) -> Bench:
    """Run an agent that is right on the one case of a bench, so that a perfect outcome is stored."""
    write_bench(room / "bench", *([] if rubric is None else [rubric]))
    bench = Bench(room)
    bench.run()
    return bench


def served(bench: Bench) -> Outcome:
    """Say what of the last run came from the store, and whether it passed."""
    report = read_records(bench.log)[-1]["body"]["report"]
    got = "an outcome of something else is in the log" if report["passed_count"] else None
    return Outcome(f"reused {' '.join(bench.reused())}", got)


def again(bench: Bench) -> Outcome:
    """Run once more what can only fail now."""
    bench.run()
    return served(bench)


def nothing_changed(room: Path) -> Outcome:
    """Run the same twice: the store is there to be used."""
    bench = measured(room)
    bench.run()
    return Outcome(served(bench).met)


for _scenario in (
    "output_of_another_agent",
    "output_on_another_input",
    "score_of_another_output",
    "score_of_another_case",
    "score_of_another_rubric",
):
    twin(_scenario)(nothing_changed)


@attack("output_of_another_agent")
def output_of_another_agent(room: Path) -> Outcome:
    bench = measured(room)
    bench.sut = NotingSut(SutIdentity(spec="command:noting", version="2"), answer=WRONG)
    return again(bench)


@attack("output_on_another_input")
def output_on_another_input(room: Path) -> Outcome:
    bench = measured(room)
    (bench.case / "input" / "question.txt").write_text("what is it really?\n", encoding="utf-8")
    bench.digest()
    bench.sut.answer = WRONG
    return again(bench)


class SlowAgent(NotingSut):
    """Needs a minute, and fails if it is given less."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        answer = await super().ask(case, seconds)
        return answer if seconds >= 60 else SutFault("sut.timeout", f"no result within {seconds:g} s")


def slow(room: Path) -> Bench:
    """Run the slow agent with all the time that it needs."""
    write_bench(room / "bench")
    bench = Bench(room, SlowAgent())
    bench.run()
    return bench


@attack("output_under_another_limit")
def output_under_another_limit(room: Path) -> Outcome:
    bench = slow(room)
    bench.run(timeout_seconds=5.0)
    return served(bench)


@twin("output_under_another_limit")
def output_under_the_same_limit(room: Path) -> Outcome:
    bench = slow(room)
    # The case allows less than this, so it is the same limit.
    bench.run(timeout_seconds=90_000.0)
    return Outcome(served(bench).met)


def right_at_first(case: SutCase) -> dict[str, str]:
    """Know the answer in the first trial only."""
    return {"answer": WRONG if case.trial else "it is one"}


@attack("one_trial_for_all")
def one_trial_for_all(room: Path) -> Outcome:
    write_bench(room / "bench")
    bench = Bench(room, ForeignAgent(reply=right_at_first))
    bench.run()
    bench.run(trials=2)
    return served(bench)


@twin("one_trial_for_all")
def as_many_trials_as_before(room: Path) -> Outcome:
    write_bench(room / "bench")
    bench = Bench(room, ForeignAgent(reply=right_at_first))
    bench.run(trials=2)
    bench.run(trials=2)
    return served(bench)


@attack("score_of_another_output")
def score_of_another_output(room: Path) -> Outcome:
    bench = measured(room)
    # Without a version an agent is asked again, and this one has got worse.
    bench.sut = NotingSut(SutIdentity(spec="command:noting"), answer=WRONG)
    return again(bench)


@attack("score_of_another_case")
def score_of_another_case(room: Path) -> Outcome:
    bench = measured(room)
    (bench.case / "expected" / "answer.txt").write_text("it is another", encoding="utf-8")
    bench.digest()
    return again(bench)


_FAILS = 'print(\'{"passed": false, "score": 0.0, "breakdown": {}, "failure_modes": []}\')\n'


@attack("score_of_another_rubric")
def score_of_another_rubric(room: Path) -> Outcome:
    bench = measured(room)
    (room / "bench" / TASK_CLASS / "rubric.py").write_text(_FAILS, encoding="utf-8")
    return again(bench)


_SLOPPY = """\
import json, sys
failure = {"code": "answer.sloppy", "severity": "info", "detail": "long lines"}
json.dump({"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": [failure]}, sys.stdout)
"""


def sloppy_again(room: Path, severity: str) -> Outcome:
    """Run a bench that warns, then once more after its taxonomy was edited."""
    bench = measured(room, _SLOPPY)
    taxonomy = room / "bench" / TASK_CLASS / "failure_modes.yaml"
    warned = "answer.sloppy:\n  severity: warn\n"
    text = taxonomy.read_text(encoding="utf-8")
    assert warned in text
    taxonomy.write_text(text.replace(warned, warned.replace("warn", severity)), encoding="utf-8")
    return again(bench)


@attack("score_under_another_taxonomy")
def score_under_another_taxonomy(room: Path) -> Outcome:
    return sloppy_again(room, "block")


@twin("score_under_another_taxonomy")
def score_under_the_same_taxonomy(room: Path) -> Outcome:
    return Outcome(sloppy_again(room, "warn").met)


_LENIENT_ONCE = """\
import json, os, sys
lenient = os.path.exists({there!r})
json.dump({{"passed": lenient, "score": float(lenient), "breakdown": {{}}, "failure_modes": []}}, sys.stdout)
"""


def lenient(room: Path) -> str:
    """Return a rubric that passes everything while a file is there, as it does now."""
    (room / "lenient").touch()
    return _LENIENT_ONCE.format(there=str(room / "lenient"))


@attack("score_by_another_interpreter")
def score_by_another_interpreter(room: Path) -> Outcome:
    with patch("platform.python_version", return_value="3.99.0"):
        bench = measured(room, lenient(room))
    (room / "lenient").unlink()
    return again(bench)


@twin("score_by_another_interpreter")
def score_by_the_same_interpreter(room: Path) -> Outcome:
    bench = measured(room, lenient(room))
    bench.run()
    return Outcome(served(bench).met)


@dataclass(frozen=True)
class Command:
    """`codegenie eval run` on a bench in a room."""

    room: Path

    def arguments(self) -> list[str]:
        where = ["--out", "runs", "--cache", "cache", "--isolation", "subprocess"]
        return ["run", TASK_CLASS, "--sut", "null", *where, "--quiet", "--json"]

    def with_version(self, version: str) -> None:
        """Run it with a copy of the package that has another version."""
        package = shutil.copytree(Path(codegenie.__file__).parent, self.room / "older" / "codegenie")
        init = package / "__init__.py"
        init.write_text(init.read_text(encoding="utf-8") + f'\n__version__ = "{version}"\n', encoding="utf-8")
        env = {**unmeasured(), "PYTHONPATH": str(package.parent)}
        done = call(eval_argv(*self.arguments()), self.room, env)
        assert done.returncode == 0, done.stderr

    def again(self) -> Outcome:
        """Run it with the package as it is, now that the rubric is strict."""
        (self.room / "lenient").unlink()
        ask(self.room, *self.arguments())
        return served(Bench(self.room))


@attack("score_by_an_older_harness")
def score_by_an_older_harness(room: Path) -> Outcome:
    write_bench(room / "bench", lenient(room))
    command = Command(room)
    command.with_version("0.0.1")
    return command.again()


@twin("score_by_an_older_harness")
def score_by_the_same_harness(room: Path) -> Outcome:
    write_bench(room / "bench", lenient(room))
    command = Command(room)
    command.with_version(codegenie.__version__)
    return Outcome(command.again().met)
