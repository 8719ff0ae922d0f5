"""A journal is a file like any other: whatever somebody puts into it, no wrong number reaches the log."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.log.disk import HEAD
from codegenie.eval.log.journal import dead_journals
from codegenie.eval.log.records import start_digest
from tests.support.benches import ECHO_RUBRIC, write_bench
from tests.support.dead_runs import ANEW, CASES, RESUMED, Place, measured, not_resumed
from tests.support.logs import VERDICTS, read_records, record_files, record_run, stopped_run, verified
from tests.support.stores import NotingSut


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_untouched_journal_is_resumed_and_only_the_rest_is_asked(place: Place) -> None:
    kinds = [value.get("kind", "measured") for value in place.values()[1:]]
    assert kinds == ["asked", "produced", "measured"] * 2
    done = place.resume()
    assert place.kinds() == RESUMED
    assert place.asked == ["sloppy"]
    assert done.report.run_id == place.journal.name
    assert not place.journal.exists()


# --- lines that lie --------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[list[dict[str, Any]]], object]:
    return lambda values: change(measured(values)[0])


FORGED_LINES: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "a severity that the taxonomy does not have": edited(
        lambda line: line["answer"]["failure_modes"][0].update(severity="info")
    ),
    "a code that nobody declared": edited(
        lambda line: line["answer"]["failure_modes"][0].update(code="answer.fine")
    ),
    "a key that nobody declared": edited(lambda line: line["answer"]["breakdown"].update(charm=1.0)),
    "passed with score 0": edited(lambda line: line["answer"].update(score=0.0, failure_modes=[])),
    "a trial that was cancelled": edited(
        lambda line: line["answer"].update(
            passed=False,
            score=0.0,
            failure_modes=[{"code": "sut.cancelled", "severity": "block", "detail": None}],
        )
    ),
    "a case that is not planned": edited(lambda line: line.update(case_id="another")),
    "a trial that is not planned": edited(lambda line: line.update(trial=1)),
    "a score above 1": edited(lambda line: line["answer"].update(score=1.5)),
    "a field that there is not": edited(lambda line: line.update(more=1)),
    "no evidence at all": lambda values: values.__setitem__(1, {"hello": "there"}),
    "asked more often than it says": lambda values: values.insert(1, values[1]),
    "asked less often than it says": edited(lambda line: line.update(interrupted=1)),
    "measured and never asked": lambda values: values.pop(1),
    "measured and never produced": lambda values: values.pop(2),
    "produced twice": lambda values: values.insert(3, values[2]),
    "asked after it was measured": lambda values: values.append(values[1]),
    "judged on another output than was produced": lambda values: values[2].update(output="a" * 64),
    "an artefact under no hash": edited(lambda line: line["artifacts"].update(output="../../etc/passwd")),
}


@pytest.mark.parametrize("what", FORGED_LINES)
def test_a_run_with_a_line_that_cannot_be_evidence_is_not_resumed(place: Place, what: str) -> None:
    """We do not write such lines, and a trial whose line is passed over would be rolled again."""
    values = place.values()
    assert [value["case_id"] for value in values[1:4]] == ["blocked"] * 3
    FORGED_LINES[what](values)
    place.write(values)
    done = place.resume()
    assert place.kinds() == ANEW
    assert sorted(place.asked) == CASES
    assert done.notes == (not_resumed(place),)
    assert done.report.block_severity_failure_modes == ("answer.wrong",)


def test_of_two_lines_on_one_trial_the_first_counts(place: Place) -> None:
    values = place.values()
    better = json.loads(json.dumps(measured(values)[1]))
    better["answer"]["score"] = 1.0
    place.write([*values, better])
    assert dict(place.resume().report.per_case)["passed"].score == 0.75


def test_ten_thousand_attempts_are_resumed_and_those_that_were_not_void_stand_in_the_record(
    place: Place,
) -> None:
    asked = {"kind": "asked", "case_id": "sloppy", "trial": 0}
    void = {"kind": "void", "case_id": "sloppy", "trial": 0, "cause": "the box could not be made"}
    place.write([*place.values(), *[asked, void, asked] * 5_000])
    place.resume()
    trials = {trial["case_id"]: trial for trial in read_records(place.log)[-1]["body"]["trials"]}

    assert (place.kinds(), place.asked) == (RESUMED, ["sloppy"])
    assert trials["sloppy"]["interrupted"] == 5_000
    assert "interrupted" not in trials["passed"]


@pytest.mark.parametrize("number", range(7))
def test_a_flipped_bit_costs_the_end_or_the_journal_but_never_a_number(place: Place, number: int) -> None:
    lines = place.lines()
    middle = len(lines[number]) // 2
    lines[number] = lines[number][:middle] + bytes([lines[number][middle] ^ 4]) + lines[number][middle + 1 :]
    place.journal.write_bytes(b"".join(lines))
    done = place.resume()
    assert place.kinds() == (RESUMED if number == 6 else ANEW)
    # What the second trial produced is known by the hash in the line before.
    assert len(place.asked) == (1 if number == 6 else 3)
    assert [score.score for _, score in done.report.per_case] == [0.0, 0.75, 0.5]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_end_is_cut_off_before_the_next_line_is_written(place: Place, cut: int) -> None:
    place.journal.write_bytes(place.journal.read_bytes()[:-cut])
    stopped_run(place.root, place.log, 2, cache_dir=place.log.with_name("other"))
    assert [line for line in place.lines() if not line.endswith(b"\n")] == []
    place.resume()
    assert place.kinds() == ["run.started", "run.resumed", "run.resumed", "run.finished"]
    assert place.asked == ["sloppy"]


# --- journals that belong to another run -----------------------------------------------------------


def test_the_journal_of_another_run_is_not_taken(place: Place) -> None:
    stopped_run(place.root, place.log, 4, cache_dir=place.log.with_name("other"), trials=2)
    other = next(path for path in (place.log / "journal").iterdir() if path != place.journal)
    place.journal.write_bytes(other.read_bytes())
    place.resume()
    assert place.kinds() == ["run.started", "run.started", "run.started", "run.finished"]
    assert sorted(place.asked) == CASES


def test_the_journal_of_another_run_of_the_same_plan_is_not_taken_either(place: Place) -> None:
    stopped_run(place.root, place.log, 2, cache_dir=place.log.with_name("other"), fresh=True)
    other = next(path for path in (place.log / "journal").iterdir() if path != place.journal)
    other.replace(place.journal)
    place.resume()
    assert place.kinds() == ["run.started", "run.started", "run.started", "run.finished"]
    assert sorted(place.asked) == CASES


def test_a_journal_of_a_run_that_the_log_does_not_know_is_not_taken(place: Place) -> None:
    unknown = place.journal.with_name("20300101T000000Z-00000000")
    place.journal.rename(unknown)
    place.resume()
    assert place.kinds() == ANEW
    assert unknown.exists()


def test_a_journal_whose_run_has_finished_is_not_taken(place: Place) -> None:
    raw = place.journal.read_bytes()
    place.resume()
    place.journal.write_bytes(raw)
    place.resume()
    assert place.kinds() == [*RESUMED, "run.started", "run.finished"]


@pytest.mark.parametrize(
    "change",
    [{"trials": 2}, {"timeout_seconds": 5.0}, {"policy_digest": "a" * 64}, {"isolation": "landlock"}],
)
def test_another_plan_is_another_run(place: Place, change: dict[str, Any]) -> None:
    place.resume(**change)
    assert place.kinds() == ANEW


@pytest.mark.parametrize("change", [{"concurrency": 5}, {"max_cost_usd": 5.0}])
def test_how_fast_a_run_goes_is_no_part_of_its_plan(place: Place, change: dict[str, Any]) -> None:
    place.resume(**change)
    assert place.kinds() == RESUMED


def test_another_version_of_the_harness_does_not_resume(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its finish would contradict the start that an earlier version wrote."""
    monkeypatch.setattr("codegenie.eval.runner.__version__", "9.9.9")
    place.resume()
    assert place.kinds() == ANEW


