"""Writes whole benches for tests: given a rubric and cases, everything else is valid and digested."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.canonical import canonical_json
from codegenie.eval.models import BenchRunReport, BenchScore, RunOptions
from codegenie.eval.ports import SutCase, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner

TASK_CLASS = "built-class"
BREAKDOWN_KEYS = ("accuracy", "style.line_length")
RUNNER_CODES = (
    "sut.exception",
    "sut.timeout",
    "sut.cancelled",
    "rubric.malformed_output",
    "rubric.timeout",
    "rubric.unknown_breakdown_key",
    "rubric.unknown_failure_mode",
)
OWN_MODES = {"answer.wrong": "block", "answer.sloppy": "warn", "answer.noted": "info"}

ECHO_RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
json.dump(request["harness_output"], sys.stdout)
"""
"""Answers with whatever the system under test produced: a test writes the verdict itself."""

HONEST_RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
with open("expected/answer.txt", encoding="utf-8") as file:
    right = request["harness_output"].get("answer") == file.read()
score = float(right)
answer = {"passed": right, "score": score, "breakdown": {"accuracy": score}, "failure_modes": []}
json.dump(answer, sys.stdout)
"""
"""Passes when the output's `answer` is the content of expected/answer.txt."""


@dataclass(frozen=True)
class CaseFiles:
    """One case: its files by path, and what its case.toml says beyond the defaults."""

    case_id: str
    files: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str | int] = field(default_factory=dict)


def write_bench(
    root: Path,
    rubric: str = HONEST_RUBRIC,
    cases: Iterable[str | CaseFiles] = ("one",),
    *,
    name: str = TASK_CLASS,
) -> Path:
    """Write one task class below `root` and return `root`, which is then a bench root."""
    directory = root / name
    (directory / "cases").mkdir(parents=True)
    keys = "".join(f'    KEY_{n} = "{key}"\n' for n, key in enumerate(BREAKDOWN_KEYS))
    severities = {**dict.fromkeys(RUNNER_CODES, "block"), **OWN_MODES}
    texts = {
        "registration.py": (
            "from codegenie.eval import register_task_class\n\n\n"
            f'@register_task_class("{name}", min_cases_for_promotion={{"bronze": 1}})\n'
            "class Built:\n    pass\n"
        ),
        "breakdown_keys.py": f"from enum import StrEnum\n\n\nclass BreakdownKey(StrEnum):\n{keys}",
        "failure_modes.yaml": "".join(
            f"{code}:\n  severity: {severity}\n  description: made for a test\n"
            for code, severity in severities.items()
        ),
        "README.md": "A bench made by a test.\n",
        "rubric.py": rubric,
    }
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    for case in cases:
        _write_case(directory / "cases", case if isinstance(case, CaseFiles) else CaseFiles(case), name)
    task_class = load_task_class(name, bench_root=root)
    write_digests(task_class, digest_statuses(task_class))
    return root


def _write_case(cases: Path, case: CaseFiles, task_class: str) -> None:
    fields: dict[str, str | int] = {
        "case_id": case.case_id,
        "task_class": task_class,
        "disposition": "positive",
        "difficulty": "easy",
        "source": "curated",
        "curation_class": "held-out",
        **case.fields,
    }
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in fields.items()]
    dates = ["added_at = 2026-11-15\n", "last_validated_at = 2026-11-15\n"]
    files = {
        "input/question.txt": f"what is {case.case_id}?\n",
        "expected/answer.txt": f"it is {case.case_id}",
        "case.toml": "".join(lines + dates),
        **case.files,
    }
    for path, text in files.items():
        target = cases / case.case_id / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


async def right_answer(case: SutCase) -> dict[str, Any]:
    """Answer every case of an honest bench rightly."""
    await asyncio.sleep(0)
    return {"answer": f"it is {case.case_id}"}


def run_bench(
    root: Path,
    sut: SystemUnderTest | SutRunner = right_answer,
    *,
    only: Iterable[str] | None = None,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> BenchRunReport:
    """Run a bench that `write_bench` wrote and return its report."""
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=root,
        case_filter=None if only is None else frozenset(only),
        options=RunOptions(**{"isolation": "subprocess", **options}),
    )
    return asyncio.run(runner.execute(plan, system_under_test=sut))


def outcome(report: BenchRunReport, case_id: str) -> tuple[str, str | None]:
    """Return code and detail of a case that failed with exactly one failure mode and scores 0."""
    score = dict(report.per_case)[case_id]
    assert not score.passed
    assert score.score == 0.0
    assert len(score.failure_modes) == 1, score.failure_modes
    return score.failure_modes[0].code, score.failure_modes[0].detail


def canonical_score(score: BenchScore) -> bytes:
    """Return the bytes of a score without the one number that is a measurement of time."""
    return canonical_json(score.model_dump(mode="json", exclude={"wall_clock_ms"}))
