"""Record to canonical bytes to BLAKE3. The only module that hashes records and framed listings.

Everything is length-framed: no two different lists of fields have the same bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from blake3 import blake3

from codegenie.eval.models import Record

DIGEST_PREFIX = "blake3:"
# A call of the hash costs as much as hashing 4 KB, so small files are gathered before they are hashed.
_GATHERED_BYTES = 128 * 1024
# Made once: making one takes a third of the time of encoding a trial.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return the one spelling of a JSON value: sorted keys, no spaces, UTF-8, finite numbers."""
    return _ENCODER.encode(value).encode()


def canonical_pieces(document: dict[str, Any], lists: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the one spelling of a document whose long lists are made item by item.

    `lists` goes from the text that holds the place of a list to its items, in the order in which they stand.
    As one tree of dictionaries, five thousand cases take 20 MB more.
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
    """Hash a JSON value for one purpose; `domain` keeps equal values of two purposes apart."""
    return digest_fields(domain, [canonical_json(value)])


def digest_fields(domain: str, fields: Iterable[bytes]) -> str:
    """Hash a list of byte strings, each framed by its length."""
    hasher = blake3(f"codegenie.eval/{domain}\n".encode())
    for field in fields:
        hasher.update(len(field).to_bytes(8, "big"))
        hasher.update(field)
    return hasher.hexdigest()


class TreeHasher:
    """BLAKE3 over (relative path, executable bit, content) of files fed in order of their path bytes."""

    def __init__(self, domain: str) -> None:
        self._hasher = blake3()
        self._gathered = [f"codegenie.eval/{domain}\n".encode()]
        self._bytes = 0

    def begin(self, path: str, size: int, *, executable: bool) -> None:
        """Open the frame of one file; exactly `size` bytes of content follow."""
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
        """Return the digest of everything fed so far."""
        self._hash_gathered()
        return self._hasher.hexdigest()


def spelled(record: Record) -> bytes:
    """Return the one spelling of a record or of a part of one."""
    return canonical_json(record.model_dump(mode="json"))
