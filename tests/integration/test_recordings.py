"""`run --record DIR`: what an agent produced is kept for a replay, whole, without secrets, and only once."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import HarnessFailure, SettingsInvalid
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.models import TrialScore
from codegenie.eval.ports import SutCase, SutResult
from codegenie.eval.recordings.records import OUTPUTS
from codegenie.eval.recordings.writing import open_writer
from codegenie.eval.runner import Runner
from codegenie.eval.suts.boxed.secret_paths import secret_paths
from codegenie.eval.suts.builtin import NullSut
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.logs import StopAfter, read_records, record_run
from tests.support.recorded import CASES, COST, TRIALS, RecordedPlace, recorded_agent
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

ALL = len(CASES) * TRIALS
SECRET = "canary-of-the-harness-0123456789"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bench(tmp_path_factory.mktemp("recording") / "bench", cases=CASES)


@pytest.fixture
def place(bench: Path, tmp_path: Path) -> RecordedPlace:
    """Return a place with a bench, where nothing was recorded yet."""
    shutil.copytree(bench, tmp_path / "bench")
    return RecordedPlace(tmp_path)


class Asked:
    """The recorded agent, with a note of what it was asked, and something that it does meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.keys: list[tuple[str, int]] = []
        self._meanwhile = meanwhile

    async def __call__(self, case: SutCase) -> SutResult:
        self.keys.append((case.case_id, case.trial))
        self._meanwhile()
        return await recorded_agent(case)


def slowly(place: RecordedPlace) -> dict[str, Any]:
    """Return the options of a run that can be resumed, in which one trial comes after the other."""
    return {"cache_dir": place.directory / "cache", "concurrency": 1}


def stopped(place: RecordedPlace, after: int, **options: Any) -> None:  # noqa: ANN401 - any option
    """Leave a run behind that was stopped after so many trials."""
    watch = StopAfter(after)
    given = {"trials": TRIALS, "record_dir": place.recording, **slowly(place), **options}
    runner = Runner(progress=watch)
    run = record_run(place.bench, place.log, Asked(), runner=runner, stop=watch.stop, **given)
    assert not run.report.complete


def resumed(place: RecordedPlace) -> list[tuple[str, int]]:
    """Let the same command run to its end, and return what it asked the agent."""
    agent = Asked()
    assert place.record(agent, **slowly(place)).report.complete
    return agent.keys


def no_start(place: RecordedPlace, **options: Any) -> str:  # noqa: ANN401 - any option
    """Return why a recording is refused before the start of its run is in the log."""
    before = len(read_records(place.log))
    with pytest.raises(SettingsInvalid) as caught:
        place.record(**options)
    assert len(read_records(place.log)) == before
    return caught.value.message


def test_what_was_recorded_names_the_original_and_what_it_used(place: RecordedPlace) -> None:
    notes = place.record().notes
    found = place.found()
    trial, fault = found.trial("right", 1), found.trial("broken", 0).fault

    assert f"recorded 8 trials: --sut replay:{place.recording} replays them" in notes
    assert (found.recording.finished, found.recording.trials, len(found.recording.outputs)) == (True, 2, ALL)
    assert found.recording.run_id == read_records(place.log)[0]["run_id"]
    assert found.recording.sut.spec == "in-process:tests.support.recorded.recorded_agent"
    assert found.recording.sut_boundary == "in-process"
    assert (trial.output, trial.cost_usd, trial.task_class) == ('{"answer":"it is right"}', COST, TASK_CLASS)
    assert found.trial("broken", 0).output is None
    assert fault is not None
    assert (fault.code, "no idea" in fault.detail) == ("sut.exception", True)


def test_a_directory_that_is_not_empty_is_refused_before_the_start(place: RecordedPlace) -> None:
    place.record(NullSut())
    (place.directory / "notes" / "mine").mkdir(parents=True)

    assert "it is not empty" in no_start(place, record_dir=place.directory / "notes")
    assert "which has finished" in no_start(place)
    assert [*(place.directory / "notes").iterdir()] == [place.directory / "notes" / "mine"]


def test_a_directory_in_which_another_run_records_is_refused(place: RecordedPlace) -> None:
    writer = open_writer(place.recording)
    try:
        assert "another run is recording there" in no_start(place)
    finally:
        writer.close()
    open_writer(place.recording).close()


@pytest.mark.parametrize("inside", ["runs", "runs/recording", "cache/recording", "."])
def test_a_recording_lies_neither_in_the_log_nor_around_it(place: RecordedPlace, inside: str) -> None:
    record_dir = place.directory / inside

    assert "cannot lie in each other" in no_start(place, record_dir=record_dir, **slowly(place))


