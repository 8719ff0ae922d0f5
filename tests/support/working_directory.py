"""A working directory with a bench, agents and a policy, and the command line to ask about what is there."""

import json
import shutil
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegenie.eval.cli import run_command_line
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import without_a_box

if TYPE_CHECKING:
    # Attacks are played in processes of their own, which need no pytest and would wait for its import.
    import pytest

UNITS = 5
"""As few as can certify 0.5."""

POLICY = "thresholds: {bronze: 0.5, silver: 0.9}\n"

AGENTS = """\
import os
import sys


def right(case):
    return {"answer": f"it is {case.case_id}", "diff": "--- a\\n+++ b\\n"}


def wrong(case):
    print("I have no idea about", case.case_id)
    return {"answer": "it is not"}


def mostly(case):
    return {"answer": "it is not" if case.case_id.endswith("00") else f"it is {case.case_id}"}


def rude(case):
    sys.stdout.write(os.environ["PATH"][:0] + STEERING)
    return {"answer": STEERING, "diff": STEERING}


STEERING = "a\\x1b[2J\\x1b]0;title\\x07b\\x9b31mc\\u202ed\\u2066e\\u200bf\\x7fg\\rh\\u2028i"
"""

STEERING_CHARACTERS = "\x1b\x07\x9b\u202e\u2066\u200b\x7f\r\u2028"


@dataclass(frozen=True)
class Said:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Return the one JSON document on stdout."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def refusal(self) -> tuple[int, str]:
        """Return exit code and type of a refusal that was asked for as JSON."""
        return self.code, self.document["error"]["type"]


@dataclass(frozen=True)
class Desk:
    """A directory to work in, and the command line called from there."""

    directory: Path
    capture: "pytest.CaptureFixture[str]"

    def ask(self, command: str, *arguments: str) -> Said:
        """Call `codegenie eval` in the directory."""
        self.capture.readouterr()
        with chdir(self.directory):
            code = run_command_line(["eval", *without_a_box(command, *arguments)])
        out, err = self.capture.readouterr()
        return Said(code, out, err)

    def run(self, agent: str = "right", *arguments: str) -> Said:
        """Measure an agent on the whole bench."""
        return self.ask("run", TASK_CLASS, "--sut", f"python:agents:{agent}", "-q", *arguments)

    def verdict(self, *arguments: str) -> Said:
        """Ask the gate about bronze."""
        return self.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", "--json", *arguments)

    @property
    def log(self) -> Path:
        """Return the directory of the log."""
        return self.directory / ".codegenie" / "eval" / "runs"

    @property
    def first_run(self) -> str:
        """Return the id of the oldest run."""
        run_id: str = json.loads((self.log / "00000000.json").read_bytes())["run_id"]
        return run_id

    @property
    def run_id(self) -> str:
        """Return the id of the newest run."""
        records = sorted(self.log.glob("*.json"))
        run_id: str = json.loads(records[-1].read_bytes())["run_id"]
        return run_id


def furnish(directory: Path, units: int = UNITS, **bench: str) -> None:
    """Write a bench, the agents and the policy; nothing has been measured yet."""
    cases = [CaseFiles(f"case-{number:02}") for number in range(units)]
    write_bench(directory / "bench", cases=cases, **bench)
    (directory / "agents.py").write_text(AGENTS, encoding="utf-8")
    (directory / "trust-tiers.yaml").write_text(POLICY, encoding="utf-8")


def copied(source: Path, target: Path) -> Path:
    """Copy a furnished directory, so that a test may do with it what it likes."""
    shutil.copytree(source, target, symlinks=True)
    return target
