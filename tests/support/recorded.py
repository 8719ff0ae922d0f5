"""A bench, an agent and a recording of the agent's outputs, made once and copied."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.models import RunOptions, RunPlan
from codegenie.eval.ports import SutCase, SutResult, SutRunner
from codegenie.eval.recordings.reading import RecordingOnDisk, open_recording
from codegenie.eval.recordings.records import INDEX, OUTPUTS, index_bytes
from codegenie.eval.runner import Runner
from codegenie.eval.suts.spec import SutRequest, open_sut
from tests.support.benches import TASK_CLASS, canonical_score, write_bench
from tests.support.logs import record_run

CASES = ("broken", "right", "unordered", "wrong")
TRIALS = 2
COST = 0.25


async def recorded_agent(case: SutCase) -> SutResult:
    """Fail, answer rightly, answer wrongly, or answer with keys that are not in order."""
    await asyncio.sleep(0)
    if case.case_id == "broken":
        raise ValueError("no idea")
    answer = "it is not" if case.case_id == "wrong" else f"it is {case.case_id}"
    more = {"z": case.trial, "answer": answer, "a": "ä\u2028\n"} if case.case_id == "unordered" else {}
    return SutResult({**more, "answer": answer}, cost_usd=COST)


@dataclass(frozen=True)
class RecordedPlace:
    """A directory with a bench, a log and a recording."""

    directory: Path

    @property
    def bench(self) -> Path:
        """Return the bench root."""
        return self.directory / "bench"

    @property
    def recording(self) -> Path:
        """Return the directory of the recording."""
        return self.directory / "recording"

    @property
    def log(self) -> Path:
        """Return the directory of the log."""
        return self.directory / "runs"

    @property
    def files(self) -> list[Path]:
        """Return all files of the recording, the index first."""
        return [self.recording / INDEX, *sorted((self.recording / OUTPUTS).iterdir())]

    def found(self) -> RecordingOnDisk:
        """Return the recording as it is on the disk."""
        found = open_recording(self.recording)
        assert found is not None
        return found

    def record(self, sut: Any = recorded_agent, **options: Any) -> RecordedRun:  # noqa: ANN401 - any agent and option
        """Run an agent and record it."""
        return record_run(
            self.bench, self.log, sut, **{"trials": TRIALS, "record_dir": self.recording, **options}
        )

    def plan(self, only: Any = None, **options: Any) -> RunPlan:  # noqa: ANN401 - any filter and option
        """Plan a replay."""
        given = RunOptions(**{"isolation": "subprocess", "trials": TRIALS, **options})
        return Runner().plan(
            task_class_name=TASK_CLASS,
            bench_root=self.bench,
            out_dir=self.log,
            case_filter=only,
            options=given,
        )

    def opened(self, recording: Path | None = None, **options: Any) -> SutRunner:  # noqa: ANN401 - as of `plan`
        """Return the recording, or another one, as a system under test that is not asked yet."""
        return open_sut(SutRequest(f"replay:{recording or self.recording}"), self.plan(**options))

    def replay(self, **options: Any) -> RecordedRun:  # noqa: ANN401 - as of `plan`
        """Replay the recording."""
        plan = self.plan(**options)
        sut = open_sut(SutRequest(f"replay:{self.recording}"), plan)
        return asyncio.run(Runner().record(plan, system_under_test=sut))

    def forge(self, **changes: Any) -> None:  # noqa: ANN401 - any field of the index
        """Write an index that has its right digest, whatever it says."""
        recording = self.found().recording.model_copy(update=changes)
        (self.recording / INDEX).write_bytes(index_bytes(recording))

    def refusal(self, **options: Any) -> str:  # noqa: ANN401 - as of `opened`
        """Return why a replay is refused before its run begins, and where."""
        with pytest.raises(SutSpecInvalid) as caught:
            self.opened(**options)
        return f"{caught.value.message} ({caught.value.where}) {caught.value.hint}"


def recorded_place(directory: Path) -> RecordedPlace:
    """Write a bench and record the agent on it."""
    place = RecordedPlace(directory)
    write_bench(place.bench, cases=CASES)
    place.record()
    return place


def copied_place(place: RecordedPlace, target: Path) -> RecordedPlace:
    """Copy a place, so that a test may do with it what it likes."""
    return RecordedPlace(Path(shutil.copytree(place.directory, target)))


def scores(run: RecordedRun) -> dict[str, bytes]:
    """Return what was measured of each case, without its time and cost."""
    kept = {}
    for case_id, score in run.report.per_case:
        trials = tuple(
            trial.model_copy(update={"cost_usd": None, "wall_clock_ms": 0}) for trial in score.trials
        )
        free = score.model_copy(update={"cost_usd": None, "trials": trials})
        kept[case_id] = canonical_score(free)
    return kept
