"""The journal by itself: group commit, and what happens when the disk does not take it."""

import asyncio
import os
from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.journal import Journal, resume_journal, start_journal

START = "a" * 64


def evidence(number: int) -> TrialEvidence:
    return TrialEvidence(
        case_id=f"case-{number}",
        trial=0,
        answer=Answer(passed=True, score=0.5),
        cost_usd=None,
        wall_clock_ms=number,
    )


async def append_all(journal: Journal, count: int) -> list[object]:
    return list(
        await asyncio.gather(*(journal.append(evidence(n)) for n in range(count)), return_exceptions=True)
    )


def test_what_was_appended_is_there_when_the_call_returns(tmp_path: Path) -> None:
    journal = start_journal(tmp_path / "journal", "run-1", START)
    for number in range(3):
        asyncio.run(journal.append(evidence(number)))
        lines = (tmp_path / "journal" / "run-1").read_bytes().splitlines()
        assert f"case-{number}".encode() in lines[-1]
        assert len(lines) == number + 2
    journal.close()
    found = resume_journal(tmp_path / "journal", START, {"run-1"})
    assert found is not None
    assert found.finished == tuple(evidence(number) for number in range(3))
    found.discard()
    assert list((tmp_path / "journal").iterdir()) == []


def test_lines_that_are_ready_together_share_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        real(descriptor)

    journal = start_journal(tmp_path, "run-1", START)
    monkeypatch.setattr(os, "fdatasync", counted)
    assert asyncio.run(append_all(journal, 50)) == [None] * 50
    assert len(syncs) == 1
    journal.close()


def test_a_full_disk_is_said_to_everybody_who_waits() -> None:
    journal = Journal(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC))
    failures = asyncio.run(append_all(journal, 3))
    assert len(failures) == 3
    for failure in failures:
        assert isinstance(failure, HarnessFailure)
        assert "No space left" in failure.message
    journal.close()


@pytest.mark.parametrize("disk", ["full", "good"])
def test_whoever_gives_up_waiting_is_not_in_the_way_of_the_others(tmp_path: Path, disk: str) -> None:
    if disk == "full":
        journal = Journal(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC))
    else:
        journal = start_journal(tmp_path, "run-1", START)

    async def one_gives_up() -> object:
        gives_up = asyncio.ensure_future(journal.append(evidence(0)))
        stays = asyncio.ensure_future(journal.append(evidence(1)))
        await asyncio.sleep(0)
        gives_up.cancel()
        done = await asyncio.gather(gives_up, stays, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        return done[1]

    assert (asyncio.run(one_gives_up()) is None) == (disk == "good")
    journal.close()


def test_a_run_id_is_used_once(tmp_path: Path) -> None:
    journal = start_journal(tmp_path, "run-1", START)
    with pytest.raises(HarnessFailure, match="File exists"):
        start_journal(tmp_path, "run-1", START)
    journal.close()


def test_a_journal_that_cannot_be_begun_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(HarnessFailure, match="No space left"):
        start_journal(tmp_path, "run-1", START)
    assert list(tmp_path.iterdir()) == []


def test_discarding_twice_or_where_nothing_may_be_removed_is_no_error(tmp_path: Path) -> None:
    journal = start_journal(tmp_path / "journal", "run-1", START)
    (tmp_path / "journal" / "run-1").unlink()
    (tmp_path / "journal" / "run-1").mkdir()
    journal.discard()
    assert resume_journal(tmp_path / "journal", START, {"run-1"}) is None


def test_the_newest_of_several_dead_runs_is_taken(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-0", "20260301T000000Z-0", "20260201T000000Z-0"):
        start_journal(tmp_path, name, START).close()
    found = resume_journal(tmp_path, START, {path.name for path in tmp_path.iterdir()})
    assert found is not None
    assert found.run_id == "20260301T000000Z-0"
    found.close()


def test_without_a_directory_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert resume_journal(tmp_path / "missing", START, {"run-1"}) is None
