"""Agents that are not the one whose code was read, and runs that look like the first and only try."""

import py_compile
from pathlib import Path
from typing import Any

from tests.hostile.attackers.command_line import RUNS, ask
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.logs import forge
from tests.support.working_directory import furnish

GOOD = "def solve(case):\n    return {'answer': 'it is ' + case.case_id}\n"
IDLE = "def solve(case):\n    return {}\n"


def measure(room: Path, module: str = "agent", *more: str, **variables: str) -> tuple[str, dict[str, Any]]:
    """Run two cases against an agent that lies in the room."""
    if not (room / "bench").exists():
        write_bench(room / "bench", cases=("one", "two"))
    return ask(room, "run", TASK_CLASS, "--sut", f"python:{module}:solve", "-q", *more, **variables)


def passed(document: dict[str, Any]) -> str:
    return f"{document['report']['passed_count']} of 2 passed"


def earned_by_another(document: dict[str, Any]) -> str | None:
    return "an agent that does nothing passed" if document["report"]["passed_count"] else None


@attack("compiled_agent_beside_its_source")
def compiled_agent_beside_its_source(room: Path) -> Outcome:
    (room / "agent.py").write_text(GOOD, encoding="utf-8")
    py_compile.compile(
        str(room / "agent.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    (room / "agent.py").write_text(IDLE, encoding="utf-8")
    _, document = measure(room)
    return Outcome(passed(document), earned_by_another(document))


@twin("compiled_agent_beside_its_source")
def compiled_agent_of_its_source(room: Path) -> Outcome:
    (room / "agent.py").write_text(GOOD, encoding="utf-8")
    py_compile.compile(str(room / "agent.py"))
    return Outcome(passed(measure(room)[1]))


@attack("agent_edited_under_way")
def agent_edited_under_way(room: Path) -> Outcome:
    # It rewrites itself when it is imported to be looked at, before the first case.
    edit = f"open(__file__, 'w').write({GOOD!r})\n"
    (room / "agent.py").write_text(edit + IDLE, encoding="utf-8")
    met, document = measure(room)
    return Outcome(met, earned_by_another(document) if "report" in document else None)


@twin("agent_edited_under_way")
def agent_that_reads_itself(room: Path) -> Outcome:
    (room / "agent.py").write_text("open(__file__).read()\n" + GOOD, encoding="utf-8")
    return Outcome(measure(room)[0])


@attack("agent_with_a_taken_name")
def agent_with_a_taken_name(room: Path) -> Outcome:
    (room / "json.py").write_text("def solve(case):\n    return {}\n", encoding="utf-8")
    write_bench(room / "bench", cases=("one", "two"))
    met, document = ask(room, "run", TASK_CLASS, "--sut", "python:json:dumps", "-q")
    return Outcome(met, "another json was measured" if "report" in document else None)


@twin("agent_with_a_taken_name")
def agent_with_a_name_of_its_own(room: Path) -> Outcome:
    (room / "json_agent.py").write_text(GOOD, encoding="utf-8")
    return Outcome(measure(room, "json_agent")[0])


def two_models(room: Path, second: str) -> Outcome:
    source = (
        "import os\ndef solve(case):\n    return {'answer': os.environ['MODEL'] + ' is ' + case.case_id}\n"
    )
    (room / "agent.py").write_text(source, encoding="utf-8")
    flags = ("--sut-version", "1", "--sut-env", "MODEL")
    measure(room, "agent", *flags, MODEL="it")
    _, document = measure(room, "agent", *flags, MODEL=second)
    return Outcome(passed(document), earned_by_another(document) if second != "it" else None)


@attack("two_models_one_version")
def two_models_one_version(room: Path) -> Outcome:
    return two_models(room, "weak")


@twin("two_models_one_version")
def one_model_twice(room: Path) -> Outcome:
    return two_models(room, "it")


def two_helpers(room: Path, second: str) -> Outcome:
    (room / "agent.py").write_text(
        "def solve(case):\n    import helper\n    return helper.solve(case)\n", encoding="utf-8"
    )
    (room / "helper.py").write_text(GOOD, encoding="utf-8")
    measure(room, "agent", "--sut-version", "1")
    (room / "helper.py").write_text(second, encoding="utf-8")
    _, document = measure(room, "agent", "--sut-version", "1")
    return Outcome(passed(document), earned_by_another(document) if second != GOOD else None)


@attack("two_helpers_one_version")
def two_helpers_one_version(room: Path) -> Outcome:
    return two_helpers(room, IDLE)


@twin("two_helpers_one_version")
def one_helper_twice(room: Path) -> Outcome:
    return two_helpers(room, GOOD)


def judged(room: Path, *whose: str) -> str:
    _, verdict = ask(room, "promote-verdict", TASK_CLASS, "--tier", "bronze", *whose)
    reasons = sorted({reason.partition(":")[0] for reason in verdict["reasons"]})
    return ": ".join([verdict["verdict"], *reasons])


def promoted(verdict: str) -> str | None:
    return "it is promoted" if verdict == "sufficient" else None


def luck(room: Path, *words: str) -> str:
    """Measure one agent under a new version for each word; only `it is` is right."""
    furnish(room)
    answer = f"return {{'answer': open({str(room / 'word')!r}).read() + case.case_id}}"
    (room / "agents.py").write_text(f"def right(case):\n    {answer}\n", encoding="utf-8")
    for version, word in enumerate(words):
        (room / "word").write_text(word, encoding="utf-8")
        arguments = ("--sut-version", f"1.{version}", "--no-cache")
        ask(room, "run", TASK_CLASS, "--sut", "python:agents:right", "-q", *arguments)
    return judged(room)


@attack("another_label_another_try")
def another_label_another_try(room: Path) -> Outcome:
    verdict = luck(room, "it was ", "it is ")
    return Outcome(verdict, promoted(verdict))


@twin("another_label_another_try")
def one_try(room: Path) -> Outcome:
    return Outcome(luck(room, "it is "))


def aged(room: Path, *, old: bool) -> str:
    furnish(room)
    ask(room, "run", TASK_CLASS, "--sut", "oracle", "-q")
    (room / "agents.py").write_text(GOOD, encoding="utf-8")
    ask(room, "run", TASK_CLASS, "--sut", "python:agents:solve", "-q")
    if old:
        forge(room / RUNS, 2, lambda record: record.update(recorded_at="2020-01-01T00:00:00Z"))
    return judged(room, "--sut", "python:agents:solve")


@attack("old_run_resumed_today")
def old_run_resumed_today(room: Path) -> Outcome:
    verdict = aged(room, old=True)
    return Outcome(verdict, promoted(verdict))


@twin("old_run_resumed_today")
def run_begun_today(room: Path) -> Outcome:
    return Outcome(aged(room, old=False))
