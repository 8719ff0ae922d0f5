"""Whole files: read without following or waiting, written whole or not at all."""

import os
import socket
from pathlib import Path

import pytest

from codegenie.eval.system.file_writing import replace_file, sync_path, written_beside
from codegenie.eval.system.files import UnsafeTree, read_whole_file


def test_a_file_is_read_whole_and_a_missing_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_whole_file(tmp_path / "file", 7) == b"content"
    assert read_whole_file(tmp_path / "missing", 7) is None


def test_a_file_over_its_cap_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(UnsafeTree, match="larger than 6 bytes"):
        read_whole_file(tmp_path / "file", 6)


@pytest.mark.parametrize("kind", ["link", "loop", "pipe", "directory", "socket", "device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "link":
            (tmp_path / "file").write_bytes(b"content")
            path.symlink_to(tmp_path / "file")
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "socket":
            listening.bind(str(path))
        else:
            path = Path(os.devnull)
        with pytest.raises(UnsafeTree, match="not a regular file"):
            read_whole_file(path, 100)


def test_other_trouble_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(NotADirectoryError):
        read_whole_file(tmp_path / "file" / "below", 100)


def test_replacing_leaves_no_temporary_file(tmp_path: Path) -> None:
    for durable in (True, False):
        replace_file(tmp_path / "file", b"content", durable=durable)
        assert (tmp_path / "file").read_bytes() == b"content"
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_is_replaced_and_what_it_names_stays(tmp_path: Path) -> None:
    (tmp_path / "named").write_bytes(b"mine")
    (tmp_path / "file").symlink_to(tmp_path / "named")
    replace_file(tmp_path / "file", b"content")
    assert (tmp_path / "named").read_bytes() == b"mine"
    assert not (tmp_path / "file").is_symlink()


def test_a_failure_behind_the_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "file", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_writers_of_one_name_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with written_beside(path, [b"one"]) as one, written_beside(path, [b"t", b"wo"]) as two:
        assert one != two
        assert (one.read_bytes(), two.read_bytes()) == (b"one", b"two")
    assert list(tmp_path.iterdir()) == []


def test_directories_can_be_synced_and_links_are_not_followed(tmp_path: Path) -> None:
    sync_path(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        sync_path(tmp_path / "link")
