"""Write tests/fixtures/log-v1 again: a small log that every later version must still read.

Run it only before a schema is released. After that the fixture stays as it is, and a new schema gets its own
directory beside it.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.records import ExamFinished
from codegenie.eval.models import RunOptions, RunPlan, TrialScore
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from codegenie.eval.suts.spec import SutRequest, open_sut
from codegenie.eval.system.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "fixtures" / "log-v1"
TASK_CLASS = "stub-task-class"


class StopsAtOnce:
    """Ends a run after its first trial."""

    def __init__(self) -> None:
        self.stop = Stop()

    def finished(self, _evidence: TrialEvidence, _score: TrialScore) -> None:
        """Ask the run to stop."""
        self.stop.everything("to be resumed")


def plan(cache: Path) -> RunPlan:
    """Plan the stub class, to be recorded in the fixture."""
    return Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=ROOT / "tests" / "fixtures" / "bench",
        out_dir=TARGET,
        options=RunOptions(concurrency=1, cache_dir=cache),
    )


def run(spec: str, cache: Path, *, dies: bool = False) -> None:
    """Record one run, or the beginning of one."""
    planned = plan(cache)
    watch = StopsAtOnce()
    runner = Runner(progress=watch) if dies else Runner()
    stop = watch.stop if dies else None
    asyncio.run(runner.record(planned, system_under_test=open_sut(SutRequest(spec), planned), stop=stop))


def main() -> int:
    """Record a run, a run that died and was resumed, one that was not, and an exam."""
    # A fixture says nothing about the machine that it was written on.
    os.uname = lambda: SimpleNamespace(release="6.1.0")  # type: ignore[assignment,return-value]
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        run("oracle", Path(temporary))
        run("null", Path(temporary), dies=True)
        run("null", Path(temporary))
        run("oracle", Path(temporary), dies=True)
    digests = {"case_set_digest": "0" * 64, "rubric_digest": "1" * 64}
    exam = ExamFinished(task_class=TASK_CLASS, **digests, passed=False, findings=("null passes a case",))
    AuditLog(TARGET, SystemClock()).append(exam, "exam-1")
    shutil.rmtree(TARGET / "journal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
