"""A patch in the format of git, from the files before and after. Pure: git itself is never called.

git would run programs that an agent named in its `.git/config`, and it prints nothing at all if a single
directory cannot be opened. The time is linear in the size of the files: difflib alone is quadratic.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codegenie.eval.collection.hunks import Hunk, difference, lines_of
from codegenie.eval.collection.names import quoted
from codegenie.eval.limits import LIMITS

_NO_END = b"\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Side:
    """A file before or after a patch. Its `content` is None if it is not shown; `digest` finds equal ones."""

    content: bytes | None
    executable: bool
    digest: str

    @property
    def mode(self) -> str:
        """Return the mode as git knows it."""
        return "100755" if self.executable else "100644"

    @property
    def is_text(self) -> bool:
        """Say whether the content is shown line by line."""
        return self.content is not None and is_text(self.content)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after; None where there is none."""

    path: str
    before: Side | None
    after: Side | None


def is_text(content: bytes) -> bool:
    """Say whether a content is text: UTF-8 without the NUL that also git takes for a sign of other data."""
    if b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def patch_of(changes: Iterable[FileChange]) -> tuple[bytes, int]:
    """Return the patch of all changes, and how many of them did not fit into its cap."""
    writer = _Writer()
    left_out = 0
    pieces: list[bytes] = []
    room = LIMITS.collected.patch_bytes
    for change, source in _with_renames(sorted(changes, key=lambda change: change.path)):
        piece = b"".join(writer.change(change, source))
        if len(piece) > room:
            left_out += 1
            continue
        room -= len(piece)
        pieces.append(piece)
    return b"".join(pieces), left_out


def _with_renames(changes: list[FileChange]) -> Iterator[tuple[FileChange, FileChange | None]]:
    """Pair each new file with a deleted file of the same content. Empty files are never paired."""
    gone: dict[str, list[FileChange]] = {}
    for change in reversed(changes):
        if change.before is not None and change.after is None and change.before.content != b"":
            gone.setdefault(change.before.digest, []).append(change)
    sources: dict[str, FileChange] = {}
    for change in changes:
        if change.before is None and change.after is not None and gone.get(change.after.digest):
            source = gone[change.after.digest][-1]
            # Not `a` to `a/b`: the file has to make room for a folder of its own name first.
            if not _inside(change.path, source.path) and not _inside(source.path, change.path):
                sources[change.path] = gone[change.after.digest].pop()
    moved = {source.path for source in sources.values()}
    for change in changes:
        if change.path not in moved:
            yield change, sources.get(change.path)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


class _Writer:
    """Writes changes. It compares so many lines of all files together, so that its time is bounded."""

    def __init__(self) -> None:
        self._lines_left = LIMITS.compared_lines

    def change(self, change: FileChange, source: FileChange | None) -> Iterator[bytes]:
        """Yield the lines of one change."""
        old_path = change.path if source is None else source.path
        before = change.before if source is None else source.before
        old, new = quoted(f"a/{old_path}"), quoted(f"b/{change.path}")
        yield f"diff --git {old} {new}\n".encode()
        yield from _modes(before, change.after)
        if source is not None:
            yield b"similarity index 100%\n"
            yield f"rename from {quoted(old_path)}\nrename to {quoted(change.path)}\n".encode()
            return
        if before is not None and change.after is not None and before.digest == change.after.digest:
            return
        names = "/dev/null" if before is None else old, "/dev/null" if change.after is None else new
        yield from self._content(names, before, change.after)

    def _content(self, names: tuple[str, str], before: Side | None, after: Side | None) -> Iterator[bytes]:
        if not all(side is None or side.is_text for side in (before, after)):
            yield f"Binary files {names[0]} and {names[1]} differ\n".encode()
            return
        old, new = _lines(before), _lines(after)
        if old or new:
            yield f"--- {_titled(names[0])}\n+++ {_titled(names[1])}\n".encode()
            yield from self._hunks(old, new)

    def _hunks(self, old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
        """Yield a unified diff. What is too large to be compared is replaced as a whole."""
        found = difference(old, new)
        hunks: Iterable[Hunk[bytes]] = [found.as_one_hunk()]
        if found.size <= min(self._lines_left, LIMITS.collected.compared_lines):
            self._lines_left -= found.size
            hunks = found.hunks()
        for place, lines in hunks:
            yield f"@@ {place} @@\n".encode()
            for mark, line in lines:
                yield mark.encode() + line
                if not line.endswith(b"\n"):
                    yield b"\n" + _NO_END


def _modes(before: Side | None, after: Side | None) -> Iterator[bytes]:
    if before is None and after is not None:
        yield f"new file mode {after.mode}\n".encode()
    elif before is not None and after is None:
        yield f"deleted file mode {before.mode}\n".encode()
    elif before is not None and after is not None and before.mode != after.mode:
        yield f"old mode {before.mode}\nnew mode {after.mode}\n".encode()


def _titled(name: str) -> str:
    """End a name with blanks by a tab, as git does. Otherwise a reader could not tell where the name ends."""
    return f"{name}\t" if " " in name and not name.startswith('"') else name


def _lines(side: Side | None) -> list[bytes]:
    return [] if side is None or side.content is None else lines_of(side.content, b"\n")
