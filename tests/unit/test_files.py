"""Walks, reads and removals: nothing is followed, nothing is taken for what it is not."""

import errno
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codegenie.eval.limits import TreeLimits
from codegenie.eval.system.file_writing import replace_file, write_private
from codegenie.eval.system.files import (
    FoundFile,
    UnsafeTree,
    entry_kinds,
    open_directory,
    read_plain_file,
    walk_files,
)
from codegenie.eval.system.removal import remove_tree
from tests.support.stub_benches import everything_below, ordinary_user

SMALL = TreeLimits(files=3, file_bytes=10, total_bytes=20, depth=3)


def paths(root: Path, limits: TreeLimits = SMALL) -> list[str]:
    return [found.path for found in walk_files(root, limits)]


def refusal(root: Path, limits: TreeLimits = SMALL) -> str:
    with pytest.raises(UnsafeTree) as caught:
        paths(root, limits)
    return str(caught.value)


def make(root: Path, *files: str, content: str = "x") -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(content, encoding="utf-8")


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a directory that an ordinary user can reach, which pytest's own are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    remove_tree(str(path))


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Allow only so many more open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_walk_gives_path_mode_size_and_content(tmp_path: Path) -> None:
    make(tmp_path, "a/b", content="hello")
    make(tmp_path, "c", content="")
    (tmp_path / "c").chmod(0o610)
    found = [(file.path, file.executable, file.size, file.content()) for file in walk_files(tmp_path, SMALL)]
    assert found == [("a/b", False, 5, b"hello"), ("c", True, 0, b"")]


def test_a_large_file_comes_in_pieces_that_make_it_up(tmp_path: Path) -> None:
    for size in (1 << 20, (1 << 20) + 1, (2 << 20) - 1, 2 << 20):
        content = os.urandom(size)
        (tmp_path / "big").write_bytes(content)
        limits = TreeLimits(files=1, file_bytes=size, total_bytes=size, depth=1)
        chunks = [chunk for found in walk_files(tmp_path, limits) for chunk in found.chunks()]
        assert b"".join(chunks) == content
        assert max(map(len, chunks)) <= 1 << 20


@pytest.mark.parametrize("size", [5, 1 << 20, (1 << 20) + 5])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_its_size_while_it_is_read_is_refused(
    tmp_path: Path, size: int, change: int
) -> None:
    (tmp_path / "a").write_bytes(b"x" * (size + change))
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        with pytest.raises(UnsafeTree, match="while it was read"):
            FoundFile("a", executable=False, size=size, descriptor=descriptor).content()
    finally:
        os.close(descriptor)


def test_every_cap_holds_at_its_edge(tmp_path: Path) -> None:
    for name, allowed, beyond in [
        ("files", ["a", "b", "c"], "d"),
        ("depth", ["a/b/c"], "a/b/c2/d"),
    ]:
        root = tmp_path / name
        make(root, *allowed)
        assert paths(root) == allowed
        make(root, beyond)
        assert "more than 3" in refusal(root)
    make(tmp_path / "bytes", "a", "b", content="x" * 10)
    assert paths(tmp_path / "bytes") == ["a", "b"]
    make(tmp_path / "bytes", "c")
    assert "c: makes the tree larger than 20 bytes" in refusal(tmp_path / "bytes")
    make(tmp_path / "bytes", "a", content="x" * 11)
    assert "a: is larger than 10 bytes" in refusal(tmp_path / "bytes")


def test_files_and_directories_are_counted_over_the_whole_tree(tmp_path: Path) -> None:
    make(tmp_path / "files", "a/1", "a/2", "b/1", "b/2")
    assert refusal(tmp_path / "files") == "b/2: is one file more than the 3 allowed"
    for name in ("a/1", "a/2", "b/1", "b/2"):
        (tmp_path / "directories" / name).mkdir(parents=True)
    assert refusal(tmp_path / "directories") == "b: is one directory more than the 3 allowed"


