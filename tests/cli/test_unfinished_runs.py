"""A run that ended early, is under way or was abandoned is shown as far as its journal has measured it."""

import fcntl
import json
from pathlib import Path

import pytest

from codegenie.eval.log.run_view import view_run
from codegenie.eval.system.clock import SystemClock
from tests.support.dead_runs import Place
from tests.support.logs import verified
from tests.support.working_directory import Desk, Said


class Left:
    """A run that died with two of its three trials measured, and the command line beside it."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.place = Place(directory)
        self.run_id = self.place.journal.name
        self._desk = Desk(directory, capture)

    def ask(self, command: str, *arguments: str, out: str = "runs") -> Said:
        return self._desk.ask(command, *arguments, "--out", out)

    def document(self, *arguments: str) -> dict[str, object]:
        said = self.ask(*arguments, "--json")
        assert said.code == 0, said.out
        return said.document

    def outcomes(self) -> dict[str, str]:
        rows = self.ask("cases", "--json").document["cases"]
        return {row["case_id"]: row["outcome"] for row in rows}

    def state(self) -> tuple[bytes, int]:
        journal = self.place.journal
        return journal.read_bytes(), journal.stat().st_mtime_ns


@pytest.fixture
def left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Left:
    return Left(tmp_path, capsys)


OPEN = {"blocked": "failed", "passed": "passed", "sloppy": "open"}


def test_a_run_that_ended_early_is_shown_as_far_as_it_was_measured(left: Left) -> None:
    said = left.ask("show", "latest")
    document = left.document("show", "latest")
    incomplete = document["incomplete"]

    assert said.code == 0
    assert f"run {left.run_id} · INCOMPLETE (open)\n" in said.out
    assert "\nmeasured         2 of 3 trials\nso far           1 failed · 1 passed\nlast line " in said.out
    assert "\nnext             if it is not under way, the same command resumes it" in said.out
    assert "\nnext             `codegenie eval abandon RUN --because TEXT`" in said.out
    for word in ("lower bound", "certified", "mean "):
        assert word not in said.out
    assert max(map(len, said.out.splitlines()[1:])) <= 100
    assert (document["state"], document["report"], document["mean_over_units"]) == ("open", None, None)
    assert isinstance(incomplete, dict)
    assert (incomplete["planned_trials"], incomplete["measured_trials"]) == (3, 2)
    assert (incomplete["waiting_trials"], incomplete["because"], incomplete["notes"]) == (0, None, [])


def test_what_a_measured_trial_of_an_open_run_left_behind_is_shown(left: Left) -> None:
    case = left.ask("show", "latest", "passed")
    output = left.ask("show", "latest", "passed", "--output")
    rubric = left.ask("show", "latest", "passed", "--rubric")

    assert case.out.startswith("passed#0  passed  score 0.750\n")
    assert (output.code, rubric.code) == (0, 0)
    assert left.ask("show", "latest", "passed", "--diff").code == 0
    assert '"score": 0.75' in output.out
    assert "--- passed#0 rubric_stdout\n" in rubric.out


def test_a_trial_without_an_outcome_is_said_to_have_none(left: Left) -> None:
    said = left.ask("show", "latest", "sloppy")

    assert (said.code, said.out) == (0, "sloppy#0  has no outcome: its run is open\n")
    assert left.document("show", "latest", "sloppy", "--log")["trials"] == []
    assert left.ask("show", "latest", "no-such-case", "--json").refusal == (2, "NoCaseMatches")
    assert left.outcomes() == OPEN
    listed = left.ask("cases").out
    assert "INCOMPLETE (open)" in listed
    assert "\nsloppy   open\n" in listed
    assert listed.splitlines()[-1].startswith("next: `codegenie eval abandon RUN")


def test_a_run_that_is_under_way_is_shown_without_its_lock_and_without_a_change(left: Left) -> None:
    before = left.state()
    with left.place.journal.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert left.outcomes() == OPEN
        assert left.ask("show", "latest").code == 0

    assert left.state() == before
    with left.place.journal.open("rb") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("torn", [b"0123", b'0123456789abcdef {"kind": "as', b"0123456789abcdef {}\nhalf"])
def test_an_end_that_is_only_half_written_is_left_out_and_not_repaired(left: Left, torn: bytes) -> None:
    with left.place.journal.open("ab") as journal:
        journal.write(torn)
    before = left.state()

    assert left.outcomes() == OPEN
    assert left.document("cases")["notes"] == []
    assert left.state() == before


def test_a_trial_that_was_asked_for_and_has_no_outcome_is_counted(left: Left) -> None:
    left.place.write([*left.place.values(), {"kind": "asked", "case_id": "sloppy", "trial": 0}])

    assert "2 of 3 trials · asked for 1 more, without an outcome\n" in left.ask("show", "latest").out
    assert left.outcomes() == OPEN


def test_a_journal_that_was_edited_is_shown_up_to_the_edit_and_said_to_be_edited(left: Left) -> None:
    place = left.place
    lines, after_one = place.lines(), place.end_of(1)
    place.journal.write_bytes(b"".join([*lines[:after_one], *lines[after_one + 1 :]]))

    assert left.outcomes() == OPEN | {"passed": "open"}
    assert left.document("cases")["notes"] == [
        "a line of its journal is missing or was changed, and what follows that line is not shown"
    ]
    assert "\nnote             a line of its journal is missing" in left.ask("show", "latest").out


def test_a_line_that_the_run_cannot_have_written_is_not_shown_as_measured(left: Left) -> None:
    values = left.place.values()
    forged = {**values[-1], "case_id": "sloppy"}
    better = {**values[-1], "interrupted": 3}
    for lines, found in (
        ([*values, forged], OPEN),
        ([*values[:-1], better], OPEN | {"passed": "open"}),
        ([*values, {**forged, "case_id": "another"}], OPEN),
    ):
        left.place.write(lines)
        assert left.outcomes() == found
        assert left.document("cases")["notes"] != []


@pytest.mark.parametrize("content", [None, b"", b"nothing of ours\n", b"\xff\x00"])
def test_a_run_whose_journal_is_lost_is_shown_with_what_its_start_says(
    left: Left, content: bytes | None
) -> None:
    if content is None:
        left.place.journal.unlink()
    else:
        left.place.journal.write_bytes(content)
    said = left.ask("show", "latest")

    assert said.code == 0
    assert "INCOMPLETE (open)\nmeasured         0 of 3 trials\n" in said.out
    assert set(left.outcomes().values()) == {"open"}
    assert ("its journal is not here" in said.out) == (content is None)


def test_a_journal_that_is_a_link_or_a_pipe_is_not_read(left: Left, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    left.place.journal.rename(elsewhere)
    left.place.journal.symlink_to(elsewhere)
    assert set(left.outcomes().values()) == {"open"}
    left.place.journal.unlink()
    left.place.journal.mkdir()
    assert set(left.outcomes().values()) == {"open"}


def test_a_run_that_finishes_while_it_is_looked_at_is_shown_as_finished(left: Left) -> None:
    before = verified(left.place.log)
    resumed = left.place.resume()
    view = view_run(before, left.run_id, SystemClock())

    assert before.find(left.run_id).state == "open"
    assert (view.entry.state, len(view.trials)) == ("finished", 3)
    assert view.measured.report is not None
    # What was measured before the resume is in the totals as well.
    assert (resumed.totals.trials, resumed.totals.sum_ms) == (3, sum(t.wall_clock_ms for t in view.trials))


def test_what_an_abandoned_run_had_measured_is_kept_and_shown(left: Left) -> None:
    assert left.ask("abandon", "latest", "--because", "the disk was full").code == 0
    said = left.ask("show", "latest")

    assert not left.place.journal.exists()
    assert "INCOMPLETE (abandoned)\nabandoned        the disk was full\n" in said.out
    assert "\nmeasured         2 of 3 trials\n" in said.out
    assert said.out.endswith(
        "\nnext             it counts as a failed look; `codegenie eval run` measures again\n"
    )
    assert '"score": 0.75' in left.ask("show", "latest", "passed", "--output").out
    assert left.outcomes() == OPEN
    assert left.ask("cases", "--json").document["state"] == "abandoned"
    (run,) = left.ask("runs", "--json").document["runs"]
    assert (run["state"], run["because"], run["units_passed"]) == ("abandoned", "the disk was full", None)
    assert "abandoned  - of 3 units" in left.ask("runs").out


def test_the_journal_of_an_abandoned_run_is_part_of_the_verified_log(left: Left) -> None:
    left.ask("abandon", "latest", "--because", "the disk was full")
    record = json.loads((left.place.log / "00000001.json").read_bytes())
    digest = record["body"]["journal"]
    kept = left.place.log / "artifacts" / digest[:2] / digest
    assert left.ask("verify").code in {0, 4}
    kept.write_bytes(kept.read_bytes().replace(b"0.75", b"0.85"))

    assert left.ask("verify", "--json").document["ok"] is False
    assert left.ask("verify").code == 3
    assert left.ask("show", "latest", "--json").refusal == (3, "ChainTamperDetected")
    kept.unlink()
    assert "its journal is not here" in left.ask("show", "latest").out


def test_a_run_without_a_journal_can_be_abandoned_and_shown(left: Left) -> None:
    left.place.journal.unlink()
    assert left.ask("abandon", "latest", "--because", "its journal is lost").code == 0

    assert "journal" not in json.loads((left.place.log / "00000001.json").read_bytes())["body"]
    assert "measured         0 of 3 trials\n" in left.ask("show", "latest").out


def test_an_open_run_in_a_bundle_is_shown_without_its_journal(left: Left) -> None:
    left.place.resume(fresh=True)
    finished = str(left.ask("runs", "--json").document["runs"][0]["run"])
    assert left.ask("export", finished, "-o", "run.zip").code == 0
    said = left.ask("show", left.run_id, out="run.zip")

    assert said.code == 0
    assert "measured         0 of 3 trials\n" in said.out
    assert "its journal is not here" in said.out
    assert left.ask("runs", out="run.zip").out == left.ask("runs").out
