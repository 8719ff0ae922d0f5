"""The outcome store: what agents produced and how rubrics judged it, in separate content-addressed entries.

A key is the hash of everything that decides the value. So a changed rubric does not cause a new (paid) run of
the agent, and a changed agent never gets an old score (threats CH-02). Failures are kept like successes:
repeating only what failed would produce lucky numbers (CH-04). Each entry has a tag that only the owner of
the store can make (CH-01). It is checked on reading: an entry that is damaged or foreign is a miss.
"""

import errno
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3

from codegenie.eval.canonical import canonical_json, digest_fields
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.system.file_writing import make_file_once, replace_file
from codegenie.eval.system.files import UnsafeTree, read_whole_file
from codegenie.eval.system.folders import make_folder

Kind = Literal["outputs", "scores", "executions"]

_SCHEMA = "codegenie.eval.outcome/2"
_KINDS: tuple[Kind, ...] = ("outputs", "scores", "executions")
_ENTRY_BYTES = 64 * 1024 * 1024
_HASH = 64
_KEY = "key"
_KEY_BYTES = 32
# Errors of open() for a symbolic link, for a socket, and for a file that another user owns.
_NOT_OPENED = (errno.ELOOP, errno.ENXIO, errno.EACCES)
_ENTRY = re.compile(r"[0-9a-f]{64}\.json")
_LEFTOVER = re.compile(r"\.[0-9a-f]{64}\.json\.[0-9a-f]{16}\.tmp")
# A write takes milliseconds. A younger temporary file may belong to a run in progress.
_LEFTOVER_SECONDS = 3_600.0
# Clocks differ by less than a day. An entry dated later than that would otherwise stay for ever.
_NEWEST_AGE = -86_400.0
# To say what changed, entries are read one by one. A thousand trials must not read a thousand entries each.
_COMPARED = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The case of an entry. It is written in the entry, so an entry cannot be moved to another case."""

    task_class: str
    case_id: str


@dataclass(frozen=True, slots=True)
class Miss:
    """There was nothing to reuse. `damaged` if there is a file that is not a whole entry of ours."""

    damaged: bool = False


class OutcomeStore:
    """Entries below one directory, shared by many processes: each write is one rename."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made_with: bytes | None = None

    def path(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> Path:
        """Return the path of an entry."""
        return Path(self._file(kind, place, canonical_json(ingredients)))

    def get(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> bytes | Miss:
        """Return the stored value as the JSON text that was stored, or a miss."""
        decided_by = canonical_json(ingredients)
        try:
            raw = read_whole_file(self._file(kind, place, decided_by), _ENTRY_BYTES)
        except (UnsafeTree, OSError):
            return Miss(damaged=True)
        if raw is None:
            return Miss()
        body, head = _whole(raw, self._key()), _head(place, decided_by)
        # Keys are sorted, so everything except the value comes before it and is known byte for byte.
        if body is None or not (body.startswith(head) and body.endswith(b"}")):
            return Miss(damaged=True)
        return body[len(head) : -1]

    def put(self, kind: Kind, place: Place, ingredients: Mapping[str, Any], value: bytes) -> None:
        """Store a JSON value completely or not at all. Raises HarnessFailure if it cannot be written.

        A crash of the machine may damage the entry, which is then a miss.
        """
        decided_by = canonical_json(ingredients)
        body = _head(place, decided_by) + value + b"}"
        path = Path(self._file(kind, place, decided_by))
        tagged = body + b"\n" + _tag(body, self._key())
        try:
            make_folder(path.parent)
            replace_file(path, tagged, durable=False)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            # Something else has this name: a damaged entry. It is not a reason to lose a measurement.
            return
        except OSError as error:
            raise _cannot_write(error, path.parent) from None

    def _key(self) -> bytes:
        if self._made_with is None:
            self._made_with = _owners_key(self._directory)
        return self._made_with

    def changed(self, kind: Kind, place: Place, ingredients: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the ingredients in which the most similar entry differs; empty if there is no entry."""
        found = [
            tuple(key for key in sorted(ingredients) if entry["ingredients"].get(key) != ingredients[key])
            for entry in self._entries(kind, place)
        ]
        return min(found, key=len, default=())

    def prune(self, seconds: float) -> tuple[int, int]:
        """Remove torn leftovers and entries not written for `seconds`; return how many went and stayed.

        Only files with the name and place of an entry are touched, and links are not followed.
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

    def _folder(self, kind: Kind, place: Place) -> str:
        # A string, because building a Path takes longer than reading the entry.
        return f"{self._directory}/{kind}/{place.task_class}/{place.case_id}"

    def _file(self, kind: Kind, place: Place, decided_by: bytes) -> str:
        return f"{self._folder(kind, place)}/{digest_fields(f'outcome.{kind}.v2', [decided_by])}.json"

    def _entries(self, kind: Kind, place: Place) -> Iterator[dict[str, Any]]:
        files = itertools.islice(_listed(self._folder(kind, place)), _COMPARED)
        for file in files:
            with suppress(UnsafeTree, OSError):
                entry = _checked(read_whole_file(file.path, _ENTRY_BYTES) or b"", self._key())
                if entry is not None:
                    yield entry

    def _files(self) -> Iterator[os.DirEntry[str]]:
        for kind in _KINDS:
            for task_class in _listed(str(self._directory / kind)):
                for case in _listed(task_class.path):
                    yield from filter(_is_ours, _listed(case.path))


def _listed(directory: str) -> list[os.DirEntry[str]]:
    """List a real directory; a link to a directory counts as empty."""
    if os.path.islink(directory) or not os.path.isdir(directory):
        return []
    with os.scandir(directory) as scan:
        return list(scan)


def _is_ours(file: os.DirEntry[str]) -> bool:
    named_so = _ENTRY.fullmatch(file.name) or _LEFTOVER.fullmatch(file.name)
    return named_so is not None and not file.is_dir(follow_symlinks=False)


def _head(place: Place, decided_by: bytes) -> bytes:
    """Return the part of an entry before its value."""
    named = canonical_json([place.task_class, place.case_id])
    return b'{"ingredients":%b,"place":%b,"schema":"%b","value":' % (decided_by, named, _SCHEMA.encode())


def _tag(body: bytes, key: bytes) -> bytes:
    """Return the tag after an entry, which only the owner of the store can make."""
    return blake3(body, key=key).hexdigest().encode()


def _whole(raw: bytes, key: bytes) -> bytes | None:
    """Return the body of an entry if its tag is right, else None."""
    body, tag = raw[: -_HASH - 1], raw[-_HASH:]
    if raw[-_HASH - 1 : -_HASH] != b"\n" or not compare_digest(_tag(body, key), tag):
        return None
    return body


def _cannot_write(error: OSError, where: Path) -> HarnessFailure:
    return HarnessFailure(
        f"cannot write the outcome store: {error.strerror}",
        where=str(where),
        hint="free space or name another directory with --cache",
    )


def _owners_key(directory: Path) -> bytes:
    """Return the key of the store's owner. It is random, made once, and never leaves the directory."""
    path = directory / _KEY
    try:
        if not os.path.lexists(path):
            make_folder(directory)
            make_file_once(path, os.urandom(_KEY_BYTES))
        return _read_key(path)
    except OSError as error:
        raise _cannot_write(error, directory) from None


def _read_key(path: Path) -> bytes:
    """Return the key. Raises HarnessFailure if it is not a private file of its length, else OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            raise _not_a_key(path) from None
        raise
    try:
        status = os.fstat(descriptor)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        key = os.read(descriptor, _KEY_BYTES + 1) if ours else b""
    finally:
        os.close(descriptor)
    if len(key) != _KEY_BYTES:
        raise _not_a_key(path)
    return key


def _not_a_key(path: Path) -> HarnessFailure:
    return HarnessFailure(
        f"the key of the outcome store is not a file of {_KEY_BYTES} bytes that only its owner may read",
        where=str(path),
        hint="remove it, and all outcomes are measured again; or name another directory with --cache",
    )


def _checked(raw: bytes, key: bytes) -> dict[str, Any] | None:
    try:
        entry = decode_json(_whole(raw, key) or b"", _ENTRY_BYTES)
    except DecodingRefused:
        return None
    if not isinstance(entry, dict) or entry.keys() != {"schema", "place", "ingredients", "value"}:
        return None
    return entry if entry["schema"] == _SCHEMA and isinstance(entry["ingredients"], dict) else None
