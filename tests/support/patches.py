"""A second reading of git's patch format, written apart from the code that writes it: it applies a patch.

It takes what git documents and refuses everything else, so that a patch which only looks right is not taken.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from blake3 import blake3
from hypothesis import strategies as st

from codegenie.eval.collection.patches import FileChange, Side

Tree = dict[str, tuple[bytes, bool]]
"""Files by path: the content, and whether it can be executed."""

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_MODES = {b"100644": False, b"100755": True}


def applied(patch: bytes, before: Tree) -> Tree:
    """Return the files after a patch. Raises AssertionError if it does not fit or is not in git's format."""
    removed: set[str] = set()
    written: Tree = {}
    for section in _sections(patch):
        source, target, content, executable = section.result(before)
        assert target not in written, f"{target} is written twice"
        if source is not None and source != target:
            removed.add(source)
        if target is not None:
            written[target] = content, executable
    assert not removed & written.keys(), "a path is removed and written"
    return {**{path: file for path, file in before.items() if path not in removed}, **written}


class _Section:
    """What a patch says about one file."""

    def __init__(self, lines: list[bytes]) -> None:
        self.head: dict[str, bytes] = {}
        self.names: dict[bytes, str | None] = {}
        self.hunks: list[bytes] = []
        self.binary = False
        self.path = ""
        self._read(lines)

    def _read(self, lines: list[bytes]) -> None:
        words = ("old mode", "new mode", "deleted file mode", "new file mode", "rename from", "rename to")
        for number, line in enumerate(lines[1:], 1):
            word = next((word for word in (*words, "similarity index") if line.startswith(word.encode())), "")
            if word:
                self.head[word] = line[len(word) + 1 : -1]
            elif line[:4] in {b"--- ", b"+++ "}:
                self.names[line[:3]] = _name(line[4:-1].removesuffix(b"\t"))
            elif line.startswith(b"Binary files "):
                self.binary = True
            else:
                assert line.startswith(b"@@ "), line
                self.hunks = lines[number:]
                return

    def result(self, before: Tree) -> tuple[str | None, str | None, bytes, bool]:
        """Return the path before, the path after, the content and whether it can be executed."""
        assert not self.binary, "a patch does not hold what is not text"
        source, target = self._paths()
        old, executable = (b"", False) if source is None else before[source]
        if source is None:
            assert target not in before, f"{target} is new and exists"
        for word in ("old mode", "deleted file mode"):
            assert word not in self.head or _MODES[self.head[word]] == executable
        for word in ("new mode", "new file mode"):
            executable = _MODES[self.head[word]] if word in self.head else executable
        return source, target, _patched(old, self.hunks), executable

    def _paths(self) -> tuple[str | None, str | None]:
        if "rename from" in self.head:
            assert self.head["similarity index"] == b"100%"
            assert not self.names
            return _quoted_name(self.head["rename from"]), _quoted_name(self.head["rename to"])
        both = self.path
        source = None if "new file mode" in self.head else both
        target = None if "deleted file mode" in self.head else both
        assert self.names in ({}, {b"---": source, b"+++": target})
        return source, target


def _sections(patch: bytes) -> Iterator[_Section]:
    lines = _split(patch)
    starts = [number for number, line in enumerate(lines) if line.startswith(b"diff --git ")]
    assert starts[:1] == [0][: len(lines)]
    for start, end in pairwise([*starts, len(lines)]):
        section = _Section(lines[start:end])
        section.path = _same_path(lines[start][len("diff --git ") : -1], renamed="rename to" in section.head)
        yield section


def _split(patch: bytes) -> list[bytes]:
    return [line + b"\n" for line in patch.split(b"\n")[:-1]]


def _same_path(both: bytes, *, renamed: bool) -> str:
    """Return the path that stands twice in a first line: `a/PATH b/PATH`, each in quotes or not."""
    if renamed:
        return ""
    half = len(both) // 2
    first, blank, second = both[:half], both[half : half + 1], both[half + 1 :]
    assert blank == b" "
    path, again = _name(first), _name(second)
    assert path is not None
    assert path == again
    return path


def _name(raw: bytes) -> str | None:
    if raw == b"/dev/null":
        return None
    name = _quoted_name(raw)
    assert name[:2] in {"a/", "b/"}, name
    return name[2:]


def _quoted_name(raw: bytes) -> str:
    text = raw.decode("ascii")
    if not text.startswith('"'):
        assert not re.search(r'[\\"\x00-\x1f\x7f]', text)
        return text
    assert text.endswith('"')
    plain = re.sub(
        r'\\([0-7]{3}|[abtnvfr"\\])',
        lambda match: chr(int(match[1], 8) if match[1].isdigit() else _ESCAPES[match[1]]),
        text[1:-1],
    )
    return plain.encode("latin-1").decode("utf-8", "surrogateescape")


def _patched(old: bytes, hunks: list[bytes]) -> bytes:
    lines = [line + b"\n" for line in old.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    lines = [line for line in lines if line]
    result: list[bytes] = []
    at = 0
    for place, body in _hunks(hunks):
        begin, length, first, count = place
        result += lines[at : begin - (length > 0)]
        at = begin - (length > 0)
        assert first - (count > 0) == len(result)
        taken = [line[1:] for line in body if line[:1] in b" -"]
        made = [line[1:] for line in body if line[:1] in b" +"]
        assert lines[at : at + length] == taken
        assert len(made) == count
        assert len(taken) == length
        result += made
        at += length
    return b"".join([*result, *lines[at:]])


def _hunks(lines: list[bytes]) -> Iterator[tuple[tuple[int, int, int, int], list[bytes]]]:
    body: list[bytes] = []
    place: tuple[int, int, int, int] | None = None
    for line in lines:
        found = _HUNK.fullmatch(line)
        if found is not None:
            if place is not None:
                yield place, body
            begin, length, first, count = found.groups()
            place, body = (int(begin), int(length or 1), int(first), int(count or 1)), []
        elif line == b"\\ No newline at end of file\n":
            body[-1] = body[-1].removesuffix(b"\n")
        else:
            assert line[:1] in b" +-", line
            body.append(line)
    if place is not None:
        yield place, body


def changes_between(before: Tree, after: Tree) -> list[FileChange]:
    """Return the changes from one tree to another, as the code that writes patches takes them."""
    return [
        FileChange(path, _side(before.get(path)), _side(after.get(path)))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _side(file: tuple[bytes, bool] | None) -> Side | None:
    return None if file is None else Side(file[0], file[1], blake3(file[0]).hexdigest())


def _is_tree(tree: Tree) -> bool:
    """Say whether a file system can hold these files: no file is also a folder."""
    return not any(other.startswith(f"{path}/") for path in tree for other in tree)


_PATHS = [
    "a",
    "a/b",
    "a/b/c",
    "b.txt",
    "two words",
    "ünï/cödé.txt",
    'quo"te',
    "back\\slash",
    "d/new\nline",
    "-x",
]
_LINES = [
    b"a\n",
    b"b\n",
    b"c\n",
    b"\n",
    b"-- a\n",
    b"++ b\n",
    b"@@ -1 +1 @@\n",
    b"dos\r\n",
    b"\xc3\xbc\n",
    b" \t\n",
]
_ENDS = [b"", b"end", b"\r"]
_contents = st.tuples(
    st.lists(st.sampled_from(_LINES), max_size=24).map(b"".join), st.sampled_from(_ENDS)
).map(b"".join)
trees = st.dictionaries(st.sampled_from(_PATHS), st.tuples(_contents, st.booleans()), max_size=8).filter(
    _is_tree
)
