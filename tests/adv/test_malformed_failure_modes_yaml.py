"""A taxonomy invents a severity and leaves a description out.

This test enforces ADR-0004 §Consequences: a malformed taxonomy refuses the whole bench when it is loaded.
"""

import shutil
from pathlib import Path

import pytest

from codegenie.eval.runner import Runner
from tests.adv.conftest import NullSUT, adversarial_bench_root
from tests.support.stub_benches import replaced

SIBLING = "adversarial-task-class-malformed-yaml"


@pytest.fixture(autouse=True)
def _at_the_root(adversarial_bench_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(adversarial_bench_root.parents[2])


def test_malformed_yaml_rejected_at_registration() -> None:
    """ADR-0004 §Consequences: fail loud on taxonomy drift."""
    from codegenie.eval.errors import (
        FailureModeTaxonomyInvalid,  # or whichever typed error is canonical
    )
    from codegenie.eval.loader import load_task_class

    with pytest.raises(FailureModeTaxonomyInvalid):
        load_task_class("adversarial-task-class-malformed-yaml", bench_root="tests/fixtures/bench")


@pytest.mark.asyncio
async def test_the_run_never_starts(adversarial_bench_root: Path, tmp_path: Path) -> None:
    """ADR-0004 §Consequences: no agent is asked and no record is written."""
    from codegenie.eval.errors import FailureModeTaxonomyInvalid

    sut = NullSUT()
    with pytest.raises(FailureModeTaxonomyInvalid):
        await Runner().run_eval(
            task_class_name=SIBLING,
            bench_root=adversarial_bench_root,
            out_dir=tmp_path / "runs",
            system_under_test=sut,
        )
    assert sut.asked == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("mended", "by", "complaint"),
    [
        ("answer.unexplained:\n  severity: warn\n", "", "answer.unsettling has severity 'critical'"),
        ("severity: critical", "severity: block", "answer.unexplained: 'description': Field required"),
    ],
    ids=["an invented severity", "a missing description"],
)
def test_either_fault_alone_refuses_the_class(
    mended: str, by: str, complaint: str, adversarial_bench_root: Path, tmp_path: Path
) -> None:
    """ADR-0004 §Consequences: each of the two is enough, and is named."""
    from codegenie.eval.errors import FailureModeTaxonomyInvalid
    from codegenie.eval.loader import load_task_class

    shutil.copytree(adversarial_bench_root / SIBLING, tmp_path / SIBLING)
    replaced("failure_modes.yaml", mended, by)(tmp_path / SIBLING)
    with pytest.raises(FailureModeTaxonomyInvalid) as refused:
        load_task_class(SIBLING, bench_root=tmp_path)
    assert refused.value.message.startswith(complaint)
    assert str(refused.value.where).startswith(str(tmp_path / SIBLING / "failure_modes.yaml:"))
