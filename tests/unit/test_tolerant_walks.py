"""Walks that go on after a refusal, and writes into an open directory: what the fence stands on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from codegenie.eval.limits import TreeLimits
from codegenie.eval.system.file_writing import replace_file_in
from codegenie.eval.system.files import TreeTooLarge, UnsafeTree, open_directory, open_plain_file, walk_files
from tests.support.stub_benches import everything_below


def make(root: Path, *files: str, content: str = "x") -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(content, encoding="utf-8")


def test_a_walk_that_is_told_to_go_on_leaves_out_what_it_refuses(tmp_path: Path) -> None:
    make(tmp_path, "a", "b/c", "b/d")
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "b/\x1b").touch()
    make(tmp_path, "b/large", content="x" * 11)
    make(tmp_path, "1/2/3/deep")
    limits = TreeLimits(files=9, file_bytes=10, total_bytes=20, depth=3)
    refused: list[str] = []

    found = [file.path for file in walk_files(tmp_path, limits, lambda unsafe: refused.append(unsafe.path))]

    assert found == ["a", "b/c", "b/d"]
    assert refused == ["link", "1/2/3", r"b/'\x1b'", "b/large"]


@pytest.mark.parametrize(
    "limits",
    [
        TreeLimits(files=3, file_bytes=10, total_bytes=20, depth=3),
        TreeLimits(files=9, file_bytes=10, total_bytes=3, depth=3),
    ],
    ids=["files", "bytes"],
)
def test_a_cap_on_the_whole_tree_ends_also_a_walk_that_goes_on(tmp_path: Path, limits: TreeLimits) -> None:
    make(tmp_path, "a", "b", "c", "d")

    with pytest.raises(TreeTooLarge):
        list(walk_files(tmp_path, limits, lambda _unsafe: None))


def test_a_file_is_replaced_in_an_open_directory_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine", encoding="utf-8")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").symlink_to(tmp_path / "outside")
    directory = open_directory(tmp_path / "in")
    try:
        replace_file_in(directory, "x", b"new")
        (tmp_path / "in/y").mkdir()
        with pytest.raises(IsADirectoryError):
            replace_file_in(directory, "y", b"new")
    finally:
        os.close(directory)

    assert everything_below(tmp_path / "in") == ["x", "y"]
    assert (tmp_path / "in/x").read_bytes() == b"new"
    assert (tmp_path / "outside").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("kind", ["link", "pipe", "second name", "directory"])
def test_only_a_plain_file_is_opened_to_be_changed(kind: str, tmp_path: Path) -> None:
    make(tmp_path, "file")
    path = tmp_path / "x"
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to("file"),
        "pipe": lambda: os.mkfifo(path),
        "second name": lambda: os.link(tmp_path / "file", path),
        "directory": path.mkdir,
    }
    makers[kind]()
    directory = open_directory(tmp_path)
    try:
        with pytest.raises(UnsafeTree), open_plain_file(directory, "x"):
            pass
    finally:
        os.close(directory)
