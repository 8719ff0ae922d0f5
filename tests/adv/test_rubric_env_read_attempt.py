"""A rubric asks its environment for the harness's API key.

This test enforces ADR-0001 §Decision: the child's environment is built from nothing.
"""

from pathlib import Path

import pytest

from codegenie.eval.ports import RubricRun
from codegenie.eval.runner import Runner
from tests.adv.conftest import (
    NullSUT,
    adversarial_bench_root,
    assert_block_severity,
    files_below,
    make_plan_for,
    own_tempdir,
    rubric_runs,
)

SECRET = "sk-ant-leak-do-not-print"


@pytest.mark.asyncio
async def test_rubric_cannot_read_anthropic_api_key(
    monkeypatch: pytest.MonkeyPatch, adversarial_bench_root: Path
) -> None:
    """ADR-0001 §Decision: SCRUBBED_ENV defeats credential read."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-leak-do-not-print")
    plan = make_plan_for(adversarial_bench_root, case_id="env_read_attempt")
    report = await Runner().execute(plan, system_under_test=NullSUT())
    fm = report.per_case[0][1].failure_modes[0]
    assert fm.code == "rubric.malformed_output"
    assert "sk-ant-leak" not in (fm.detail or "")


@pytest.mark.asyncio
async def test_what_the_rubric_got_is_none_and_the_key_is_nowhere(
    monkeypatch: pytest.MonkeyPatch,
    adversarial_bench_root: Path,
    own_tempdir: Path,
    rubric_runs: list[RubricRun],
    tmp_path: Path,
) -> None:
    """ADR-0001 §Decision: read from the raw stderr, before redaction could have hidden anything."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    plan = make_plan_for(adversarial_bench_root, case_id="env_read_attempt", out_dir=tmp_path / "runs")
    report = await Runner().execute(plan, system_under_test=NullSUT())
    (run,) = rubric_runs
    assert run.stderr == b"ANTHROPIC_API_KEY is None\n"
    assert run.exit_code == 1
    assert_block_severity(report.per_case[0][1], "rubric.malformed_output")
    assert report.per_case[0][1].failure_modes[0].detail == "exit:1: ANTHROPIC_API_KEY is None"
    assert SECRET not in report.model_dump_json()
    left = files_below(tmp_path / "runs", own_tempdir)
    assert left
    assert [file for file in left if SECRET.encode() in file.read_bytes()] == []


@pytest.mark.asyncio
async def test_the_run_goes_on_after_the_attempt(
    monkeypatch: pytest.MonkeyPatch, adversarial_bench_root: Path
) -> None:
    """ADR-0001 §Consequences: one hostile case costs its own score and nothing else."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    report = await Runner().run_eval(
        task_class_name="adversarial-task-class",
        bench_root=adversarial_bench_root,
        case_filter={"env_read_attempt", "valid_baseline"},
        system_under_test=NullSUT(),
    )
    assert report.complete
    assert {name: score.passed for name, score in report.per_case} == {
        "env_read_attempt": False,
        "valid_baseline": True,
    }
