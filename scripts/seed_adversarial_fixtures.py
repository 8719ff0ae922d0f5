"""Build the hostile benches of the story, with the stale digest. A second build gives the same bytes.

Usage: python scripts/seed_adversarial_fixtures.py [BENCH_ROOT]

The digest of `poisoned_case` is taken before its case.toml is edited, as in a pull request that changes a
case and not its entry. Do not edit the fixtures by hand: a test builds them again and compares.
"""

import shutil
import sys
from pathlib import Path

from codegenie.eval.bench.loading import read_case_tree

ROOT = Path(__file__).resolve().parents[1]
TASK_CLASS = "adversarial-task-class"
SIBLING = "adversarial-task-class-malformed-yaml"
POISONED = "poisoned_case"

REGISTRATION = '''\
"""Registration of `{name}`: no tier can be reached with it."""

from pathlib import Path

from codegenie.eval import register_task_class


@register_task_class(
    "{name}",
    bench_path=Path(__file__).parent,
    min_cases_for_promotion={{}},
)
class {class_name}:
    """One attack per case, each of which ends in one typed failure."""
'''

BREAKDOWN_KEYS = '''\
"""The one part that a score of `{name}` has."""

from enum import StrEnum


class BreakdownKey(StrEnum):
    PASSED = "passed"
'''

RUBRIC = '''\
"""A hostile rubric: each case is one attack on the harness that runs it."""

import json
import os
import sys
import time

request = json.load(sys.stdin)
case_id = request["case"]["case_id"]
breakdown = {"passed": 1.0}

if case_id == "env_read_attempt":
    print("ANTHROPIC_API_KEY is", os.environ.get("ANTHROPIC_API_KEY"), file=sys.stderr)
    sys.exit(1)
elif case_id == "rubric_timeout":
    print("going to sleep", file=sys.stderr, flush=True)
    time.sleep(120)
elif case_id == "banned_breakdown_key":
    breakdown[request["harness_output"].get("emit_key", "llm_confidence")] = 0.9
# poisoned_case and valid_baseline: everything passes. For the first, that is what its author wanted.

json.dump({"passed": True, "score": 1.0, "breakdown": breakdown, "failure_modes": []}, sys.stdout)
'''

HARMLESS_RUBRIC = '''\
"""Passes everything. It is never run: the taxonomy beside it does not load."""

import json
import sys

json.load(sys.stdin)
json.dump({"passed": True, "score": 1.0, "breakdown": {"passed": 1.0}, "failure_modes": []}, sys.stdout)
'''

SEVEN_CODES = """\
# The seven codes that are the harness's own, declared as they must be.
sut.exception:
  severity: block
  description: The agent raised, exited abnormally, or produced something that is not usable output.
sut.timeout:
  severity: block
  description: The agent had no result by its deadline.
sut.cancelled:
  severity: block
  description: The harness cancelled the agent, for the cost cap or on request.
rubric.malformed_output:
  severity: block
  description: The rubric gave no usable answer.
rubric.timeout:
  severity: block
  description: The rubric did not finish in time.
rubric.unknown_breakdown_key:
  severity: block
  description: The rubric reported a part of the score that this bench does not declare.
rubric.unknown_failure_mode:
  severity: block
  description: The rubric reported a failure that this file does not declare.
"""

MALFORMED_MODES = """\

answer.unsettling:
  severity: critical
  description: There is no such severity, so nobody can say whether this one blocks.
answer.unexplained:
  severity: warn
"""

README = """\
# adversarial-task-class

A bench as a malicious pull request would bring it: one attack per case, and for each the one typed failure
that the harness promises. It measures the harness, not an agent; no tier can be reached with it.

| case | threat | what it tries | what it meets | promised by |
|---|---|---|---|---|
| `env_read_attempt` | a rubric reads a credential of the harness | prints `ANTHROPIC_API_KEY` from its environment \
to stderr, exits with 1 | it got `None`; `rubric.malformed_output` | [ADR-0001]({adr}/0001-rubric-isolation.md) |
| `rubric_timeout` | a rubric holds up the run | sleeps 120 s in a case that allows 1 s | `rubric.timeout`, the child \
is reaped | [ADR-0001]({adr}/0001-rubric-isolation.md) |
| `banned_breakdown_key` | a rubric lets the judged system grade itself | emits `llm_confidence`, which no static \
check of the bench has seen | `rubric.unknown_breakdown_key`, the key is not persisted | \
[ADR-0008]({adr}/0008-breakdown-keys.md) |
| `poisoned_case` | a case is changed after its review | `case.toml` was edited, `cases/digests.yaml` was not | \
`BenchCaseDigestMismatch` before any agent is asked | [ADR-0005]({adr}/0005-digests.md) |
| `valid_baseline` | none: the honest sibling | passes | nothing; its score is the same with and without the others \
| [ADR-0003]({adr}/0003-the-plan-is-the-denominator.md) |

The fifth scenario, a taxonomy that does not load, has a directory of its own beside this one, \
`adversarial-task-class-malformed-yaml` ([ADR-0004]({adr}/0004-failure-taxonomy.md)): here it would keep the \
others from running.

Every case is `held-out`, so that the floor of held-out cases ([ADR-0006]({adr}/0006-curation-classes.md)) meets a \
hostile corpus too. The registration declares no tier on purpose.

**What a cheat would look like.** Every case but one is a cheat.

**Known weaknesses.** Five attacks are examples, not a proof; `tests/hostile/` has the others.

Made by `scripts/seed_adversarial_fixtures.py`, the stale digest included. Do not edit it by hand.
"""

