"""The page on the command line says what the commands do: the keys of their documents and their exit codes.

Every command is called in one directory, some of them in the states that other exit codes stand for. What
they answered is compared with the page, in both directions.
"""

import dataclasses
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.verification import Difference
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call, eval_argv
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
GATE = (ROOT / "docs" / "reference" / "gate.md").read_text(encoding="utf-8")

AGENT = """\
from codegenie.eval import SutResult


def solve(case):
    return {"answer": f"it is {case.case_id}"}


def costly(case):
    return SutResult(harness_output={}, cost_usd=9.0)
"""
POLICY = "thresholds: {bronze: 0.02, silver: 0.9}\n"
BENCH = f"bench/{TASK_CLASS}"
GOOD = "python:agent:solve"
# In this order, and in one directory: the command, and the exit code that the page means.
CALLS = [
    (0, "list"),
    (0, f"digest {TASK_CLASS}"),
    (0, "fence"),
    (0, "fence --explain F061"),
    (0, "doctor"),
    (0, "demo"),
    (0, "tiers"),
    (2, "tiers --write"),
    (4, "verify"),
    (4, "show latest"),
    (0, "runs"),
    (2, f"runs {TASK_CLASS}"),
    (4, "cases"),
    (4, "export latest -o run.zip"),
    (4, "abandon latest --because there-is-none"),
    (4, f"promote-verdict {TASK_CLASS} --tier bronze"),
    (2, "run nothing-of-this-name --sut null"),
    (0, f"run {TASK_CLASS} --sut {GOOD}"),
    (0, "verify --rescore"),
    (0, f"promote-verdict {TASK_CLASS} --tier bronze"),
    (1, f"promote-verdict {TASK_CLASS} --tier silver"),
    (2, f"promote-verdict {TASK_CLASS} --tier bronze --tiers not-there.yaml"),
    (0, "show latest"),
    (0, "show latest one --diff"),
    (0, "runs"),
    (0, "cases"),
    (2, "cases --outcome good"),
    (2, "show latest nothing-of-this-name"),
    (0, "export latest -o run.zip"),
    (2, "export latest"),
    (2, "abandon latest"),
    (2, "verify --expect-head nothing"),
    (4, f"run {TASK_CLASS} --sut python:agent:costly --max-cost-usd 1 --concurrency 1"),
    (0, "show latest"),
    (0, "cache prune"),
    (0, "abandon latest --because the-test-is-over"),
]
# The same after one byte of a case was changed, and after a directory was added.
STALE_CALLS = [
    (3, f"digest {TASK_CLASS}"),
    (1, "fence"),
    (3, f"run {TASK_CLASS} --sut null"),
    (3, "verify"),
    (3, f"promote-verdict {TASK_CLASS} --tier bronze --sut {GOOD}"),
]
# After one byte of the log was changed.
TAMPERED_CALLS = [
    (3, "verify"),
    (3, "show latest"),
    (3, "runs"),
    (3, "cases"),
    (3, "export latest -o again.zip"),
    (3, "abandon latest --because the-log-is-broken"),
    (3, "cache prune"),
]
MISSING_CALLS = [(2, f"digest {TASK_CLASS}"), (2, "fence nothing-of-this-name")]
# The commands that scripts call for their exit code, and whose help says what each means.
DECIDING = ("run", "verify", "promote-verdict", "digest", "fence")
# Words of the table that are values, and not keys.
VALUES = {
    *("abandoned", "agent", "broker", "current", "error", "extra", "finished", "missing", "open", "removed"),
    *("stale", "warning", "young"),
}
# What a rubric leaves that no longer says the same, which no rubric of this test does.
DIFFERENCE = {"run", "stored_in", "now_in", *(field.name for field in dataclasses.fields(Difference))}


@dataclass(frozen=True)
class Answer:
    """One call: its words, the exit code that was meant and the one that came, and the document."""

    words: str
    meant: int
    code: int
    document: dict[str, Any]

    @property
    def command(self) -> str:
        return self.words.split()[0]


