"""No command says `1 units`: whatever there is one of is named in the singular."""

import re
from pathlib import Path

import pytest

from codegenie.eval.wording import counted
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call, eval_argv

PLURAL = re.compile(r"(?<![\w.#-])1 (?!ms\b)(?:[A-Za-z-]+ ){0,2}?[A-Za-z-]*[a-rt-z]s\b(?! (?:passed|scored))")
AGENT = "def wrong(case):\n    return {}\n\n\ndef broken(case):\n    raise ValueError\n"
COMMANDS = [
    ("list",),
    ("digest", TASK_CLASS),
    ("fence", "bench"),
    ("tiers",),
    ("run", TASK_CLASS, "--sut", "python:agent:wrong", "--sut-version", "1"),
    ("run", TASK_CLASS, "--sut", "python:agent:wrong", "--sut-version", "1"),
    ("run", TASK_CLASS, "--sut", "python:agent:broken"),
    ("run", TASK_CLASS, "--sut", "null", "--cases", "one"),
    # Without a policy outputs are taken from the store.
    ("run", TASK_CLASS, "--sut", "null", "--tiers", "no-policy.yaml"),
    ("verify",),
    ("verify", "--rescore"),
    ("show", "latest"),
    ("runs",),
    ("cases",),
    ("promote-verdict", TASK_CLASS, "--tier", "bronze", "--run", "latest"),
    ("cache", "prune", "--older-than", "0"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 units", True),
        ("0 of 1 cases", True),
        ("1 blocked cases: a", True),
        ("1 SUT faults", True),
        ("the run has 1 unit; at least 5 must pass", False),
        ("11 units", False),
        ("0.1 units", False),
        ("1 class", False),
        ("1 ms", False),
    ],
)
def test_a_plural_after_one_is_found(text: str, found: bool) -> None:
    assert bool(PLURAL.search(text)) is found


def test_a_number_is_written_with_what_it_counts() -> None:
    assert [counted(n, "task class", "es") for n in (0, 1, 2)] == [
        "0 task classes",
        "1 task class",
        "2 task classes",
    ]


def test_no_command_speaks_of_one_in_the_plural(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", cases=["one"])
    (tmp_path / "bench" / TASK_CLASS / "README.md").write_text("One case.\n", encoding="utf-8")
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    policy = "thresholds: {bronze: 0.1, silver: 0.2}\nminimum_held_out: 1\nmaximum_age_days: 1\n"
    (tmp_path / "trust-tiers.yaml").write_text(policy, encoding="utf-8")

    said = [(arguments, call(eval_argv(*arguments), tmp_path)) for arguments in COMMANDS]

    assert [(arguments, done.stderr) for arguments, done in said if done.returncode not in {0, 1}] == []
    spoken = "\n".join(done.stdout + done.stderr for _, done in said)
    words = ("1 unit", "1 case", "1 blocked case", "1 SUT fault", "1 of 1 output", "1 day", "1 more")
    assert [word for word in words if word not in spoken] == []
    assert [line for line in spoken.splitlines() if PLURAL.search(line)] == []
