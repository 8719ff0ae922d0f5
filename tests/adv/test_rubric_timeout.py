"""A rubric sleeps for two minutes in a case that allows one second.

This test enforces ADR-0001 §Consequences: the deadline is the harness's, and nothing outlives it.
"""

import os
import time
from pathlib import Path

import pytest

from codegenie.eval.ports import RubricRun
from codegenie.eval.runner import Runner
from tests.adv.conftest import (
    NullSUT,
    _check_tempdir_clean,
    adversarial_bench_root,
    assert_block_severity,
    descendants,
    make_plan_for,
    own_tempdir,
    rubric_runs,
)


@pytest.mark.asyncio
async def test_rubric_timeout_yields_typed_failure(adversarial_bench_root: Path) -> None:
    """ADR-0001 §Consequences: rubric.timeout is typed; subprocess reaped."""
    plan = make_plan_for(adversarial_bench_root, case_id="rubric_timeout")
    report = await Runner().execute(plan, system_under_test=NullSUT())
    fm = report.per_case[0][1].failure_modes[0]
    assert fm.code == "rubric.timeout"
    assert fm.severity == "block"


@pytest.mark.asyncio
async def test_the_child_is_reaped_and_nothing_of_it_is_left(
    adversarial_bench_root: Path, own_tempdir: Path, rubric_runs: list[RubricRun]
) -> None:
    """ADR-0001 §Consequences: no process and no directory outlives the deadline."""
    plan = make_plan_for(adversarial_bench_root, case_id="rubric_timeout")
    assert plan.cases[0].rubric_wall_clock_seconds == 1
    before = descendants()
    began = time.monotonic()
    report = await Runner().execute(plan, system_under_test=NullSUT())
    elapsed = time.monotonic() - began
    assert_block_severity(report.per_case[0][1], "rubric.timeout")
    (run,) = rubric_runs
    assert run.stderr == b"going to sleep\n"  # it did start, and it did not get further
    assert run.timed_out
    assert 1.0 <= elapsed < 20.0  # the rubric would sleep for 120
    assert descendants() <= before
    _check_tempdir_clean()
    assert os.listdir(own_tempdir) == []
