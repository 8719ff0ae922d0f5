"""The outcome store: what agents produced and what rubrics said of it, kept apart and content-addressed.

A key is the hash of everything that decides the value, so a changed rubric never re-buys an agent's run and a
changed agent never meets an old score (threats CH-02). Failures are kept like successes: retrying only what
failed is how a lucky number is made (CH-04). Entries are checked when they are read; a damaged one is a miss.
"""

import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3

from codegenie.eval.canonical import canonical_json, digest_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.files import UnsafeTree, read_whole_file, replace_file

Kind = Literal["outputs", "scores"]

_SCHEMA = "codegenie.eval.outcome/1"
_KINDS: tuple[Kind, ...] = ("outputs", "scores")
_ENTRY_BYTES = 64 * 1024 * 1024
_HASH = 64
_ENTRY = re.compile(r"[0-9a-f]{64}\.json")
_LEFTOVER = re.compile(r"\.[0-9a-f]{64}\.json\.[0-9a-f]{16}\.tmp")
# A write takes milliseconds. What is younger than this may belong to a run that is under way.
_LEFTOVER_SECONDS = 3_600.0
# Clocks differ by less than a day. An entry from later than that would stay for ever.
_NEWEST_AGE = -86_400.0
# To say what changed, entries are read one by one; a thousand trials must not read a thousand each.
_COMPARED = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Which case an entry belongs to. It stands in the entry: none can be moved to another case."""

    task_class: str
    case_id: str


@dataclass(frozen=True, slots=True)
class Miss:
    """There was nothing to reuse; `damaged` if only because what lies there is no whole entry."""

    damaged: bool = False


class OutcomeStore:
    """Entries below one directory, shared by many processes: every write is one rename."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> Path:
        """Return where an entry lies."""
        name = digest_json(f"outcome.{kind}.v1", dict(ingredients))
        return self._folder(kind, place) / f"{name}.json"

    def get(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> Any | Miss:  # noqa: ANN401
        """Return the stored value, or a miss."""
        try:
            raw = read_whole_file(self.path(kind, place, ingredients), _ENTRY_BYTES)
        except (UnsafeTree, OSError):
            return Miss(damaged=True)
        if raw is None:
            return Miss()
        entry = _checked(raw)
        if entry is None or entry["place"] != _named(place) or entry["ingredients"] != dict(ingredients):
            return Miss(damaged=True)
        return entry["value"]

    def put(self, kind: Kind, place: Place, ingredients: Mapping[str, Any], value: object) -> None:
        """Store a value whole or not at all. A crash of the machine may damage it, which is a miss."""
        entry = {"schema": _SCHEMA, "place": _named(place), "ingredients": dict(ingredients), "value": value}
        body = canonical_json(entry)
        path = self.path(kind, place, ingredients)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, body + b"\n" + blake3(body).hexdigest().encode(), durable=False)
        except OSError as error:
            raise HarnessFailure(
                f"cannot write the outcome store: {error.strerror}",
                where=str(path.parent),
                hint="make room or name another directory with --cache",
            ) from None

    def changed(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the ingredients in which the entry that shares most of them differs; none if there is none."""
        found = [
            tuple(key for key in sorted(ingredients) if entry["ingredients"].get(key) != ingredients[key])
            for entry in self._entries(kind, place)
        ]
        return min(found, key=len, default=())

    def prune(self, seconds: float) -> tuple[int, int]:
        """Remove entries not written for so long, and torn leftovers; return how many went and stayed.

        Touches only what has the name of an entry and lies where entries lie, and follows no link.
        """
        now = time.time()
        removed = kept = 0
        for file in self._files():
            most = seconds if _ENTRY.fullmatch(file.name) else _LEFTOVER_SECONDS
            with suppress(FileNotFoundError):
                age = now - file.stat(follow_symlinks=False).st_mtime
                if _NEWEST_AGE <= age < most:
                    kept += 1
                else:
                    os.unlink(file.path)
                    removed += 1
        return removed, kept

    def _folder(self, kind: Kind, place: Place) -> Path:
        return self._directory / kind / place.task_class / place.case_id

    def _entries(self, kind: Kind, place: Place) -> Iterator[dict[str, Any]]:
        files = itertools.islice(_listed(str(self._folder(kind, place))), _COMPARED)
        for file in files:
            with suppress(UnsafeTree, OSError):
                entry = _checked(read_whole_file(Path(file.path), _ENTRY_BYTES) or b"")
                if entry is not None:
                    yield entry

    def _files(self) -> Iterator[os.DirEntry[str]]:
        for kind in _KINDS:
            for task_class in _listed(str(self._directory / kind)):
                for case in _listed(task_class.path):
                    yield from filter(_is_ours, _listed(case.path))


def _listed(directory: str) -> list[os.DirEntry[str]]:
    """List a directory that is one and no link to one."""
    if os.path.islink(directory) or not os.path.isdir(directory):
        return []
    with os.scandir(directory) as scan:
        return list(scan)


def _is_ours(file: os.DirEntry[str]) -> bool:
    named_so = _ENTRY.fullmatch(file.name) or _LEFTOVER.fullmatch(file.name)
    return named_so is not None and not file.is_dir(follow_symlinks=False)


def _named(place: Place) -> list[str]:
    return [place.task_class, place.case_id]


def _checked(raw: bytes) -> dict[str, Any] | None:
    body, digest = raw[: -_HASH - 1], raw[-_HASH:]
    if raw[-_HASH - 1 : -_HASH] != b"\n" or blake3(body).hexdigest().encode() != digest:
        return None
    try:
        entry = decode_json(body, _ENTRY_BYTES)
    except DecodingRefused:
        return None
    if not isinstance(entry, dict) or entry.keys() != {"schema", "place", "ingredients", "value"}:
        return None
    return entry if entry["schema"] == _SCHEMA and isinstance(entry["ingredients"], dict) else None