SIBLING_README = """\
# adversarial-task-class-malformed-yaml

The fifth scenario of the hostile story: `failure_modes.yaml` gives one entry a severity that does not exist and \
leaves the description of another out. Loading the class is refused with `FailureModeTaxonomyInvalid`, so no run of \
it ever starts ([ADR-0004]({adr}/0004-failure-taxonomy.md)). Everything else here is as it should be, digests \
included: what is refused is refused for the taxonomy alone.

**What a cheat would look like.** A severity that a lenient reader takes for "not a block".

**Known weaknesses.** It is never run, so its one case says nothing.

Made by `scripts/seed_adversarial_fixtures.py`. Do not edit it by hand.
"""

CASE = """\
case_id = "{case_id}"
task_class = "{task_class}"
disposition = "{disposition}"
difficulty = "{difficulty}"
source = "curated"
curation_class = "held-out"
added_at = 2026-11-15
last_validated_at = 2026-11-15
"""

QUESTIONS = {
    "banned_breakdown_key": "May a judged system say how sure it is?",
    "env_read_attempt": "Which credentials does a rubric find?",
    POISONED: "Is this still the case that was reviewed?",
    "rubric_timeout": "How long may a rubric take?",
    "valid_baseline": "Does an honest case pass beside hostile ones?",
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_case(directory: Path, task_class: str, case_id: str) -> None:
    positive = case_id in {"valid_baseline", "never_run"}
    head = CASE.format(
        case_id=case_id,
        task_class=task_class,
        disposition="positive" if positive else "negative",
        difficulty="easy" if positive else "hard",
    )
    if case_id == "rubric_timeout":
        head += "rubric_wall_clock_seconds = 1\n"
    _write(directory / case_id / "case.toml", head)
    _write(
        directory / case_id / "input" / "question.txt", QUESTIONS.get(case_id, "Is this ever asked?") + "\n"
    )
    _write(directory / case_id / "expected" / "answer.txt", "See the README of this bench.\n")


def _build_class(directory: Path, case_ids: list[str]) -> None:
    """Write the parts that both classes have, every digest current."""
    if directory.exists():
        shutil.rmtree(directory)
    name = directory.name
    class_name = "".join(word.capitalize() for word in name.split("-"))
    _write(directory / "registration.py", REGISTRATION.format(name=name, class_name=class_name))
    _write(directory / "breakdown_keys.py", BREAKDOWN_KEYS.format(name=name))
    cases = directory / "cases"
    for case_id in case_ids:
        _write_case(cases, name, case_id)
    entries = [f"{case_id}: blake3:{read_case_tree(cases, case_id).digest}\n" for case_id in case_ids]
    _write(cases / "digests.yaml", "".join(entries))


def build(bench_root: Path) -> None:
    """Write both classes below `bench_root`; existing directories of the same names are replaced."""
    adr = "../../../../docs/adr"
    hostile = bench_root / TASK_CLASS
    _build_class(hostile, sorted(QUESTIONS))
    _write(hostile / "rubric.py", RUBRIC)
    _write(hostile / "failure_modes.yaml", SEVEN_CODES)
    _write(hostile / "README.md", README.format(adr=adr))
    # After its digest was taken, the hard case becomes an easy one, and its digest is not updated.
    poisoned = hostile / "cases" / POISONED / "case.toml"
    _write(poisoned, poisoned.read_text(encoding="utf-8").replace('"hard"', '"easy"'))

    malformed = bench_root / SIBLING
    _build_class(malformed, ["never_run"])
    _write(malformed / "rubric.py", HARMLESS_RUBRIC)
    _write(malformed / "failure_modes.yaml", SEVEN_CODES + MALFORMED_MODES)
    _write(malformed / "README.md", SIBLING_README.format(adr=adr))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "fixtures" / "bench")
