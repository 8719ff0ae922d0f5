"""The pages on the log and on the gate name what the code has: reasons, settings, fields, kinds and words."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from codegenie.eval.cli.show_command import _PARTS
from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.gate import policy, verdict
from codegenie.eval.gate.verdict import PromotionVerdict
from codegenie.eval.log.records import RECORD_OF_BODY, LogRecord
from codegenie.eval.models import Record

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "reference"
GATE = (DOCS / "gate.md").read_text(encoding="utf-8")
LOG = (DOCS / "log.md").read_text(encoding="utf-8")


def first_cells(text: str, heading: str) -> set[str]:
    """Return every name in backticks that begins a row of a section."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def unnamed(names: set[str], page: str) -> set[str]:
    return {name for name in names if f"`{name}`" not in page}


def test_every_reason_of_the_gate_has_a_row_and_no_other() -> None:
    sources = [file.read_text(encoding="utf-8") for file in Path(verdict.__file__).parent.glob("*.py")]
    reasons = set(re.findall(r'\breason\(\s*"([a-z_]+)"', "\n".join(sources)))

    assert len(reasons) > 20
    assert first_cells(GATE, "Reasons") == reasons


def test_every_setting_of_the_policy_has_a_row_and_no_other() -> None:
    assert first_cells(GATE, "Policy file") == policy._KEYS  # noqa: SLF001 - the page names what is read


def test_every_field_of_a_verdict_and_every_verdict_is_named() -> None:
    verdicts = set(get_args(PromotionVerdict.model_fields["verdict"].annotation))

    assert first_cells(GATE, "What a verdict means") == verdicts
    assert unnamed(set(PromotionVerdict.model_fields), GATE) == set()


def test_every_kind_of_record_and_every_field_of_it_is_named() -> None:
    kinds = {kind.model_fields["kind"].default for kind in RECORD_OF_BODY.values()}
    wanted = {field.alias or name for name, field in LogRecord.model_fields.items()} | {"kind", "body"}

    assert first_cells(LOG, "Records") >= kinds | wanted
    records: list[type[Record]] = [*RECORD_OF_BODY, TrialEvidence, Answer]
    for record in records:
        assert unnamed(set(record.model_fields), LOG) == set(), record


def test_every_word_for_what_is_reused_and_every_kind_of_artefact_is_named() -> None:
    reused = set(get_args(TrialEvidence.model_fields["reused"].annotation))

    assert first_cells(LOG, "Records") >= reused
    assert first_cells(LOG, "Artefacts") == {name for part in _PARTS.values() for name in part}


def test_everything_that_verify_may_leave_unchecked_is_named() -> None:
    source = (Path(verdict.__file__).parents[1] / "verification.py").read_text(encoding="utf-8")

    words = set(re.findall(r'missing\.append\("(\w+)"\)', source))

    assert first_cells(LOG, "What verify checks") == words | {"not_checked"}


# The job of the page about CI.

_JOB = re.compile(r"```sh file=gate\.sh\n(.*?)```", re.DOTALL)
# The box hides the bench, so a good agent has to know by heart what is right.
_SOLVES = """\
SOLUTIONS = {solutions!r}


def solve(case):
    return {{"files": SOLUTIONS[case.case_id]}}
"""


def solutions() -> dict[str, dict[str, str]]:
    """Return the files of every solution, by case."""
    found: dict[str, dict[str, str]] = {}
    for case in (ROOT / "bench" / "dependency-pin" / "cases").iterdir():
        files = [file for file in (case / "solution").rglob("*") if file.is_file()]
        found[case.name] = {str(file.relative_to(case / "solution")): file.read_text() for file in files}
    return found


def job_ends_with(directory: Path, agent: str) -> int:
    """Run the job of the page as a pipeline does, with this agent, in a directory with bench and policy."""
    (job,) = _JOB.findall((DOCS.parent / "how-to" / "gate-in-ci.md").read_text(encoding="utf-8"))
    shim = directory / "bin" / "codegenie"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m codegenie "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    shutil.copytree(ROOT / "bench", directory / "bench", dirs_exist_ok=True)
    (directory / "trust-tiers.yaml").write_text("thresholds: {bronze: 0.5}\n", encoding="utf-8")
    (directory / "my_agent.py").write_text(agent.format(solutions=solutions()), encoding="utf-8")
    # The user of root's boxes has to see the agent.
    directory.chmod(0o755)
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AGENT": "python:my_agent:solve"}
    return subprocess.run(["bash", "-c", job], cwd=directory, env=environment, check=False).returncode


def test_the_job_of_the_page_is_green_for_a_good_agent_alone(tmp_path: Path) -> None:
    assert job_ends_with(tmp_path, _SOLVES) == 0
    assert job_ends_with(tmp_path, "def solve(case):\n    return {{}}\n") == 1
    assert job_ends_with(tmp_path, "import nothing_of_this_name\n") == 2
    # An end before the report is whole stops the job before anything is judged.
    costly = (
        "from codegenie.eval.ports import SutResult\n\n\ndef solve(case):\n    return SutResult({{}}, 9.0)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODEGENIE_EVAL_MAX_COST_USD", "1")
        assert job_ends_with(tmp_path, costly) == 4