def test_a_recording_does_not_lie_in_a_bench(place: RecordedPlace) -> None:
    assert "lies inside the task class" in no_start(place, record_dir=place.bench / TASK_CLASS / "rec")


def test_a_run_that_ends_early_leaves_what_it_recorded(place: RecordedPlace) -> None:
    stopped(place, 3)
    recording = place.found().recording

    assert not recording.finished
    assert sorted(recording.outputs) == ["broken/0", "broken/1", "right/0"]
    assert "5 of 8 trials of this run were not recorded" in place.refusal()
    assert "the run that recorded has not finished" in place.refusal()
    assert place.refusal().endswith("or resume that run by its own command")
    notes = place.opened(only=["right"], trials=1).notes
    assert "the run that recorded has not finished, so the recording may still grow" in notes


def test_a_run_that_fails_leaves_what_it_recorded(place: RecordedPlace) -> None:
    class FullDisk(StopAfter):
        def finished(self, _evidence: TrialEvidence, _score: TrialScore) -> None:
            super().finished(_evidence, _score)
            if self.stop.requested:
                raise HarnessFailure("no space left")

    given = {"trials": TRIALS, "record_dir": place.recording, **slowly(place)}
    with pytest.raises(HarnessFailure, match="no space left"):
        record_run(place.bench, place.log, Asked(), runner=Runner(progress=FullDisk(3)), **given)

    assert sorted(place.found().recording.outputs) == ["broken/0", "broken/1", "right/0"]
    assert len(resumed(place)) == ALL - 3


def test_a_resumed_run_completes_its_recording_and_asks_nothing_twice(place: RecordedPlace) -> None:
    stopped(place, 3)
    run_id = place.found().recording.run_id

    assert len(resumed(place)) == ALL - 3
    recording = place.found().recording
    assert (recording.run_id, recording.finished, len(recording.outputs)) == (run_id, True, ALL)
    place.opened()


def test_a_run_that_was_killed_records_what_the_log_kept(place: RecordedPlace) -> None:
    stopped(place, 3)
    # So it is after kill -9: the index was written at the start and not at the end.
    place.forge(outputs={})
    place.files[-1].unlink()

    assert len(resumed(place)) == ALL - 3
    assert len(place.found().recording.outputs) == ALL
    place.opened()


def test_a_run_that_began_without_recording_is_recorded_whole_when_it_is_resumed(
    place: RecordedPlace,
) -> None:
    stopped(place, 3, record_dir=None)

    assert len(resumed(place)) == ALL - 3
    assert len(place.found().recording.outputs) == ALL


def test_a_command_that_does_not_resume_the_run_does_not_take_its_recording(place: RecordedPlace) -> None:
    stopped(place, 2)
    before = [path.read_bytes() for path in place.files]

    for other in ({"trials": 1}, {"fresh": True}, {"cache_dir": None}, {"timeout_seconds": 7.0}):
        given = {"sut": Asked(), **slowly(place), **other}
        assert "this command does not resume that run" in no_start(place, **given)
    assert [path.read_bytes() for path in place.files] == before


def test_a_recording_that_cannot_be_written_leaves_a_run_that_can_be_resumed(place: RecordedPlace) -> None:
    blocked = place.recording / OUTPUTS
    agent = Asked(lambda: None if blocked.exists() else blocked.write_bytes(b""))

    with pytest.raises(HarnessFailure, match="cannot write the recording"):
        place.record(agent, **slowly(place))
    blocked.unlink()
    assert ("broken", 0) not in resumed(place)
    assert len(place.found().recording.outputs) == ALL


def test_a_secret_of_the_harness_is_in_no_recording(
    place: RecordedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)

    async def careless(case: SutCase) -> dict[str, str]:
        if case.case_id == "broken":
            raise ValueError(f"refused: {SECRET}")
        return {"answer": SECRET if case.case_id == "wrong" else "it is right"}

    notes = place.record(careless).notes

    assert not any(SECRET.encode() in path.read_bytes() for path in place.files)
    assert place.found().trial("wrong", 0).omitted == "redacted"
    assert any("2 outputs cannot be replayed, such as that of wrong, trial 0" in note for note in notes)
    assert "case wrong, trial 0 cannot be replayed: its output held a secret" in place.refusal()
    place.opened(only=["right", "broken"])


def test_an_output_that_the_log_did_not_keep_is_said_to_be_missing(place: RecordedPlace) -> None:
    stopped(place, 3)
    shutil.rmtree(place.log / "artifacts")
    resumed(place)

    assert place.found().trial("right", 0).omitted == "not_kept"
    assert "its output was not kept by the run that recorded" in place.refusal()


def test_agents_do_not_see_where_their_outputs_are_recorded(place: RecordedPlace) -> None:
    plan = place.plan(record_dir=place.recording)

    assert str(place.recording) in secret_paths(plan, place.directory)
