"""A directory with a bench of file edits, and agents that are programs to measure on it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import call, environment, user_argv

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
EDIT_RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
with open("expected/calc.py", encoding="utf-8") as file:
    right = request["harness_output"].get("files", {}).get("calc.py") == file.read()
score = float(right)
json.dump({"passed": right, "score": score, "breakdown": {}, "failure_modes": []}, sys.stdout)
"""
"""Passes when the agent has written expected/calc.py into calc.py."""

FIXING = "sed -i 's/a - b/a + b/' calc.py\n"


def edit_case(case_id: str, **fields: str | int) -> CaseFiles:
    """Return a case whose calc.py has to be mended."""
    files = {"input/calc.py": WRONG, "expected/calc.py": RIGHT, "input/TASK.md": f"Mend {case_id}.\n"}
    return CaseFiles(case_id, files, fields)


@dataclass(frozen=True)
class AgentDesk:
    """An empty directory with the bench of edits in `bench/`."""

    directory: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def script(self, text: str, name: str = "agent.sh") -> str:
        """Write a shell script, and return the spec that runs it."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        path.chmod(0o755)
        return f"command:./{name}"

    def run(self, sut: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Measure an agent."""
        return self.ask("run", TASK_CLASS, "--sut", sut, "--quiet", *arguments, **more)

    def ask(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Call any command."""
        return call(user_argv(*arguments), self.directory, environment(**{**self.variables, **more}))

    def document(self, *arguments: str, **more: str) -> dict[str, Any]:
        """Call any command with --json, and return its document."""
        done = self.ask(*arguments, "--json", **more)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def trials(self, case: str, run: str = "latest") -> list[dict[str, Any]]:
        """Return the evidence on one case."""
        trials: list[dict[str, Any]] = self.document("show", run, case)["trials"]
        return trials

    def artifact(self, trial: Mapping[str, Any], name: str) -> bytes:
        """Return an artefact of a trial."""
        digest: str = trial["artifacts"][name]
        return (self.directory / ".codegenie/eval/runs/artifacts" / digest[:2] / digest).read_bytes()

    def output(self, trial: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output that was judged."""
        document: dict[str, Any] = json.loads(self.artifact(trial, "output"))
        return document


@contextmanager
def agent_desk(cases: Iterable[str | CaseFiles] = ("one", "two")) -> Iterator[AgentDesk]:
    """Give a directory with the bench of edits. The user of a box can walk to it, unlike to pytest's own."""
    with tempfile.TemporaryDirectory(prefix="agent-desk-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        written = [edit_case(case) if isinstance(case, str) else case for case in cases]
        write_bench(directory / "bench", EDIT_RUBRIC, written)
        yield AgentDesk(directory)


def python_program() -> str:
    """Return a Python that a box shows: that of the system, or ours."""
    system = "/usr/bin/python3"
    return system if os.access(system, os.X_OK) else sys.executable
