"""Whatever an agent leaves in its workspace is collected as data: bounded, and never through a link."""

import json
import mmap
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from codegenie.eval.collection.collecting import collect
from codegenie.eval.collection.document import harness_output
from codegenie.eval.collection.records import Collected, CollectOptions, original_of
from codegenie.eval.decoding import decode_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.removal import for_entries, remove_tree
from tests.support.ordinary_user import run_as_ordinary_user
from tests.support.patches import Tree, applied

CAPS = LIMITS.collected
BEFORE: Tree = {
    "a.txt": (b"one\ntwo\n", False),
    "run.sh": (b"#!/bin/sh\n", True),
    "d/b.txt": (b"b\n", False),
    "d/e/c.bin": (b"\xff\0", False),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a workspace as an agent gets it."""
    place = tmp_path / "work"
    for path, (content, executable) in BEFORE.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
        (place / path).chmod(0o700 if executable else 0o600)
    return place


@contextmanager
def opened(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def collected(place: Path, before: Tree = BEFORE, **options: Any) -> Collected:  # noqa: ANN401 - those of CollectOptions
    original = original_of((path, content, executable) for path, (content, executable) in before.items())
    with opened(place) as descriptor:
        return collect(descriptor, original, CollectOptions(**options))


def test_a_workspace_that_was_not_changed_is_empty(work: Path) -> None:
    assert collected(work) == Collected()
    assert collected(work).is_empty


def test_changed_new_and_deleted_files_are_collected_with_their_patch(work: Path) -> None:
    (work / "a.txt").write_bytes(b"one\r\n2")
    (work / "d" / "b.txt").unlink()
    (work / "new" / "er").mkdir(parents=True)
    (work / "new" / "er" / "empty").touch()
    (work / "new" / "tool").write_text("x")
    (work / "new" / "tool").chmod(0o755)
    (work / "run.sh").chmod(0o600)
    result = collected(work)

    assert result.files == {
        "a.txt": "one\r\n2",
        "d/b.txt": None,
        "new/er/empty": "",
        "new/tool": "x",
        "run.sh": "#!/bin/sh\n",
    }
    assert (result.other, result.binaries, result.notes) == ({}, {}, ())
    assert applied(result.patch, BEFORE) == {
        "a.txt": (b"one\r\n2", False),
        "d/e/c.bin": BEFORE["d/e/c.bin"],
        "new/er/empty": (b"", False),
        "new/tool": (b"x", True),
        "run.sh": (b"#!/bin/sh\n", False),
    }


def test_a_file_that_was_moved_is_a_rename_also_if_it_is_not_text(work: Path) -> None:
    (work / "d").rename(work / "moved")
    result = collected(work)

    assert result.files == {"d/b.txt": None, "d/e/c.bin": None, "moved/b.txt": "b\n"}
    assert result.other["moved/e/c.bin"] == {
        "kind": "binary",
        "size": 2,
        "blake3": blake3(b"\xff\0").hexdigest(),
    }
    assert b"rename from d/e/c.bin\nrename to moved/e/c.bin\n" in result.patch
    assert applied(result.patch, BEFORE).keys() == {"a.txt", "run.sh", "moved/b.txt", "moved/e/c.bin"}


def become_link(place: Path) -> None:
    place.symlink_to("/etc/passwd")


def become_socket(place: Path) -> None:
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(place.parent)
        listener.bind(place.name)
        os.chdir(here)


def become_binary(place: Path) -> None:
    place.write_bytes(b"\0")


def become_large(place: Path) -> None:
    place.touch()
    os.truncate(place, 2 << 30)


OTHERS: dict[str, tuple[Callable[[Path], object], dict[str, Any]]] = {
    "a link": (become_link, {"kind": "symlink", "target": "/etc/passwd"}),
    "a link to itself": (
        lambda place: place.symlink_to(place.name),
        {"kind": "symlink", "target": "a.txt"},
    ),
    "a pipe": (os.mkfifo, {"kind": "fifo"}),
    "a socket": (become_socket, {"kind": "socket"}),
    "no text": (become_binary, {"kind": "binary", "size": 1, "blake3": blake3(b"\0").hexdigest()}),
    "2 GiB": (become_large, {"kind": "too_large", "size": 2 << 30}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_file_that_became_something_else_is_null_and_named(work: Path, what: str) -> None:
    become, entry = OTHERS[what]
    (work / "a.txt").unlink()
    become(work / "a.txt")
    result = collected(work)

    assert (result.files, result.other) == ({"a.txt": None}, {"a.txt": entry})


@pytest.mark.parametrize("what", OTHERS)
def test_a_new_entry_that_is_no_text_is_named_and_no_file(work: Path, what: str) -> None:
    become, entry = OTHERS[what]
    (work / "sub").mkdir()
    become(work / "sub" / "a.txt")
    result = collected(work)

    assert (result.files, result.other) == ({}, {"sub/a.txt": entry})


def test_a_device_is_named_and_not_opened(work: Path) -> None:
    if os.getuid():
        # Only root makes a node of a device. A link to one leads nowhere either.
        (work / "null").symlink_to("/dev/null")
    else:
        os.mknod(work / "null", 0o20666, os.makedev(1, 3))
    result = collected(work)

    assert result.files == {}
    assert result.other["null"]["kind"] == ("symlink" if os.getuid() else "device")


def test_a_folder_that_became_a_file_and_a_file_that_became_a_folder(work: Path) -> None:
    shutil.rmtree(work / "d")
    (work / "d").write_text("flat")
    (work / "a.txt").unlink()
    (work / "a.txt").mkdir()
    (work / "a.txt" / "deep").write_text("deep")
    result = collected(work)

    assert result.files == {
        "a.txt": None,
        "a.txt/deep": "deep",
        "d": "flat",
        "d/b.txt": None,
        "d/e/c.bin": None,
    }
    assert result.other == {}


def test_a_folder_that_became_a_link_outside_hides_nothing_and_shows_nothing(work: Path) -> None:
    outside = work.parent / "outside"
    (work / "d").rename(outside)
    (outside / "secret.txt").write_text("secret")
    (work / "d").symlink_to(outside)
    (work / "loop").symlink_to(".")
    result = collected(work)

    assert result.files == {"d/b.txt": None, "d/e/c.bin": None}
    assert result.other == {
        "d": {"kind": "symlink", "target": str(outside)},
        "loop": {"kind": "symlink", "target": "."},
    }


def test_names_that_no_document_can_hold_are_spelled(work: Path) -> None:
    long = "é" * 127
    for name in (
        b"a\nb",
        b"\xff\xfe",
        b"a\x1b[2J",
        b'"quoted"',
        b"\xe2\x80\xae",
        b".GIT",
        b"git~1",
        b".git. ",
    ):
        (work / os.fsdecode(name)).write_text("x")
    (work / "d" / ".git").mkdir()
    (work / "d" / ".git" / "config").write_text("x")
    (work / long).write_text("long")
    (work / "back\\slash").write_text("plain")
    result = collected(work)

    assert result.files == {long: "long", "back\\slash": "plain"}
    assert result.other == {
        spelled: {"kind": "odd_name"}
        for spelled in (
            r'"a\nb"',
            r'"\377\376"',
            r'"a\033[2J"',
            r'"\"quoted\""',
            r'"\342\200\256"',
            '".GIT"',
            '"git~1"',
            '".git. "',
            '"d/.git"',
        )
    }
    assert "odd_name: 9 entries" in result.notes[0]


def test_the_folder_of_git_and_excluded_names_at_the_top_are_skipped(work: Path) -> None:
    for name in (".git/config", ".aider.chat/log", "d/.aider.chat", ".aider"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x")
    before = {**BEFORE, ".aider.conf": (b"gone", False)}

    assert collected(work, before, exclude=(".aider*",)).files == {"d/.aider.chat": "x"}
    assert collected(work).files.keys() == {".aider", ".aider.chat/log", "d/.aider.chat"}


def test_a_download_hides_no_change_of_a_file_that_was_there(work: Path) -> None:
    (work / "d" / "b.txt").write_text("changed")
    for number in range(30):
        (work / f"0{number}").write_text("x" * 100)
    limits = replace(CAPS, entries=10, total_bytes=500)
    result = collected(work, limits=limits)

    assert result.files["d/b.txt"] == "changed"
    assert result.other["."] == {"kind": "over_total"}
    assert len(result.files) < 10
    assert any(note.startswith("over_total: ") for note in result.notes)


def test_contents_beyond_the_sum_are_named_and_smaller_ones_are_still_taken(work: Path) -> None:
    (work / "1").write_text("x" * 60)
    (work / "2").write_text("x" * 60)
    (work / "3").write_text("x" * 30)
    result = collected(work, limits=replace(CAPS, total_bytes=100))

    assert result.files.keys() == {"1", "3"}
    assert result.other == {"2": {"kind": "over_total", "size": 60}}


def test_a_file_at_the_cap_is_taken_and_one_byte_more_is_not(work: Path) -> None:
    (work / "at").write_bytes(b"x" * CAPS.file_bytes)
    (work / "over").write_bytes(b"x" * (CAPS.file_bytes + 1))
    result = collected(work)

    assert result.files.keys() == {"at"}
    assert result.other == {"over": {"kind": "too_large", "size": CAPS.file_bytes + 1}}


def test_a_large_file_that_the_agent_got_is_compared_by_its_bytes(work: Path) -> None:
    large = b"x" * (CAPS.file_bytes + 1)
    before = {**BEFORE, "large": (large, False)}
    (work / "large").write_bytes(large)
    same = collected(work, before)
    (work / "large").write_bytes(large[:-1] + b"y")
    other = collected(work, before)

    assert same.is_empty
    assert other.files == {"large": None}
    assert other.other == {"large": {"kind": "too_large", "size": len(large)}}
    assert b"Binary files a/large and b/large differ\n" in other.patch


# Changes that leave little or nothing in the status of a file.


def write_and_restore_times(work: Path) -> None:
    status = os.stat(work / "a.txt")
    with open(work / "a.txt", "r+b") as file:
        file.write(b"ONE")
    os.utime(work / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))


def write_through_memory(work: Path) -> None:
    """Read first: then the kernel of a tmpfs notices no write, and changes none of the times."""
    with open(work / "a.txt", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[:3] == b"one"
        mapped[:3] = b"ONE"


def write_through_another_name(work: Path) -> None:
    os.link(work / "a.txt", work / "again")
    write_and_restore_times(work)
    (work / "again").unlink()


def swap_for_another_inode(work: Path) -> None:
    (work / "twin.txt").write_bytes(b"ONE\ntwo\n")
    os.link(work / "twin.txt", work / "link")
    (work / "twin.txt").replace(work / "a.txt")
    (work / "link").unlink()


QUIET_CHANGES = [
    write_and_restore_times,
    write_through_memory,
    write_through_another_name,
    swap_for_another_inode,
]


@pytest.mark.parametrize("change", QUIET_CHANGES)
def test_a_change_that_its_size_and_times_do_not_show_is_found(
    work: Path, change: Callable[[Path], None]
) -> None:
    change(work)

    assert collected(work).files == {"a.txt": "ONE\ntwo\n"}


def test_two_files_of_one_size_that_took_the_place_of_each_other_are_both_changed(work: Path) -> None:
    before = {**BEFORE, "b.txt": (b"ONE\nTWO\n", False)}
    (work / "b.txt").write_bytes(before["b.txt"][0])
    os.link(work / "a.txt", work / "kept")
    (work / "b.txt").replace(work / "a.txt")
    (work / "kept").replace(work / "b.txt")

    assert collected(work, before).files == {"a.txt": "ONE\nTWO\n", "b.txt": "one\ntwo\n"}


def test_time_that_is_over_is_told_and_nothing_passes_for_unchanged(work: Path) -> None:
    (work / "new").write_text("x")
    result = collected(work, limits=replace(CAPS, seconds=-1))

    assert result.files == dict.fromkeys(BEFORE)
    assert result.other == {path: {"kind": "over_total"} for path in (*BEFORE, ".")}


def test_hard_links_within_the_workspace_are_files(work: Path) -> None:
    os.link(work / "a.txt", work / "again.txt")

    assert collected(work).files == {"again.txt": "one\ntwo\n"}


def test_a_hard_link_to_the_file_of_another_user_is_not_read(work: Path) -> None:
    secret = work.parent / "expected.txt"
    secret.write_text("the answer")
    os.link(secret, work / "answer.txt")
    if os.getuid() == 0:
        os.chown(secret, 61777, 61777)
        result = collected(work)
        assert (result.files, result.other) == ({}, {"answer.txt": {"kind": "unreadable"}})
    else:
        # An ordinary user cannot give a file away. Its own file is one that the agent could read itself.
        assert collected(work).files == {"answer.txt": "the answer"}


def test_the_owner_opens_what_the_agent_closed() -> None:
    with tempfile.TemporaryDirectory() as room:
        done = run_as_ordinary_user("tests.integration.collected_tree", Path(room), 400)
        shutil.rmtree(room, ignore_errors=True)
        os.makedirs(room, exist_ok=True)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("user") != 0
    assert told == {
        "files": {
            "changed.txt": "changed",
            "closed/below/file.txt": "closed/below",
            "listed/file.txt": "listed",
            "searched/file.txt": "searched",
        },
        "other": {},
    }


# Something in the workspace is alive after all.


def swapped_before_open(monkeypatch: pytest.MonkeyPatch, name: bytes, swap: Callable[[], object]) -> None:
    """Let `swap` happen once, just before the harness opens an entry of this name."""
    real = os.open
    done: list[bool] = []

    def opening(path: Any, *rest: Any, **more: Any) -> int:  # noqa: ANN401 - those of os.open
        first = path == name and not done
        done.extend([True] if first else [])
        if first:
            swap()
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", opening)


def in_time(work: Path) -> Collected:
    """Collect in a thread, so that a call that waits forever fails the test and does not stop it."""
    results: list[Collected] = []
    thread = threading.Thread(target=lambda: results.append(collected(work)), daemon=True)
    thread.start()
    thread.join(60)
    assert results, "the collection waits"
    return results[0]


@pytest.mark.parametrize("name", ["a.txt", "new.txt"])
@pytest.mark.parametrize("what", ["a link", "a pipe", "a socket"])
def test_a_file_that_is_swapped_before_it_is_opened_is_seen_as_what_it_is(
    work: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    (work / name).write_text("changed")

    def swap() -> None:
        (work / name).unlink()
        OTHERS[what][0](work / name)

    swapped_before_open(monkeypatch, name.encode(), swap)
    result = in_time(work)

    assert result.files == ({"a.txt": None} if name == "a.txt" else {})
    assert result.other[name]["kind"] in {OTHERS[what][1]["kind"], "unreadable"}


@pytest.mark.parametrize("what", ["a link", "nothing", "a file"])
def test_a_folder_that_is_swapped_before_it_is_opened_is_not_entered(
    work: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (work / "new").mkdir()
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")

    def swap() -> None:
        (work / "new").rmdir()
        if what != "nothing":
            (work / "new").symlink_to(outside) if what == "a link" else (work / "new").write_text("x")

    swapped_before_open(monkeypatch, b"new", swap)

    assert in_time(work).other == {"new": {"kind": "unreadable"}}


def test_a_file_that_grows_while_it_is_read_is_cut_off_at_the_cap(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "grows").write_text("small")
    real = os.read

    def reading(descriptor: int, most: int) -> bytes:
        if os.path.samestat(os.fstat(descriptor), os.stat(work / "grows")):
            become_large(work / "grows")
        return real(descriptor, most)

    monkeypatch.setattr(os, "read", reading)
    result = in_time(work)

    assert result.files == {}
    assert result.other["grows"]["kind"] == "too_large"


def test_a_file_that_is_swapped_all_the_time_never_shows_what_lies_outside(work: Path) -> None:
    secret = work.parent / "secret"
    secret.write_text("the answer")
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            place = work.parent / "next"
            place.symlink_to(secret) if number % 2 else place.write_text("mine")
            place.replace(work / "a.txt")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        results = [collected(work) for _ in range(300)]
    finally:
        stop.set()
        thread.join()

    assert {result.files.get("a.txt") for result in results} <= {"mine", None}
    assert any(result.other for result in results)


# Everything at once.


def test_a_whole_tree_of_traps_is_collected_in_bounded_time(work: Path) -> None:
    for number in range(12_000):
        folder = work / "many" / str(number // 200)
        if number % 200 == 0:
            folder.mkdir(parents=True)
        (folder / str(number)).write_text(str(number))
    become_large(work / "sparse")
    deep = os.open(work, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("l", dir_fd=deep)
        below = os.open("l", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    os.mkfifo(work / "pipe")
    become_socket(work / "socket")
    (work / "outside").symlink_to("/")
    (work / os.fsdecode(b"\xff\n")).touch()
    started = time.monotonic()
    result = in_time(work)
    document = harness_output(result, {"exit_code": 0, "stdout_tail": ""})
    took = time.monotonic() - started
    remove_tree(str(work / "l"), for_entries(5_000))

    assert took < 60
    assert len(result.files) == 12_000
    assert result.other == {
        "sparse": {"kind": "too_large", "size": 2 << 30},
        "l/" * CAPS.depth + "l": {"kind": "too_deep"},
        "pipe": {"kind": "fifo"},
        "socket": {"kind": "socket"},
        "outside": {"kind": "symlink", "target": "/"},
        r'"\377\n"': {"kind": "odd_name"},
    }
    assert decode_json(document.output, LIMITS.sut_output_bytes)["other"] == result.other
    assert len(applied(result.patch, BEFORE)) == 12_000 + len(BEFORE)


def test_a_workspace_that_was_removed_holds_nothing_any_more(work: Path) -> None:
    with opened(work) as descriptor:
        shutil.rmtree(work)
        result = collect(descriptor, original_of([("a.txt", b"x", False)]))

    assert result.files == {"a.txt": None}
