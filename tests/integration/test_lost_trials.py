"""What a dead run had measured is not measured again unseen, and nothing else keeps it from being resumed."""

import os
from pathlib import Path

import pytest

from tests.support.dead_runs import ANEW, RESUMED, Place, measured, not_resumed
from tests.support.logs import read_records, stopped_run, verified


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_run_whose_journal_lacks_a_line_in_the_middle_is_not_resumed(place: Place) -> None:
    values = place.values()
    place.write([*values, measured(values)[1]])
    raw = place.journal.read_bytes()
    header, _asked, *rest = place.lines()
    damaged = b"".join([header, *rest])
    place.journal.write_bytes(damaged)
    for _ in range(2):
        done = place.resume()
        assert done.notes == (not_resumed(place),)
        assert place.journal.read_bytes() == damaged, "it is left as it was found"
    assert place.kinds() == [*ANEW, "run.started", "run.finished"]
    place.journal.write_bytes(raw)
    assert place.resume().notes == ()
    assert place.kinds()[-2:] == ["run.resumed", "run.finished"]


def test_trials_that_a_resumed_run_had_and_lost_are_on_the_record(place: Place) -> None:
    stopped_run(place.root, place.log, 2, cache_dir=place.cache)
    place.journal.write_bytes(b"".join(place.lines()[: place.end_of(1)]))
    place.resume()
    assert [record["body"].get("finished_trials") for record in read_records(place.log)] == [None, 2, 1, None]
    log = verified(place.log)
    entry = log.find("latest")
    assert (entry.lost_trials, log.history.lost_trials(entry)) == (1, 1)
    place.resume(fresh=True)
    other = verified(place.log)
    newest = other.find("latest")
    assert newest.run_id != entry.run_id
    assert (newest.lost_trials, other.history.lost_trials(newest)) == (0, 1), "every look at it is told"
    assert log.notes == [f"run {entry.run_id} was resumed without 1 trial that it had measured"]


def test_a_trial_whose_artefact_was_damaged_is_not_measured_again(place: Place) -> None:
    digest = measured(place.values())[0]["artifacts"]["output"]
    (place.log / "artifacts" / digest[:2] / digest).write_bytes(b"")
    done = place.resume()
    assert place.asked == ["sloppy"]
    assert done.notes == ("blocked: a damaged artefact is left out of the record",)
    trial = read_records(place.log)[-1]["body"]["trials"][0]
    assert (trial["case_id"], "output" in trial["artifacts"]) == ("blocked", False)
    assert verified(place.log).artifacts_missing == 0


def test_another_kernel_resumes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that crashed may come back with an update; nothing that was measured depends on it."""
    uname = os.uname()
    other = os.uname_result((uname.sysname, uname.nodename, "99.0.0-other", uname.version, uname.machine))
    monkeypatch.setattr(os, "uname", lambda: other)
    place.resume()
    assert place.kinds() == RESUMED
