"""The story's scenarios in every class of isolation, and by both ways to an interpreter.

This test enforces ADR-0001 §Decision and ADR-0021 §Decision together: a stronger class changes what a rubric
can reach, and never what becomes of its case.
"""

from pathlib import Path

import pytest

from codegenie.eval.errors import BenchCaseDigestMismatch, FailureModeTaxonomyInvalid
from codegenie.eval.models import IsolationClass, RunOptions, Spawn
from codegenie.eval.ports import RubricRun
from codegenie.eval.runner import Runner
from tests.adv.conftest import NullSUT, adversarial_bench_root, assert_block_severity, rubric_runs
from tests.adv.test_portfolio_smoke import EXPECTED
from tests.support.sampling import sampled

CLASSES: list[tuple[IsolationClass, Spawn]] = [
    ("namespace", "zygote"),
    ("namespace", "cold"),
    ("landlock", "zygote"),
    ("subprocess", "zygote"),
]
every_class = pytest.mark.parametrize(
    "options",
    sampled(
        [RunOptions(isolation=one, spawn=way) for one, way in CLASSES],
        # `test_portfolio_smoke.py` runs them in the default way.
        in_every_run=lambda options: options.isolation == "landlock",
        name=lambda options: f"{options.isolation} {options.spawn}",
    ),
)


@every_class
@pytest.mark.asyncio
async def test_every_scenario_that_runs_meets_its_code(
    adversarial_bench_root: Path,
    rubric_runs: list[RubricRun],
    options: RunOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ADR-0021 §Decision: the class that was asked for is the class that was proved."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary-of-every-class")
    report = await Runner().run_eval(
        task_class_name="adversarial-task-class",
        bench_root=adversarial_bench_root,
        case_filter={*EXPECTED, "valid_baseline"},
        options=options,
        system_under_test=NullSUT(),
    )
    scores = dict(report.per_case)
    assert report.isolation_class == options.isolation
    for case_id, code in EXPECTED.items():
        assert_block_severity(scores[case_id], code)
    assert scores["valid_baseline"].passed
    assert b"ANTHROPIC_API_KEY is None" in b"".join(run.stderr for run in rubric_runs)
    assert not any(b"canary-of-every-class" in run.stderr + run.stdout for run in rubric_runs)


@every_class
def test_what_never_starts_never_starts(adversarial_bench_root: Path, options: RunOptions) -> None:
    """ADR-0021 §Decision: a refusal of the plan does not depend on where it would have run."""
    with pytest.raises(BenchCaseDigestMismatch):
        Runner().plan(
            task_class_name="adversarial-task-class",
            bench_root=adversarial_bench_root,
            case_filter={"poisoned_case"},
            options=options,
        )
    with pytest.raises(FailureModeTaxonomyInvalid):
        Runner().plan(
            task_class_name="adversarial-task-class-malformed-yaml",
            bench_root=adversarial_bench_root,
            options=options,
        )