def test_a_new_measurement_and_a_run_without_a_store_do_not_resume(place: Place) -> None:
    place.resume(fresh=True)
    place.resume(cache_dir=None)
    assert place.kinds() == ["run.started", "run.started", "run.finished", "run.started", "run.finished"]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "empty", "terabyte", "binary"])
def test_what_is_no_journal_is_left_alone(place: Place, kind: str, tmp_path: Path) -> None:
    raw = place.journal.read_bytes()
    place.journal.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(raw)
        place.journal.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(place.journal)
    elif kind == "directory":
        place.journal.mkdir()
    elif kind == "terabyte":
        place.journal.write_bytes(raw)
        os.truncate(place.journal, 1 << 40)
    else:
        place.journal.write_bytes(b"" if kind == "empty" else bytes(range(256)) * 20)
    place.resume()
    assert place.kinds() == ANEW
    assert sorted(place.asked) == CASES


def test_a_journal_directory_that_is_a_file_is_a_typed_failure(place: Place) -> None:
    shutil.rmtree(place.log / "journal")
    (place.log / "journal").write_text("no")
    with pytest.raises(HarnessFailure, match="journal"):
        place.resume()
    assert place.asked == []
    assert place.kinds() == ["run.started"]


# --- two at once -----------------------------------------------------------------------------------


