"""Whatever a rubric writes, a verdict comes out, and only a well-formed answer is worth anything."""

import json
import math
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from codegenie.eval.evidence import apply_block_rule
from codegenie.eval.models import RUNNER_CODES, Severity, TrialScore
from codegenie.eval.ports import RubricRun
from codegenie.eval.sanitising import Redactor
from codegenie.eval.validation import judge
from tests.support.benches import BREAKDOWN_KEYS, OWN_MODES
from tests.unit.test_validation import PERFECT, RUN, task_class

TASK_CLASS = task_class()
REDACTOR = Redactor({})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from([*BREAKDOWN_KEYS, "speed", "confidence", "Accuracy"]) | st.text(max_size=8)
codes = st.sampled_from([*OWN_MODES, *RUNNER_CODES, "answer.new"]) | st.text(max_size=8)
nearly_answers = st.fixed_dictionaries(
    {
        "passed": st.booleans() | json_values,
        "score": st.floats(0, 1) | json_values,
        "breakdown": st.dictionaries(keys, st.floats(0, 1) | json_values, max_size=5) | json_values,
        "failure_modes": st.lists(
            st.fixed_dictionaries(
                {"code": codes}, optional={"severity": st.text(max_size=6), "detail": st.text(max_size=300)}
            )
            | json_values,
            max_size=4,
        ),
    },
    optional={"cost_usd": json_values, "extra": json_values},
)
ends = st.builds(
    RubricRun,
    stdout=st.binary(max_size=200),
    stdout_truncated=st.booleans(),
    stderr=st.binary(max_size=200),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.sampled_from(["KILL", "SEGV", "64"]),
    timed_out=st.booleans(),
    leaked_processes=st.integers(0, 3),
)


def check(verdict: TrialScore) -> None:
    """Check what every verdict keeps; building the record checks the rest."""
    TrialScore(
        passed=verdict.passed,
        score=verdict.score,
        breakdown=verdict.breakdown,
        failure_modes=verdict.failure_modes,
    )
    assert set(verdict.breakdown) <= set(BREAKDOWN_KEYS)
    assert all(math.isfinite(number) for number in (verdict.score, *verdict.breakdown.values()))
    assert {mode.code for mode in verdict.failure_modes} <= set(OWN_MODES) | set(RUNNER_CODES)
    blocked = any(mode.severity is Severity.BLOCK for mode in verdict.failure_modes)
    assert not (blocked and (verdict.passed or verdict.score))


def well_formed(stdout: bytes) -> bool:
    """Say by an independent reading whether bytes could be an answer at all."""
    try:
        document = json.loads(stdout.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(document, dict)
        and PERFECT.keys() <= document.keys() <= {*PERFECT, "cost_usd", "wall_clock_ms"}
        and isinstance(document["passed"], bool)
        and isinstance(document["score"], int | float)
        and not isinstance(document["score"], bool)
        and 0 <= document["score"] <= 1
        and isinstance(document["breakdown"], dict)
        and isinstance(document["failure_modes"], list)
    )


def check_worth(run: RubricRun, verdict: TrialScore) -> None:
    check(verdict)
    orderly = run.exit_code == 0 and run.signal is None and not (run.timed_out or run.leaked_processes)
    if not (orderly and not run.stdout_truncated and well_formed(run.stdout)):
        assert (verdict.passed, verdict.score, verdict.breakdown) == (False, 0.0, {})
        assert len(verdict.failure_modes) == 1


@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf{}")
@example(b'{"passed":true,"score":1' + b"0" * 400 + b',"breakdown":{},"failure_modes":[]}')
def test_arbitrary_bytes_are_judged_and_worth_nothing_unless_well_formed(stdout: bytes) -> None:
    run = replace(RUN, stdout=stdout)

    check_worth(run, apply_block_rule(judge(run, TASK_CLASS, REDACTOR), None, 0))


@given(ends)
def test_arbitrary_ends_are_judged(run: RubricRun) -> None:
    check_worth(run, apply_block_rule(judge(run, TASK_CLASS, REDACTOR), None, 0))


@given(ends, st.floats(0.001, 1))
def test_a_perfect_answer_is_worth_nothing_after_a_disorderly_end(run: RubricRun, score: float) -> None:
    perfect = replace(run, stdout=json.dumps({**PERFECT, "score": score}).encode())
    verdict = apply_block_rule(judge(perfect, TASK_CLASS, REDACTOR), None, 0)

    check_worth(perfect, verdict)
    assert verdict.passed == (
        run.exit_code == 0
        and run.signal is None
        and not (run.timed_out or run.leaked_processes or run.stdout_truncated)
    )


@given(nearly_answers)
def test_answers_that_are_nearly_right_are_judged_by_the_same_rules(answer: dict[str, Any]) -> None:
    run = replace(RUN, stdout=json.dumps(answer).encode())

    check_worth(run, apply_block_rule(judge(run, TASK_CLASS, REDACTOR), None, 0))


@given(st.dictionaries(keys, st.floats(0, 1), max_size=30))
def test_of_any_breakdown_exactly_the_declared_part_is_kept(breakdown: dict[str, float]) -> None:
    run = replace(RUN, stdout=json.dumps({**PERFECT, "breakdown": breakdown}).encode())
    verdict = apply_block_rule(judge(run, TASK_CLASS, REDACTOR), None, 0)

    if any("\ud800" <= char <= "\udfff" for key in breakdown for char in key):
        return
    assert verdict.breakdown.keys() == breakdown.keys() & set(BREAKDOWN_KEYS)
    assert verdict.passed == (breakdown.keys() <= set(BREAKDOWN_KEYS))
