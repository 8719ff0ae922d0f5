"""Turn a record into canonical bytes and hash them with BLAKE3.

This is the only module that hashes records and framed listings. Every field is preceded by its length, so
two different lists of fields never have the same bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from blake3 import blake3

from codegenie.eval.models import Record

DIGEST_PREFIX = "blake3:"
# One call of the hash costs as much as hashing 4 KB, so small files are gathered before they are hashed.
_GATHERED_BYTES = 128 * 1024
# One encoder for all calls: making one takes a third of the time of encoding a trial.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return the canonical form of a JSON value: sorted keys, no spaces, UTF-8, finite numbers."""
    return _ENCODER.encode(value).encode()


def canonical_pieces(document: dict[str, Any], lists: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the canonical form of a document whose long lists are produced item by item.

    `lists` maps the placeholder text of a list to its items, in the order in which they appear in the
    document. Five thousand cases as one tree of dictionaries would take 20 MB more.
    """
    rest = _ENCODER.encode(document)
    for place, items in lists.items():
        before, _, rest = rest.partition(_ENCODER.encode(place))
        yield before.encode() + b"["
        for number, item in enumerate(items):
            yield b"," + item if number else item
        yield b"]"
    yield rest.encode()


def digest_json(domain: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Hash a JSON value for one purpose. Equal values with different `domain` have different hashes."""
    return digest_fields(domain, [canonical_json(value)])


def digest_fields(domain: str, fields: Iterable[bytes]) -> str:
    """Hash a list of byte strings. Each is preceded by its length."""
    hasher = blake3(f"codegenie.eval/{domain}\n".encode())
    for field in fields:
        hasher.update(len(field).to_bytes(8, "big"))
        hasher.update(field)
    return hasher.hexdigest()


class TreeHasher:
    """BLAKE3 over (relative path, executable bit, content) of files, given in order of their path bytes."""

    def __init__(self, domain: str) -> None:
        self._hasher = blake3()
        self._gathered = [f"codegenie.eval/{domain}\n".encode()]
        self._bytes = 0

    def begin(self, path: str, size: int, *, executable: bool) -> None:
        """Open the frame of one file. Exactly `size` bytes of content must follow."""
        name = path.encode()
        mode = b"x" if executable else b"-"
        self._gathered.append(len(name).to_bytes(8, "big") + name + mode + size.to_bytes(8, "big"))

    def content(self, chunk: bytes) -> None:
        """Add bytes of the file whose frame is open."""
        self._gathered.append(chunk)
        self._bytes += len(chunk)
        if self._bytes >= _GATHERED_BYTES:
            self._hash_gathered()

    def _hash_gathered(self) -> None:
        self._hasher.update(b"".join(self._gathered))
        self._gathered.clear()
        self._bytes = 0

    def hexdigest(self) -> str:
        """Return the digest of everything given so far."""
        self._hash_gathered()
        return self._hasher.hexdigest()


def spelled(record: Record) -> bytes:
    """Return the canonical bytes of a record or of a part of one."""
    return canonical_json(record.model_dump(mode="json"))