def test_a_run_that_somebody_holds_is_not_resumed(place: Place) -> None:
    with place.journal.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        place.resume()
    assert place.kinds() == ANEW


def test_a_run_that_another_finishes_at_that_very_moment_is_not_finished_twice(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We opened the journal, the other finished and let go of it, and then we get the lock."""
    other = Place.__new__(Place)
    other.root, other.cache, other.asked = place.root, tmp_path / "other-cache", []
    other.log = Path(shutil.copytree(place.log, tmp_path / "other-runs"))
    other.resume()
    lock = fcntl.flock

    def flock_late(descriptor: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX | fcntl.LOCK_NB and place.journal.exists():
            for path in (*record_files(other.log), other.log / HEAD):
                shutil.copyfile(path, place.log / path.name)
            place.journal.unlink()
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    place.resume()
    assert place.kinds() == [*RESUMED, "run.started", "run.finished"]


def test_a_resumed_run_that_cannot_say_so_keeps_its_journal(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log breaks between our look at it and our record."""
    raw = place.journal.read_bytes()
    head = place.log / HEAD
    whole = head.read_bytes()
    lock = fcntl.flock

    def flock_on_a_broken_log(descriptor: int, kind: int) -> None:
        lock(descriptor, kind)
        if kind & fcntl.LOCK_EX and os.path.samestat(os.fstat(descriptor), (place.log / ".lock").stat()):
            head.write_text("1 " + "a" * 64 + "\n")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock_on_a_broken_log)
        with pytest.raises(ChainTamperDetected):
            place.resume()
    assert place.journal.read_bytes() == raw
    head.write_bytes(whole)
    place.resume()
    assert place.kinds() == RESUMED


def test_a_start_that_was_written_without_its_head_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for HEAD: the start lies there, and must not count as a failed run for ever."""
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, VERDICTS)
    log, cache = tmp_path / "runs", tmp_path / "cache"
    record_run(root, log)
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if target.name == HEAD:
            raise OSError(28, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(HarnessFailure, match="No space left"):
            record_run(root, log, cache_dir=cache)
    record_run(root, log, cache_dir=cache)
    kinds = [record["kind"] for record in read_records(log)]
    assert kinds == ["run.started", "run.finished", *RESUMED]
    verified(log)


def test_resuming_does_not_start_a_new_budget(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=["one", "three", "two"])
    sut = NotingSut()
    for _ in range(3):
        done = record_run(
            root,
            tmp_path / "runs",
            sut,
            cache_dir=tmp_path / "cache",
            max_cost_usd=0.2,
            concurrency=1,
        )
        assert not done.report.complete
        assert done.chain_head is None
        assert sut.asked == ["one#0"]
    record_run(root, tmp_path / "runs", sut, cache_dir=tmp_path / "cache", max_cost_usd=9.0)
    assert sorted(sut.asked) == ["one#0", "three#0", "two#0"]
    verified(tmp_path / "runs")


def test_a_journal_belongs_to_what_decides_its_run(place: Place) -> None:
    started = verified(place.log).started(verified(place.log).find("latest"))
    directory, run_id = place.log / "journal", place.journal.name
    other = started.model_copy(update={"min_cases_for_promotion": {"bronze": 2}})
    assert [*dead_journals(directory, start_digest(other), {run_id})] == []
    assert [*dead_journals(directory, start_digest(started), set())] == []
    (found,) = dead_journals(directory, start_digest(started), {run_id})
    assert len(found.lines or ()) == 6
    assert [*dead_journals(directory, start_digest(started), {run_id})] == [], "it is locked now"
    found.close()
