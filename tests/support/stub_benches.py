"""A fresh copy of the fixture `stub-task-class`, ways to edit it, and a second opinion on its digests."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

NAME = "stub-task-class"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "bench" / NAME
CASE = "adds_up"
CASES = ("adds_up", "empty_answer", "off_by_one")
NOBODY = 65_534

Edit = Callable[[Path], object]
"""Changes a bench, which it is given as the directory of the task class."""


def copy_stub(root: Path, name: str = NAME) -> Path:
    """Copy the fixture below `root`, which becomes a bench root, and return the copy."""
    return Path(shutil.copytree(FIXTURE, root / name))


def case_of(bench: Path) -> Path:
    """Return the case that tests edit."""
    return bench / "cases" / CASE


def written(path: str, content: str | bytes) -> Edit:
    """Return an edit that gives a file of the bench this content."""
    raw = content.encode() if isinstance(content, str) else content
    return lambda bench: (bench / path).write_bytes(raw)


def replaced(path: str, old: str, new: str) -> Edit:
    """Return an edit that replaces a piece of a file, which must be there."""

    def edit(bench: Path) -> None:
        text = (bench / path).read_text(encoding="utf-8")
        assert old in text
        (bench / path).write_text(text.replace(old, new), encoding="utf-8")

    return edit


def appended(path: str, more: str | bytes) -> Edit:
    """Return an edit that adds to the end of a file."""
    raw = more.encode() if isinstance(more, str) else more
    return lambda bench: (bench / path).write_bytes((bench / path).read_bytes() + raw)


def prepended(path: str, more: str | bytes) -> Edit:
    """Return an edit that adds to the beginning of a file."""
    raw = more.encode() if isinstance(more, str) else more
    return lambda bench: (bench / path).write_bytes(raw + (bench / path).read_bytes())


def removed(path: str) -> Edit:
    """Return an edit that removes a file or a directory."""

    def edit(bench: Path) -> None:
        target = bench / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return edit


def in_place_of(path: str, make: Callable[[Path], object]) -> Edit:
    """Return an edit that removes what is at `path` and makes something else there."""

    def edit(bench: Path) -> None:
        removed(path)(bench)
        make(bench / path)

    return edit


def sparse(size: int) -> Callable[[Path], None]:
    """Return a maker of a file that says it is large and takes no room."""

    def make(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)

    return make


def link(path: str, target: str) -> Edit:
    """Return an edit that makes a symbolic link."""
    return lambda bench: (bench / path).symlink_to(target)


def in_turn(*edits: Edit) -> Edit:
    """Return several edits as one."""

    def edit(bench: Path) -> None:
        for each in edits:
            each(bench)

    return edit


def digested(*edits: Edit) -> Edit:
    """Return the edits as one, after which every digest is current again."""
    return in_turn(*edits, write_manifest)


def write_manifest(bench: Path) -> None:
    """Write cases/digests.yaml by the tests' own arithmetic."""
    cases = bench / "cases"
    names = sorted(entry.name for entry in cases.iterdir() if entry.is_dir())
    text = "".join(f"{name}: blake3:{reference_digest(cases / name)}\n" for name in names)
    (cases / "digests.yaml").write_text(text, encoding="utf-8")


def reference_digest(case: Path) -> str:
    """Hash a case as the reference page of the docs says it, without any code of the harness."""
    paths = sorted(os.fsencode(found.relative_to(case)) for found in case.rglob("*") if found.is_file())
    listing = b"codegenie.eval/case.v1\n"
    for path in paths:
        file = case / os.fsdecode(path)
        content = file.read_bytes()
        executable = b"x" if file.stat().st_mode & 0o111 else b"-"
        listing += len(path).to_bytes(8, "big") + path + executable
        listing += len(content).to_bytes(8, "big") + content
    return blake3(listing).hexdigest()


def everything_below(root: Path) -> list[str]:
    """Name all that lies below a directory, links as links."""
    found = []
    for directory, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(directory, name), root) for name in [*folders, *files]]
    return sorted(found)


@contextmanager
def ordinary_user(directory: Path) -> Iterator[None]:
    """Be an ordinary user who owns `directory`: mode bits mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
