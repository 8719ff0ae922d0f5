"""A rubric emits a key that claims how sure the judged system is of itself.

This test enforces ADR-0008 §Decision: keys are checked again on every answer, independently of the loader.
"""

import json
from pathlib import Path

import pytest

from codegenie.eval.breakdown import BANNED_WORDS
from codegenie.eval.runner import Runner
from tests.adv.conftest import NullSUT, adversarial_bench_root, assert_block_severity, make_plan_for


@pytest.mark.asyncio
async def test_banned_breakdown_key_at_runtime_blocks(adversarial_bench_root: Path) -> None:
    """ADR-0008 §Decision: runtime validation rejects banned keys."""
    plan = make_plan_for(adversarial_bench_root, case_id="banned_breakdown_key")
    report = await Runner().execute(plan, system_under_test=NullSUT())
    s = report.per_case[0][1]
    codes = {fm.code for fm in s.failure_modes}
    assert "rubric.unknown_breakdown_key" in codes
    assert "llm_confidence" not in s.breakdown  # persisted score is sanitized
    assert "rubric.unknown_breakdown_key" in report.block_severity_failure_modes


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["llm_confidence", *BANNED_WORDS, "con.fi_dence", "model__says"])
async def test_every_banned_word_is_named_and_left_out_of_the_log(
    key: str, adversarial_bench_root: Path, tmp_path: Path
) -> None:
    """ADR-0008 §Decision: the key is the detail, and it is absent from what is persisted."""
    plan = make_plan_for(adversarial_bench_root, case_id="banned_breakdown_key", out_dir=tmp_path / "runs")
    report = await Runner().execute(plan, system_under_test=NullSUT({"emit_key": key}))
    score = report.per_case[0][1]
    assert_block_severity(score, "rubric.unknown_breakdown_key")
    assert [mode.detail for mode in score.failure_modes] == [key]
    assert report.block_severity_failure_modes == ("rubric.unknown_breakdown_key",)
    finished = json.loads((tmp_path / "runs" / "00000001.json").read_bytes())
    kept = [trial["answer"]["breakdown"] for trial in finished["body"]["trials"]]
    assert kept == [{"passed": 1.0}]  # the declared key of the same answer stays