def ask(calls: list[tuple[int, str]], directory: Path) -> Iterator[Answer]:
    for meant, words in calls:
        ended = call(eval_argv(*words.split(), "--json"), directory)
        yield Answer(words, meant, ended.returncode, json.loads(ended.stdout))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    directory = tmp_path_factory.mktemp("commands")
    write_bench(directory / "bench", cases=["one", "two"])
    (directory / "agent.py").write_text(AGENT, encoding="utf-8")
    (directory / "trust-tiers.yaml").write_text(POLICY, encoding="utf-8")
    found = list(ask(CALLS, directory))
    case = directory / BENCH / "cases" / "one"
    (case / "input" / "question.txt").write_text("another question\n", encoding="utf-8")
    found += ask(STALE_CALLS, directory)
    case.rename(case.with_name("renamed"))
    found += ask(MISSING_CALLS, directory)
    record = directory / ".codegenie" / "eval" / "runs" / "00000000.json"
    (record.parent / "journal" / "a-journal-to-look-at").write_bytes(b"")
    record.write_bytes(record.read_bytes().replace(b"2", b"3", 1))
    return [*found, *ask(TAMPERED_CALLS, directory)]


def section(heading: str) -> str:
    _, found, rest = PAGE.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    return rest.partition("\n## ")[0]


def documented_keys() -> dict[str, set[str]]:
    """Return the names in backticks of the last column, by schema."""
    lines = [
        line.strip("|").split(" | ") for line in section("JSON documents").splitlines() if "| `code" in line
    ]
    keys = {cells[0].strip(" `"): set(re.findall(r"`([a-z_]+)`", cells[2])) for cells in lines}
    fields = GATE.partition("A verdict has ")[2].partition("\n\n")[0]
    keys["codegenie.eval.verdict/1"] |= set(re.findall(r"`([a-z_]+)`", fields)) - {"schema"}
    return keys


def keys_below(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*map(keys_below, value.values()))
    return set().union(*map(keys_below, value)) if isinstance(value, list) else set()


def test_every_call_ends_as_it_is_meant(answers: list[Answer]) -> None:
    assert [answer for answer in answers if answer.code != answer.meant] == []


def test_every_document_has_the_keys_that_the_page_says_and_no_others(answers: list[Answer]) -> None:
    documented = documented_keys()
    real: dict[str, set[str]] = {}
    for answer in answers:
        real.setdefault(answer.document["schema"], set()).update(answer.document.keys() - {"schema"})

    assert real.keys() == documented.keys()
    assert {
        schema: keys - documented[schema] for schema, keys in real.items() if keys - documented[schema]
    } == {}


def test_the_page_names_no_key_that_no_document_has(answers: list[Answer]) -> None:
    every: dict[str, set[str]] = {}
    for answer in answers:
        every.setdefault(answer.document["schema"], set()).update(keys_below(answer.document))
    commands = {answer.command for answer in answers}
    unknown = {
        (schema, key)
        for schema, keys in documented_keys().items()
        for key in keys - every[schema] - VALUES - DIFFERENCE - commands
    }

    assert unknown == set()


def exit_codes() -> dict[str, set[int]]:
    """Return which codes the page gives to which command."""
    lines = [
        line.strip("|").split("|") for line in section("Exit codes").splitlines() if line.startswith("| `")
    ]
    return {cells[0].strip(" `"): {int(code) for code in re.findall(r"\d+", cells[1])} for cells in lines}


def codes_of_help(text: str) -> set[int]:
    """Return the exit codes that a help text names: every number behind `Exits with`, up to a blank line."""
    said = text.partition("Exits with ")[2].partition("\n\n")[0]
    return {int(code) for code in re.findall(r"(?<![\w.])(\d{1,3})(?![\w])", said)}


def test_the_page_gives_a_command_the_exit_codes_with_which_it_was_seen_to_end(answers: list[Answer]) -> None:
    seen: dict[str, set[int]] = {}
    for answer in answers:
        seen.setdefault(answer.command, set()).add(answer.code)
    # Signals are sent in tests/integration/test_signals.py.
    signals = {128 + signal.SIGINT, 128 + signal.SIGTERM}

    assert {command: codes - signals for command, codes in exit_codes().items()} == seen


def test_a_help_text_that_names_exit_codes_names_those_of_the_page() -> None:
    given = exit_codes()
    named = {command: codes_of_help(call(eval_argv(command, "--help"), ROOT).stdout) for command in given}

    assert {name for name, codes in named.items() if len(codes) > 1} == set(DECIDING)
    assert {name: codes for name, codes in named.items() if len(codes) > 1 and codes != given[name]} == {}


def test_the_codes_of_a_help_text_are_found() -> None:
    assert codes_of_help("Look.\n\n  Exits with 0 if so, with 12 or\n  130 if not.\n\nOptions: 7") == {
        0,
        12,
        130,
    }
    assert codes_of_help("Look at 3 things.") == set()
