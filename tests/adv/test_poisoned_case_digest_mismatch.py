"""A case was edited, and its digest was not.

This test enforces ADR-0005 §Decision: what is judged is what was reviewed, or nothing is judged.
"""

from pathlib import Path

import pytest

from codegenie.eval.errors import BenchCaseDigestMismatch
from codegenie.eval.inspection import verify_log
from codegenie.eval.loader import read_case_tree
from codegenie.eval.runner import Runner, SystemClock
from tests.adv.conftest import NullSUT, adversarial_bench_root, make_plan_for


def test_poisoned_case_aborts_before_sut(adversarial_bench_root: Path, tmp_path: Path) -> None:
    """ADR-0005 §Decision: the plan checks every digest, before any agent is asked."""
    out_dir = tmp_path / "audit"
    chain_before = len(list(out_dir.glob("*.json"))) if out_dir.exists() else 0
    with pytest.raises(BenchCaseDigestMismatch) as exc:
        # Synchronous: plan raises before any SUT invocation.
        Runner().plan(
            task_class_name="adversarial-task-class",
            bench_root=adversarial_bench_root,
            out_dir=out_dir,
        )
    assert exc.value.case_id == "poisoned_case"
    chain_after = len(list(out_dir.glob("*.json"))) if out_dir.exists() else 0
    assert chain_after == chain_before  # no new record written


@pytest.mark.asyncio
async def test_the_log_of_earlier_runs_keeps_its_length_and_holds(
    adversarial_bench_root: Path, tmp_path: Path
) -> None:
    """ADR-0005 §Decision: nothing of a changed case becomes evidence; what was evidence stays."""
    out_dir = tmp_path / "audit"
    plan = make_plan_for(adversarial_bench_root, case_id="valid_baseline", out_dir=out_dir)
    await Runner().execute(plan, system_under_test=NullSUT())
    before = sorted((file.name, file.read_bytes()) for file in out_dir.glob("*.json"))
    assert len(before) == 2
    sut = NullSUT()
    with pytest.raises(BenchCaseDigestMismatch) as refused:
        await Runner().run_eval(
            task_class_name="adversarial-task-class",
            bench_root=adversarial_bench_root,
            out_dir=out_dir,
            system_under_test=sut,
        )
    assert sut.asked == []
    assert sorted((file.name, file.read_bytes()) for file in out_dir.glob("*.json")) == before
    assert len(verify_log(out_dir, SystemClock()).hashes) == 2
    computed = read_case_tree(
        adversarial_bench_root / "adversarial-task-class" / "cases", "poisoned_case"
    ).digest
    assert refused.value.computed_blake3 == computed
    manifest = (adversarial_bench_root / "adversarial-task-class" / "cases" / "digests.yaml").read_text()
    assert f"poisoned_case: blake3:{refused.value.expected_blake3}\n" in manifest
    assert refused.value.expected_blake3 != computed
