"""Collects what an agent changed in its workspace, from a descriptor, when nothing in there is alive.

First every file that the agent got is looked up by its name, then everything else is walked. So a download of
a million files hides no change of a file that was there before.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from codegenie.eval.collection.entries import (
    NotAFile,
    OpenFile,
    kind_of,
    link_target,
    names_in,
    open_file,
    open_folder,
    open_workspace,
    status_of,
)
from codegenie.eval.collection.gathering import Gathering
from codegenie.eval.collection.names import is_long, is_odd
from codegenie.eval.collection.records import Collected, CollectOptions, Original, OriginalFile

_CHUNK = 1 << 20
_GIT = ".git"


def collect(workspace: int, original: Original, options: CollectOptions | None = None) -> Collected:
    """Return what was changed below a directory descriptor. Whatever was left there raises nothing.

    `original` has the files that were there at the beginning.
    """
    options = options or CollectOptions()
    excluded = {top for top in set(map(_top, original)) if _is_excluded(top, options)}
    known = {path: file for path, file in original.items() if _top(path) not in excluded}
    gathering = Gathering(known, options)
    try:
        root = open_workspace(workspace)
    except OSError:
        for path in sorted(known):
            gathering.withheld(path, {"kind": "unreadable"})
        gathering.name(".", {"kind": "unreadable"})
        return gathering.collected()
    try:
        collection = _Collection(root, known, options, gathering)
        collection.look_up()
        collection.walk()
    finally:
        os.close(root)
    return gathering.collected()


def collect_folder(path: Path, original: Original, options: CollectOptions | None = None) -> Collected:
    """Collect from a path. If it is not a folder any more, everything that the agent got is gone."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        gathering = Gathering(original, options or CollectOptions())
        for name in sorted(original):
            gathering.gone(name)
        return gathering.collected()
    try:
        return collect(descriptor, original, options)
    finally:
        os.close(descriptor)


def _top(path: str) -> str:
    return path.split("/", 1)[0]


def _is_excluded(name: str, options: CollectOptions) -> bool:
    return name == _GIT or any(fnmatchcase(name, pattern) for pattern in options.exclude)


@dataclass(slots=True)
class _Folder:
    """An open folder of the walk, and its entries that were not visited yet."""

    descriptor: int
    prefix: str
    names: Iterator[str]
    may_be_folders: set[str]


class _Found(NamedTuple):
    """An entry that was a regular file when it was examined."""

    folder: int
    name: str
    status: os.stat_result


