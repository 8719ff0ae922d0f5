"""The journal by itself: group commit, and what happens when the disk does not take it."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from codegenie.eval.canonical import spelled
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.log.journal import Journal, dead_journals, start_journal

START = "a" * 64


def evidence(number: int) -> TrialEvidence:
    return TrialEvidence(
        case_id=f"case-{number}",
        trial=0,
        answer=Answer(passed=True, score=0.5),
        cost_usd=None,
        wall_clock_ms=number,
    )


def line(number: int) -> bytes:
    return spelled(evidence(number))


async def append_all(journal: Journal, count: int) -> list[object]:
    return list(
        await asyncio.gather(*(journal.append(line(n)) for n in range(count)), return_exceptions=True)
    )


def test_what_was_appended_is_there_when_the_call_returns(tmp_path: Path) -> None:
    journal = start_journal(tmp_path / "journal", "run-1", START)
    for number in range(3):
        asyncio.run(journal.append(line(number)))
        lines = (tmp_path / "journal" / "run-1").read_bytes().splitlines()
        assert f"case-{number}".encode() in lines[-1]
        assert len(lines) == number + 2
    journal.close()
    (found,) = dead_journals(tmp_path / "journal", START, {"run-1"})
    assert found.lines == tuple(evidence(number) for number in range(3))
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
        gives_up = asyncio.ensure_future(journal.append(line(0)))
        stays = asyncio.ensure_future(journal.append(line(1)))
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
    assert [*dead_journals(tmp_path / "journal", START, {"run-1"})] == []


def test_the_newest_of_several_dead_runs_comes_first(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-0", "20260301T000000Z-0", "20260201T000000Z-0"):
        start_journal(tmp_path, name, START).close()
    found = [*dead_journals(tmp_path, START, {path.name for path in tmp_path.iterdir()})]
    assert [journal.run_id[4:6] for journal in found] == ["03", "02", "01"]
    for journal in found:
        journal.close()


def test_without_a_directory_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert [*dead_journals(tmp_path / "missing", START, {"run-1"})] == []


def whole_journal(directory: Path, count: int) -> list[bytes]:
    """Leave the journal of a dead run behind and return its lines."""
    journal = start_journal(directory, "run-1", START)
    assert asyncio.run(append_all(journal, count)) == [None] * count
    journal.close()
    return (directory / "run-1").read_bytes().splitlines(keepends=True)


def read_again(directory: Path, lines: list[bytes]) -> list[str] | None:
    """Return the cases that a journal of these lines holds; None if it is broken."""
    (directory / "run-1").write_bytes(b"".join(lines))
    (found,) = dead_journals(directory, START, {"run-1"})
    found.close()
    return None if found.lines is None else [line.case_id for line in found.lines]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_line_that_is_missing_changed_or_moved_breaks_the_journal(tmp_path: Path, number: int) -> None:
    lines = whole_journal(tmp_path, 7)
    changed = lines[number].replace(b'"score":0.5', b'"score":0.9')
    assert read_again(tmp_path, [*lines[:number], *lines[number + 1 :]]) is None
    assert read_again(tmp_path, [*lines[:number], changed, *lines[number + 1 :]]) is None
    assert read_again(tmp_path, [*lines[:number], b"\n", *lines[number:]]) is None
    swapped = [lines[number + 1], lines[number]]
    assert read_again(tmp_path, [*lines[:number], *swapped, *lines[number + 2 :]]) is None
    assert read_again(tmp_path, lines) == [f"case-{n}" for n in range(7)]


@pytest.mark.parametrize("torn", [b"0123456789abcdef {", b"\0" * 40 + b"}\n", b"x\ny\nz", b"\n\n"])
def test_a_torn_end_is_dropped_and_the_chain_goes_on_behind_it(tmp_path: Path, torn: bytes) -> None:
    lines = whole_journal(tmp_path, 3)
    (tmp_path / "run-1").write_bytes(b"".join(lines) + torn)
    (found,) = dead_journals(tmp_path, START, {"run-1"})
    asyncio.run(found.append(line(3)))
    found.close()
    written = (tmp_path / "run-1").read_bytes().splitlines(keepends=True)
    assert written[:4] == lines
    assert read_again(tmp_path, written) == ["case-0", "case-1", "case-2", "case-3"]
    assert read_again(tmp_path, [*lines[:3], *written[4:]]) == ["case-0", "case-1"], (
        "an end that does not fit"
    )


def test_nothing_is_written_behind_a_line_that_the_disk_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = start_journal(tmp_path, "run-1", START)
    write = os.write

    def torn(descriptor: int, raw: memoryview) -> int:
        if len(raw) > 40:
            return write(descriptor, raw[:40])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", torn)
        with pytest.raises(HarnessFailure, match="No space left"):
            asyncio.run(journal.append(line(0)))
    before = (tmp_path / "run-1").read_bytes()
    with pytest.raises(HarnessFailure, match="No space left"):
        asyncio.run(journal.append(line(1)))
    journal.close()
    assert (tmp_path / "run-1").read_bytes() == before
    assert read_again(tmp_path, [before]) == []


def test_a_forked_child_keeps_no_lock_and_cannot_write(tmp_path: Path) -> None:
    journal = start_journal(tmp_path, "run-1", START)
    before = (tmp_path / "run-1").read_bytes()
    (from_child, to_us), (from_us, to_child) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_child)
        # A copy of the harness that runs on, as after a fork in an asynchronous agent.
        (failure,) = asyncio.run(append_all(journal, 1))
        os.write(to_us, b"refused" if isinstance(failure, HarnessFailure) else b"written")
        os.read(from_us, 1)
        os._exit(0)
    try:
        assert os.read(from_child, 7) == b"refused"
        assert [*dead_journals(tmp_path, START, {"run-1"})] == [], "we hold it"
        journal.close()
        (found,) = dead_journals(tmp_path, START, {"run-1"})
        found.close()
    finally:
        os.close(to_child)
        os.waitpid(child, 0)
        for descriptor in (from_child, to_us, from_us):
            os.close(descriptor)
    assert (tmp_path / "run-1").read_bytes() == before


def test_lines_that_the_log_will_count_are_on_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who died may have written them and not synced; the count of a resumption may not outlive its lines."""
    whole_journal(tmp_path, 2)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    (found,) = dead_journals(tmp_path, START, {"run-1"})
    found.close()
    assert synced == [(tmp_path / "run-1").stat().st_size]