def test_a_path_that_no_copy_could_have_is_refused(tmp_path: Path) -> None:
    limits = TreeLimits(files=9, file_bytes=10, total_bytes=20, depth=9)
    folder = "/".join(["d" * 250] * 4)
    make(tmp_path, f"{folder}/{'f' * 20}")
    assert len(paths(tmp_path, limits)[0]) == 1_024
    make(tmp_path, f"{folder}/{'f' * 21}")
    assert "more than 1024 characters" in refusal(tmp_path, limits)


def test_what_is_no_plain_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    # Opening the pipe for reading would wait for ever.
    makers: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to("/etc/passwd"),
        "pipe": os.mkfifo,
        "caf\u00e9": lambda path: path.touch(),
        " a": lambda path: path.touch(),
    }
    for name, build in makers.items():
        root = tmp_path / str(len(os.listdir(tmp_path)))
        root.mkdir()
        build(root / name)
        assert refusal(root).startswith((name, ascii(name)))


def test_a_file_exchanged_after_it_was_listed_is_refused(tmp_path: Path) -> None:
    exchanges: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to("/etc/passwd"),
        "link to the same file": lambda path: path.symlink_to(tmp_path / "kept link to the same file"),
        "pipe": os.mkfifo,
        "directory": lambda path: path.mkdir(),
        "file with two names": lambda path: os.link(tmp_path / "kept file with two names", path),
        "larger file": lambda path: path.write_bytes(b"y" * (SMALL.file_bytes + 1)),
        "nothing": lambda _path: None,
    }
    for name, build in exchanges.items():
        root = tmp_path / name
        make(root, "a", "b")
        walk = walk_files(root, SMALL)
        assert next(walk).path == "a"
        # Kept under another name, so that its number is not given to what takes its place.
        (root / "b").rename(tmp_path / f"kept {name}")
        build(root / "b")
        with pytest.raises(UnsafeTree, match=r"^b: "):
            next(walk)


def test_a_directory_exchanged_for_a_link_is_not_entered(tmp_path: Path) -> None:
    make(tmp_path / "root", "a", "d/inside")
    make(tmp_path / "secret", "inside")
    walk = walk_files(tmp_path / "root", SMALL)
    assert next(walk).path == "a"
    shutil.rmtree(tmp_path / "root/d")
    (tmp_path / "root/d").symlink_to(tmp_path / "secret")
    with pytest.raises(UnsafeTree, match=r"^d: cannot be opened"):
        next(walk)


def test_a_walk_leaves_no_descriptor_open_however_it_ends(tmp_path: Path) -> None:
    make(tmp_path, "a/b/1", "a/2")
    before = os.listdir("/dev/fd")
    paths(tmp_path)
    next(walk_files(tmp_path, SMALL))
    (tmp_path / "a/b/3").symlink_to("1")
    refusal(tmp_path)
    assert os.listdir("/dev/fd") == before


def test_what_an_ordinary_user_may_not_read_is_refused(home: Path) -> None:
    make(home, "file/a", "listed/a", "searched/a")
    with ordinary_user(home):
        (home / "file/a").chmod(0)
        (home / "listed").chmod(stat.S_IRUSR)
        (home / "searched").chmod(stat.S_IXUSR)
        assert refusal(home / "file") == "a: cannot be opened: Permission denied"
        assert refusal(home / "listed") == "a: cannot be opened: Permission denied"
        assert "Permission denied" in refusal(home / "searched")
        directory = open_directory(home / "listed")
        with pytest.raises(UnsafeTree, match="cannot be examined"):
            read_plain_file(directory, "a", 9)
        os.close(directory)