class _Collection:
    """One pass over the files that the agent got, and one walk over all the rest."""

    def __init__(self, root: int, original: Original, options: CollectOptions, to: Gathering) -> None:
        self._root = root
        self._original = original
        parents = {path.rpartition("/")[0] for path in original}
        self._folders = {folder for parent in parents for folder in _folders_above(f"{parent}/")}
        self._options = options
        self._limits = options.limits
        self._to = to
        # A file with a second name outside was not made by the agent, unless it belongs to the same user.
        self._owner = os.fstat(root).st_uid

    # The files that the agent got.

    def look_up(self) -> None:
        """Compare every file that the agent got with what is there now."""
        chain = _Chain(self._root)
        try:
            for path in sorted(self._original):
                if self._to.is_late:
                    self._to.withheld(path, {"kind": "over_total"})
                else:
                    self._look_at(path, chain)
        finally:
            chain.close()

    def _look_at(self, path: str, chain: "_Chain") -> None:
        folder, _, name = path.rpartition("/")
        try:
            descriptor = chain.folder(folder)
            status = None if descriptor is None else status_of(descriptor, name)
        except OSError:
            self._to.withheld(path, {"kind": "unreadable"})
            return
        kind = "nothing" if status is None else kind_of(status)
        if descriptor is None or status is None or kind == "folder":
            self._to.gone(path)
        elif kind == "file":
            self._read(_Found(descriptor, name, status), path)
        else:
            self._to.replaced(path, _typed(descriptor, name, kind))

    # Everything else.

    def walk(self) -> None:
        """Visit every entry that was not there at the beginning, folder by folder, in order of names."""
        stack: list[_Folder] = []
        self._enter(stack, os.dup(self._root), "")
        try:
            while stack and not self._to.is_late:
                name = next(stack[-1].names, None)
                if name is None:
                    os.close(stack.pop().descriptor)
                else:
                    self._visit(stack, name)
            if stack:
                self._to.name(".", {"kind": "over_total"})
        finally:
            for folder in stack:
                os.close(folder.descriptor)

    def _enter(self, stack: list[_Folder], descriptor: int, prefix: str) -> None:
        try:
            listing = names_in(descriptor, self._to.entries_left)
        except OSError:
            os.close(descriptor)
            self._to.name(prefix[:-1] or ".", {"kind": "unreadable"})
            return
        self._to.entries_left -= len(listing.names)
        if listing.has_more:
            self._to.name(prefix[:-1] or ".", {"kind": "over_total"})
        stack.append(_Folder(descriptor, prefix, iter(listing.names), listing.folders))

    def _visit(self, stack: list[_Folder], name: str) -> None:
        folder = stack[-1]
        path = folder.prefix + name
        # A file that the agent got was looked up before.
        if path in self._original and name not in folder.may_be_folders:
            return
        if not folder.prefix and _is_excluded(name, self._options):
            return
        try:
            status = status_of(folder.descriptor, name)
            kind = None if status is None else kind_of(status)
        except OSError:
            status, kind = None, "unreadable"
        if kind is None or (path in self._original and kind != "folder"):
            return
        if path not in self._folders and (is_odd(name) or is_long(path)):
            self._to.name(path, {"kind": "odd_name"})
        elif kind == "folder":
            self._descend(stack, name, path)
        elif status is not None and kind == "file":
            self._read(_Found(folder.descriptor, name, status), path)
        else:
            self._to.name(path, _typed(folder.descriptor, name, kind))

    def _descend(self, stack: list[_Folder], name: str, path: str) -> None:
        if len(stack) > self._limits.depth:
            self._to.name(path, {"kind": "too_deep"})
            return
        try:
            descriptor = open_folder(stack[-1].descriptor, name)
        except OSError:
            self._to.name(path, {"kind": "unreadable"})
            return
        self._enter(stack, descriptor, f"{path}/")

    # One file.

    def _read(self, found: _Found, path: str) -> None:
        """Take a file, unless it is as the agent got it."""
        try:
            file = open_file(*found)
            try:
                self._take(file, path)
            finally:
                os.close(file.descriptor)
        except NotAFile as other:
            entry = _typed(found.folder, found.name, other.kind)
            if path in self._original:
                self._to.replaced(path, entry)
            else:
                self._to.name(path, entry)
        except OSError:
            self._to.withheld(path, {"kind": "unreadable"})

    def _take(self, file: OpenFile, path: str) -> None:
        size, executable = file.status.st_size, bool(file.status.st_mode & 0o111)
        if file.status.st_nlink > 1 and file.status.st_uid != self._owner:
            self._to.withheld(path, {"kind": "unreadable"}, executable=executable)
            return
        original = self._original.get(path)
        if size > self._limits.file_bytes:
            if original is None or not self._is_unchanged(file, original):
                self._to.withheld(path, {"kind": "too_large", "size": size}, executable=executable)
            return
        # One byte more than allowed: the file may have grown since.
        content = _read_up_to(file, self._limits.file_bytes + 1)
        if len(content) > self._limits.file_bytes:
            self._to.withheld(path, {"kind": "too_large", "size": len(content)}, executable=executable)
        elif original is None or not original.is_same(content, executable=executable):
            self._to.content(path, content, executable=executable)

    def _is_unchanged(self, file: OpenFile, original: OriginalFile) -> bool:
        """Compare a file that is too large to be taken by its digest."""
        executable = bool(file.status.st_mode & 0o111)
        if (file.status.st_size, executable) != (original.size, original.executable):
            return False
        hasher, left = blake3(), original.size
        while left and not self._to.is_late:
            chunk = os.read(file.descriptor, min(left, _CHUNK))
            if not chunk:
                return False
            hasher.update(chunk)
            left -= len(chunk)
        return not left and hasher.hexdigest() == original.digest


class _Chain:
    """The open folders from the root to the file that is looked up, one descriptor for each level."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._open: list[tuple[str, int | None]] = []

    def folder(self, path: str) -> int | None:
        """Return a descriptor of a folder; None if it is not there, or not a folder any more.

        Raises OSError if it cannot be opened.
        """
        if self._open and self._open[-1][0] == path:
            return self._open[-1][1]
        wanted = _folders_above(f"{path}/") if path else []
        while self._open and self._open[-1][0] not in wanted:
            self._leave()
        for folder in wanted[len(self._open) :]:
            self._open.append((folder, self._below(folder.rpartition("/")[2])))
        return self._open[-1][1] if self._open else self._root

    def _below(self, name: str) -> int | None:
        parent = self._open[-1][1] if self._open else self._root
        status = None if parent is None else status_of(parent, name)
        if parent is None or status is None or kind_of(status) != "folder":
            return None
        return open_folder(parent, name)

    def _leave(self) -> None:
        _, descriptor = self._open.pop()
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close every folder that is open."""
        while self._open:
            self._leave()


def _folders_above(path: str) -> list[str]:
    """Name the folders above a path, outermost first."""
    return list(accumulate(path.split("/")[:-1], lambda above, name: f"{above}/{name}"))


def _typed(folder: int, name: str, kind: str) -> dict[str, str]:
    if kind == "folder":
        # It was a file a moment ago. Something in the workspace is alive, and what it does is not followed.
        return {"kind": "unreadable"}
    if kind != "symlink":
        return {"kind": kind}
    try:
        return {"kind": kind, "target": link_target(folder, name)}
    except OSError:
        return {"kind": "unreadable"}


def _read_up_to(file: OpenFile, most: int) -> bytes:
    """Read to the end, or so many bytes."""
    pieces: list[bytes] = []
    # One byte more than the file has. Python allocates what a read asks for, and a megabyte for each of a
    # thousand small files would take longer than all the reads.
    asked = min(most, file.status.st_size + 1)
    while asked:
        pieces.append(os.read(file.descriptor, asked))
        most -= len(pieces[-1])
        # A read that returns less has met the end of the file.
        asked = min(most, _CHUNK) if len(pieces[-1]) == asked else 0
    return b"".join(pieces)