def test_what_a_slot_has_measured_and_what_it_asks_next_share_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = start_journal(tmp_path, "run-1", START)
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: syncs.append(os.fstat(descriptor).st_size))

    async def measured_and_asked() -> None:
        for number in range(3):
            journal.put(line(number))
            await asyncio.sleep(0)  # as between two items of a worker
            await journal.append(line(10 + number))

    asyncio.run(measured_and_asked())
    journal.close()
    lines = (tmp_path / "run-1").read_bytes().splitlines(keepends=True)
    assert syncs == [sum(map(len, lines[:count])) for count in (3, 5, 7)]


def test_a_line_that_is_noted_is_there_at_once_and_one_that_is_put_when_the_journal_is_closed(
    tmp_path: Path,
) -> None:
    journal = start_journal(tmp_path, "run-1", START)

    async def noted_and_put() -> bytes:
        journal.note(line(0))
        there = (tmp_path / "run-1").read_bytes()
        journal.put(line(1))
        journal.note(line(2))
        journal.close()
        await asyncio.sleep(0.01)
        return there

    there = asyncio.run(noted_and_put())
    lines = (tmp_path / "run-1").read_bytes().splitlines(keepends=True)
    assert there == b"".join(lines[:2])
    assert read_again(tmp_path, lines) == ["case-0", "case-1", "case-2"]


def test_a_disk_that_did_not_take_a_line_is_told_to_the_next_and_binds_nothing() -> None:
    journal = Journal(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC))
    journal.note(line(0))
    (failure,) = asyncio.run(append_all(journal, 1))
    assert isinstance(failure, HarnessFailure)
    assert journal.seal() is None
    journal.close()


class Disk:
    """Takes the place of fdatasync: it waits until it is released, and notes which threads called it."""

    def __init__(self, error: OSError | None = None) -> None:
        self.called, self.released = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self.returned = 0
        self._error = error

    def sync(self, _descriptor: int) -> None:
        self.threads.append(threading.current_thread())
        self.called.set()
        if not self.released.wait(30):
            raise OSError(5, "the loop does not go on")
        self.returned += 1
        if self._error is not None:
            raise self._error


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_while_one_of_two_slots_waits_for_the_disk_the_other_goes_on_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, disk = start_journal(tmp_path, "run-1", START, slots=2), Disk()
    monkeypatch.setattr(os, "fdatasync", disk.sync)

    async def two_slots() -> None:
        first = asyncio.ensure_future(journal.append(line(0)))
        assert await asyncio.to_thread(disk.called.wait, 30)
        journal.note(line(1))
        second = asyncio.ensure_future(journal.append(line(2)))
        await turns(10)
        assert not first.done()
        assert (tmp_path / "run-1").read_bytes().count(b"case-") == 1
        disk.released.set()
        await asyncio.gather(first, second)

    asyncio.run(two_slots())
    journal.close()

    assert threading.main_thread() not in disk.threads
    assert len(disk.threads) == 2
    (found,) = dead_journals(tmp_path, START, {"run-1"})
    assert found.lines == tuple(evidence(number) for number in range(3))
    found.close()


def test_if_all_slots_wait_for_the_disk_no_thread_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, disk = start_journal(tmp_path, "run-1", START, slots=2), Disk()
    disk.released.set()
    monkeypatch.setattr(os, "fdatasync", disk.sync)

    assert asyncio.run(append_all(journal, 2)) == [None, None]
    journal.close()

    assert disk.threads == [threading.main_thread()]


def test_a_sync_that_fails_in_a_thread_is_told_to_all_who_wait_and_binds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, disk = start_journal(tmp_path, "run-1", START, slots=2), Disk(OSError(28, "No space left"))
    monkeypatch.setattr(os, "fdatasync", disk.sync)

    async def two_slots() -> list[object]:
        first = asyncio.ensure_future(journal.append(line(0)))
        assert await asyncio.to_thread(disk.called.wait, 30)
        second = asyncio.ensure_future(journal.append(line(1)))
        await turns(3)
        disk.released.set()
        return list(await asyncio.gather(first, second, return_exceptions=True))

    failures = asyncio.run(two_slots())

    assert [type(failure) for failure in failures] == [HarnessFailure, HarnessFailure]
    assert (tmp_path / "run-1").read_bytes().count(b"case-") == 1, "nothing follows what may be torn"
    assert journal.seal() is None
    journal.close()


def test_a_file_is_not_closed_while_a_thread_still_syncs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, disk = start_journal(tmp_path, "run-1", START, slots=2), Disk()
    monkeypatch.setattr(os, "fdatasync", disk.sync)

    async def closed_early() -> int:
        waits = asyncio.ensure_future(journal.append(line(0)))
        assert await asyncio.to_thread(disk.called.wait, 30)
        threading.Timer(0.3, disk.released.set).start()
        journal.close()
        returned = disk.returned
        await waits
        return returned

    assert asyncio.run(closed_early()) == 1