def test_having_no_descriptors_left_is_not_the_fault_of_the_tree(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    for left in (0, 1, 2):
        with descriptors_left(left), pytest.raises(OSError, match="Too many open files") as caught:
            paths(tmp_path)
        assert caught.value.errno == errno.EMFILE


def test_a_plain_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    make(tmp_path, "a", content="12345")
    os.link(tmp_path / "a", tmp_path / "second")
    make(tmp_path, "b", content="12345")
    (tmp_path / "link").symlink_to("b")
    directory = open_directory(tmp_path)
    try:
        assert read_plain_file(directory, "b", 5) == b"12345"
        assert read_plain_file(directory, "gone", 5) is None
        for name, limit, problem in [
            ("b", 4, "larger than 4"),
            ("a", 5, "hard link"),
            ("link", 5, "not a regular file"),
            (".", 5, "not a regular file"),
        ]:
            with pytest.raises(UnsafeTree, match=problem):
                read_plain_file(directory, name, limit)
    finally:
        os.close(directory)


def test_a_link_is_not_opened_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    for name, problem in {"link": "is a symbolic link", "gone": "No such file"}.items():
        with pytest.raises(UnsafeTree, match=problem):
            open_directory(tmp_path / name)


def test_a_directory_is_listed_by_kind_up_to_its_limit(tmp_path: Path) -> None:
    make(tmp_path, "file", "directory/x")
    (tmp_path / "link").symlink_to("directory")
    directory = open_directory(tmp_path)
    try:
        assert entry_kinds(directory, 3) == {"file": "file", "directory": "directory", "link": "other"}
        with pytest.raises(UnsafeTree, match="more than 2 entries"):
            entry_kinds(directory, 2)
    finally:
        os.close(directory)


def test_a_private_file_is_new_and_only_ours(tmp_path: Path) -> None:
    write_private(f"{tmp_path}/a", (b"one", b"", b"two"))
    write_private(f"{tmp_path}/x", iter([b"run"]), executable=True)
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to("a")
    for taken in ("a", "link"):
        with pytest.raises(FileExistsError):
            write_private(f"{tmp_path}/{taken}", (b"other",))
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_a_file_is_replaced_whole_and_a_link_by_what_was_written(tmp_path: Path) -> None:
    make(tmp_path, "a", "target", content="old")
    (tmp_path / "link").symlink_to("target")
    replace_file(tmp_path / "a", b"new")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "link").read_bytes() == b"new"
    assert (tmp_path / "target").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a", "link", "target"]


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path, "a", content="old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_file(tmp_path / "a", b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_thousand_levels_are_removed_with_few_descriptors(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(1_000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    with descriptors_left(4):
        remove_tree(str(root))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["link to a directory", "link to nothing", "file"])
def test_what_stands_where_a_directory_was_is_removed_and_not_what_it_names(
    tmp_path: Path, kind: str
) -> None:
    make(tmp_path, "kept/a")
    root = tmp_path / "root"
    if kind == "file":
        root.touch()
    else:
        root.symlink_to(tmp_path / ("kept" if kind == "link to a directory" else "gone"))
    remove_tree(str(root))
    assert everything_below(tmp_path) == ["kept", "kept/a"]


@pytest.mark.parametrize("call", ["unlink", "rmdir", "rename", "scandir"])
def test_a_tree_that_changes_while_it_is_removed_is_removed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    make(tmp_path / "root", "a", "b/c/d")
    real, failures = getattr(os, call), [FileNotFoundError(), OSError(errno.ENOTEMPTY, "not empty")]

    def disturbed(*args: object, **kwargs: object) -> object:
        if failures:
            raise failures.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, disturbed)
    remove_tree(str(tmp_path / "root"))
    assert failures == []
    assert os.listdir(tmp_path) == []


def test_nothing_is_removed_twice_without_saying_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_tree(str(tmp_path / "gone"))


def test_what_cannot_be_removed_is_said_and_the_rest_is_gone(home: Path) -> None:
    make(home, "root/locked/a", "root/b")
    locked = home / "root/locked"
    if os.geteuid() == 0:
        with ordinary_user(home):
            os.seteuid(0)
            os.chown(locked, 0, 0)
            os.seteuid(65_534)
            with pytest.raises(PermissionError):
                remove_tree(str(home / "root"))
    else:
        home.chmod(0o555)
        with pytest.raises(PermissionError):
            remove_tree(str(home / "root"))
        home.chmod(0o755)
    assert not (home / "root/b").exists()
