"""What the drivers of the story share: the hostile bench, an idle agent, and the view from outside."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from codegenie.eval.evidence import Answer
from codegenie.eval.models import BenchScore, RunPlan, TaskClass
from codegenie.eval.ports import RubricRun, SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.sanitising import Redactor
from codegenie.eval.snapshot import RUN_DIRECTORY_PREFIX
from codegenie.eval.validation import judge

TASK_CLASS = "adversarial-task-class"
BENCH_ROOT = Path(__file__).resolve().parents[1] / "fixtures" / "bench"


@pytest.fixture
def adversarial_bench_root() -> Path:
    """Return the bench root that holds the hostile classes."""
    return BENCH_ROOT


class NullSUT:
    """Returns an empty output, and remembers for which cases it was asked."""

    def __init__(self, output: Mapping[str, object] | None = None) -> None:
        self.output = dict(output or {})
        self.asked: list[str] = []

    async def __call__(self, case: SutCase) -> Mapping[str, object]:
        """Answer like an agent that did nothing."""
        self.asked.append(case.case_id)
        return self.output


def make_plan_for(bench_root: Path, case_id: str, out_dir: Path | None = None) -> RunPlan:
    """Plan one case of the hostile class; the others, the poisoned one included, are not looked at."""
    return Runner().plan(
        task_class_name=TASK_CLASS, bench_root=bench_root, out_dir=out_dir, case_filter={case_id}
    )


def assert_block_severity(score: BenchScore, code: str) -> None:
    """Require the code as a block, on a case that is not passed and scores nothing."""
    assert [mode.severity for mode in score.failure_modes if mode.code == code] == ["block"]
    assert score.passed is False
    assert score.score == 0.0


def _check_tempdir_clean() -> None:
    """Require that no directory of a run of this user is left where temporary files are made."""
    place = tempfile.gettempdir()
    left = [name for name in os.listdir(place) if name.startswith(RUN_DIRECTORY_PREFIX)]
    assert [name for name in left if os.lstat(os.path.join(place, name)).st_uid == os.geteuid()] == []


@pytest.fixture
def own_tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make temporary files in a place of this test's own, so that what is left there was left by its run."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def rubric_runs(monkeypatch: pytest.MonkeyPatch) -> list[RubricRun]:
    """Show every rubric run as the isolated child left it: nothing cleaned, redacted or judged yet."""
    seen: list[RubricRun] = []

    def watched(run: RubricRun, task_class: TaskClass, redactor: Redactor) -> Answer:
        seen.append(run)
        return judge(run, task_class, redactor)

    monkeypatch.setattr("codegenie.eval.trial.judge", watched)
    return seen


def files_below(*directories: Path) -> list[Path]:
    """Every file that a run left in these places."""
    return [found for place in directories for found in place.rglob("*") if found.is_file()]


def descendants() -> set[int]:
    """Return the processes whose ancestor is this one, by the kernel's own table."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:
            continue  # it has ended since
        parents[int(name)] = int(stat.rpartition(b")")[2].split()[1])
    family = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return family - {os.getpid()}
