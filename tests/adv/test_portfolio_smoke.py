"""Every scenario that can run, in one run.

This test enforces ADR-0001 §Decision, ADR-0003 §Decision and ADR-0008 §Decision together: hostile cases
cost their own scores, are all counted, and leave an honest sibling as it is without them.
"""

from pathlib import Path

import pytest

from codegenie.eval.runner import Runner
from tests.adv.conftest import NullSUT, adversarial_bench_root, assert_block_severity
from tests.support.benches import canonical_score

EXPECTED = {
    "banned_breakdown_key": "rubric.unknown_breakdown_key",
    "env_read_attempt": "rubric.malformed_output",
    "rubric_timeout": "rubric.timeout",
}


@pytest.mark.asyncio
async def test_one_run_finds_every_expected_code_and_leaves_the_baseline_untouched(
    adversarial_bench_root: Path,
) -> None:
    """ADR-0001, ADR-0003 and ADR-0008 §Decision, in one `Runner.run_eval`."""
    report = await Runner().run_eval(
        task_class_name="adversarial-task-class",
        bench_root=adversarial_bench_root,
        case_filter={*EXPECTED, "valid_baseline"},
        system_under_test=NullSUT(),
    )
    scores = dict(report.per_case)
    assert report.complete
    assert sorted(scores) == sorted([*EXPECTED, "valid_baseline"])
    for case_id, code in EXPECTED.items():
        assert_block_severity(scores[case_id], code)
    assert report.block_severity_failure_modes == tuple(sorted(EXPECTED.values()))
    assert (report.passed_count, report.mean_score) == (1, 0.25)
    alone = await Runner().run_eval(
        task_class_name="adversarial-task-class",
        bench_root=adversarial_bench_root,
        case_filter="valid_baseline",
        system_under_test=NullSUT(),
    )
    assert canonical_score(scores["valid_baseline"]) == canonical_score(alone.per_case[0][1])
    assert scores["valid_baseline"].passed
    assert scores["valid_baseline"].score == 1.0
