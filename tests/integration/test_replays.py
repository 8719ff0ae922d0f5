"""`--sut replay:DIR`: recorded outputs are scored again, and only as answers to what they were asked."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.errors import SettingsInvalid, SutChanged, SutSpecInvalid
from codegenie.eval.recordings.records import OUTPUTS, file_name
from codegenie.eval.runner import Runner
from codegenie.eval.suts.spec import SutRequest, open_sut
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.logs import read_records, record_run, verified
from tests.support.recorded import (
    CASES,
    COST,
    TRIALS,
    RecordedPlace,
    copied_place,
    recorded_agent,
    recorded_place,
    scores,
)
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RecordedPlace:
    return recorded_place(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def place(made: RecordedPlace, tmp_path: Path) -> RecordedPlace:
    return copied_place(made, tmp_path / "place")


def edit_case(place: RecordedPlace, case_id: str, path: str, text: str) -> None:
    """Change a file of a case, and write the digests anew."""
    (place.bench / TASK_CLASS / "cases" / case_id / path).write_text(text, encoding="utf-8")
    task_class = load_task_class(TASK_CLASS, bench_root=place.bench)
    write_digests(task_class, digest_statuses(task_class))


def judged(record: dict[str, Any]) -> dict[tuple[str, int], str]:
    """Return the hashes of the outputs that a finish holds."""
    trials = record["body"]["trials"]
    return {(trial["case_id"], trial["trial"]): trial["artifacts"].get("output") for trial in trials}


def test_a_replay_gives_the_rubrics_the_same_bytes_and_gets_the_same_scores(place: RecordedPlace) -> None:
    original = record_run(place.bench, place.log, recorded_agent, trials=TRIALS)
    replay = place.replay(concurrency=4)
    _, recorded, _, _, _, replayed = read_records(place.log)

    assert scores(replay) == scores(original)
    assert (replay.report.mean_score, replay.report.sut_fault_count) == (0.5, 1)
    assert judged(recorded) == judged(replayed)
    verified(place.log)


def test_a_replay_costs_nothing_and_says_what_it_is_a_replay_of(place: RecordedPlace) -> None:
    replay = place.replay(only=["right", "wrong"])
    report, found = replay.report, place.found()

    assert report.total_cost_usd == 0.0
    assert report.sut_boundary == "harness"
    assert report.sut.spec == f"replay:{found.digest[:16]} of {found.recording.sut.spec}"
    assert report.sut.digest == found.digest
    origin = f"replay of {found.recording.sut.spec}, recorded by run {found.recording.run_id}"
    assert replay.notes == (
        f"{origin}; it ran in in-process. No agent was asked, so this is not evidence about one",
        f"what is replayed cost {2 * TRIALS * COST:.2f} USD when it was recorded, and nothing now",
    )
    # A case that fails states no cost, and a part of a sum is not the sum.
    assert len(place.opened().notes) == 1


def test_one_recording_is_one_candidate_wherever_it_lies(place: RecordedPlace, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(place.recording, tmp_path / "else where")
    (tmp_path / "link").symlink_to(elsewhere)
    paths = (place.recording, elsewhere, tmp_path / "link")
    identities = [place.opened(recording=path).identity for path in paths]

    assert identities[0] == identities[1] == identities[2]
    assert "recording" not in identities[0].spec


def test_a_changed_answer_scores_the_recorded_outputs_anew(place: RecordedPlace) -> None:
    before = place.opened()
    edit_case(place, "wrong", "expected/answer.txt", "it is not")
    after = place.replay()

    assert {case_id for case_id, score in after.report.per_case if score.passed} == {*CASES} - {"broken"}
    assert before.identity == after.report.sut
    assert "changed since they were recorded, apart from their inputs: 1 case" in after.notes


def test_an_output_is_no_answer_to_an_input_that_has_changed(place: RecordedPlace) -> None:
    edit_case(place, "right", "input/question.txt", "what else is right?\n")

    assert "case right, trial 0 cannot be replayed: its input has changed since" in place.refusal()
    place.opened(only=["wrong"])


def test_a_case_that_was_not_recorded_is_refused_and_not_scored(place: RecordedPlace, tmp_path: Path) -> None:
    larger = RecordedPlace(tmp_path / "larger")
    write_bench(larger.bench, cases=[*CASES, "later", "latest"])
    shutil.copytree(place.recording, larger.recording)

    assert "4 of 12 trials of this run were not recorded, such as later/0" in larger.refusal()
    assert larger.refusal().endswith("choose recorded cases with --cases, or record again")
    larger.opened(only=CASES)


def test_a_replay_takes_up_to_as_many_trials_as_were_recorded(place: RecordedPlace) -> None:
    assert "has 2 trials of each case, and this run asks for 3" in place.refusal(trials=3)
    place.opened(trials=1)


def test_a_recording_of_another_task_class_is_refused(place: RecordedPlace, tmp_path: Path) -> None:
    write_bench(tmp_path / "other", cases=CASES, name="other-class")
    plan = Runner().plan(task_class_name="other-class", bench_root=tmp_path / "other")

    with pytest.raises(SutSpecInvalid, match=f"is one of '{TASK_CLASS}', not of 'other-class'"):
        open_sut(SutRequest(f"replay:{place.recording}"), plan)


def test_a_directory_without_a_recording_is_refused(place: RecordedPlace) -> None:
    assert "there is no recording" in place.refusal(recording=place.log)
    assert "cannot be opened as a directory" in place.refusal(recording=place.directory / "nowhere")
    assert "cannot be opened as a directory" in place.refusal(recording=place.files[0])


@pytest.mark.parametrize("option", [{"version": "2"}, {"pass_names": ("HOME",)}, {"model": "large"}])
def test_a_replay_takes_no_options_of_an_agent(place: RecordedPlace, option: dict[str, Any]) -> None:
    with pytest.raises(SutSpecInvalid, match="takes neither"):
        open_sut(SutRequest(f"replay:{place.recording}", **option), place.plan())


def _linked(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def _hard_linked(file: Path) -> None:
    os.link(file, file.with_suffix(".second"))


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _grown(file: Path) -> None:
    os.truncate(file, 1 << 40)


def _swapped(file: Path) -> None:
    other = next(path for path in file.parent.iterdir() if path != file)
    file.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Path.unlink, "it is missing"),
        (_linked, "it is not a regular file"),
        (_hard_linked, "it has more than one hard link"),
        (_pipe, "it is not a regular file"),
        (_grown, "it is larger than"),
        (_swapped, "it does not match the hash in its name"),
    ],
)
def test_a_file_that_is_not_as_it_was_recorded_is_named(
    place: RecordedPlace, change: Callable[[Path], object], said: str
) -> None:
    file = place.files[-1]
    change(file)
    told = place.refusal(only=["right"], trials=1)

    assert f"the recording was changed after it was made: {said}" in told
    assert str(file) in told


def test_outputs_in_a_directory_that_is_a_link_are_not_followed(place: RecordedPlace) -> None:
    (place.recording / OUTPUTS).rename(place.directory / "outputs")
    (place.recording / OUTPUTS).symlink_to(place.directory / "outputs")

    assert f"({place.recording / OUTPUTS})" in place.refusal()


def test_an_index_that_is_a_link_is_not_followed(place: RecordedPlace) -> None:
    _linked(place.files[0])

    assert "it is not a regular file" in place.refusal()


@pytest.mark.parametrize(
    ("written", "differently"),
    [(b"\n", b""), (b"\n", b" \n"), (b'"finished"', b'"\\u0066inished"'), (b'"trials":2', b'"trials": 2')],
)
def test_an_index_has_one_spelling(place: RecordedPlace, written: bytes, differently: bytes) -> None:
    index = place.files[0]
    raw = index.read_bytes()
    assert raw.count(written) == 1
    index.write_bytes(raw.replace(written, differently))

    assert "it does not match its own digest" in place.refusal()


def test_a_file_is_replayed_only_as_the_trial_that_it_names(place: RecordedPlace) -> None:
    outputs = dict(place.found().recording.outputs)
    outputs["wrong/0"] = outputs["right/0"]
    place.forge(outputs=outputs)

    assert "it is not of case wrong, trial 0" in place.refusal()


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", "A" * 64, ""])
def test_an_index_names_files_by_hashes_alone(place: RecordedPlace, name: str) -> None:
    place.forge(outputs={"right/0": name})

    assert "it is not a table from `case/trial` to a hash" in place.refusal()


def test_other_files_beside_a_recording_are_not_looked_at(place: RecordedPlace) -> None:
    before = place.opened().identity
    (place.recording / "README").symlink_to("/nowhere")
    (place.recording / OUTPUTS / file_name("0" * 64)).write_bytes(b"not a trial")

    assert place.opened().identity == before


def test_the_name_of_a_recorded_agent_cannot_steer_a_terminal(place: RecordedPlace) -> None:
    steering = {"spec": "command:a\x1b[2J\nb" * 130, "version": "1\x1b[2J\n"}
    place.forge(sut=place.found().recording.sut.model_copy(update=steering))
    replay = place.opened()

    assert not any("\x1b" in text or "\n" in text for text in (replay.identity.spec, *replay.notes))


def test_a_recording_that_is_changed_while_it_is_replayed_ends_the_run(place: RecordedPlace) -> None:
    sut = place.opened()
    file = place.recording / OUTPUTS / file_name(place.found().recording.outputs["wrong/1"])
    file.write_bytes(file.read_bytes().replace(b"it is not", b"it is wrong"))

    with pytest.raises(SutChanged) as caught:
        record_run(place.bench, place.log, sut, trials=TRIALS)
    assert caught.value.where == str(file)


def test_a_replay_is_reused_from_the_store_like_any_output(place: RecordedPlace) -> None:
    cached = {"only": ["right"], "cache_dir": place.directory / "cache"}
    first, second = place.replay(**cached), place.replay(**cached)

    assert (first.reused, second.reused) == (0, TRIALS)
    assert scores(first) == scores(second)


def test_a_replay_is_not_recorded(place: RecordedPlace) -> None:
    with pytest.raises(SettingsInvalid, match="a replay is not recorded"):
        place.replay(record_dir=place.directory / "second")
    assert not (place.directory / "second").exists()
