"""Benches of any size for the measurements: four files and 8 KB a case, digests by the loader's own code."""

from pathlib import Path

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.models import RUNNER_CODES

NAME = "generated"
CASE_BYTES = 8192

SCORER = """\
import json
import sys

request = json.load(sys.stdin)
with open(request["expected_dir"] + "/answer.txt", encoding="utf-8") as file:
    expected = file.read()
passed = request["harness_output"].get("answer") == expected
failures = [] if passed else [{"code": "answer.wrong", "severity": "warn", "detail": "not the answer"}]
answer = {"passed": passed, "score": float(passed), "breakdown": {"passed": float(passed)}}
json.dump({**answer, "failure_modes": failures}, sys.stdout)
"""
"""The scorer of one case: exactly the same program for the harness and for the reference."""

_WITHOUT_JSON = """\
import sys

score = sum(sys.stdin.buffer.read()) // 2 % {steps} / ({steps} - 1)
print('{{"passed": %s, "score": %s, ' % ("true" if score == 1 else "false", score), end="")
print('"breakdown": {{"passed": %s}}, "failure_modes": []}}' % score)
"""
PASS_OR_FAIL = _WITHOUT_JSON.format(steps=2)
"""The cheapest possible rubric; about half of the cases pass."""
IN_STEPS = _WITHOUT_JSON.format(steps=101)
"""The same with partial scores, for which the bootstrap has to draw samples and imports numpy."""

_REGISTRATION = f"""\
from codegenie.eval import register_task_class


@register_task_class("{NAME}", min_cases_for_promotion={{"bronze": 3}})
class Generated:
    pass
"""
_BREAKDOWN_KEYS = """\
from enum import StrEnum


class BreakdownKey(StrEnum):
    PASSED = "passed"
"""
_CASE = """\
case_id = "{case_id}"
task_class = "{task_class}"
disposition = "positive"
difficulty = "easy"
source = "curated"
curation_class = "held-out"
added_at = 2025-01-15
last_validated_at = 2025-01-15
"""


def generate_bench(root: Path, cases: int, rubric: str = SCORER) -> Path:
    """Write a bench of `cases` cases below `root`, which must be new, and return its directory."""
    directory = root / NAME
    (directory / "cases").mkdir(parents=True)
    modes = {**dict.fromkeys(RUNNER_CODES, "block"), "answer.wrong": "warn"}
    taxonomy = "".join(f"{code}: {{severity: {level}, description: x}}\n" for code, level in modes.items())
    texts = {
        "registration.py": _REGISTRATION,
        "rubric.py": rubric,
        "breakdown_keys.py": _BREAKDOWN_KEYS,
        "failure_modes.yaml": taxonomy,
        "README.md": "Generated.\n",
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    for number in range(cases):
        _write_case(directory / "cases", f"case-{number:06d}")
    task_class = load_task_class(NAME, bench_root=root)
    write_digests(task_class, digest_statuses(task_class))
    return directory


def _write_case(cases: Path, case_id: str) -> None:
    head = _CASE.format(case_id=case_id, task_class=NAME)
    answer = f"the answer of {case_id}\n"
    filler = f"line of {case_id}\n" * (CASE_BYTES // 16)
    half, rest = divmod(CASE_BYTES - len(head) - len(answer), 2)
    files = {
        "case.toml": head,
        "expected/answer.txt": answer,
        "input/one.txt": filler[: half + rest],
        "input/two.txt": filler[:half],
    }
    for part in ("input", "expected"):
        (cases / case_id / part).mkdir(parents=True)
    for name, text in files.items():
        (cases / case_id / name).write_text(text, encoding="utf-8")
