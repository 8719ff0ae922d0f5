"""Which names a document can hold, and how every other name is spelled in it."""

import re

from blake3 import blake3

from codegenie.eval.limits import LIMITS

_SHOWN_CHARACTERS = 80
# What git refuses as part of a path, since on some file systems it means `.git`.
_GIT_FOLDER = re.compile(r"(?:\.git|git~1)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
_PRINTABLE = range(32, 127)
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def is_git_folder(name: str) -> bool:
    """Say whether git would take a name for its own folder. A patch with such a path cannot be applied."""
    return _GIT_FOLDER.fullmatch(name) is not None


def is_odd(name: str) -> bool:
    """Say whether a name cannot stand in a document as it is.

    It is not text, it could mislead a reader, it looks like the spelling of an odd name, or it is git's.
    """
    return not name.isprintable() or name.startswith('"') or is_git_folder(name)


def is_long(path: str) -> bool:
    """Say whether a path has more bytes than a document takes."""
    return len(path.encode("utf-8", "surrogateescape")) > LIMITS.collected.path_bytes


def spelled_path(path: str) -> str:
    """Spell an odd or long path. Two paths never have the same spelling, and none is also a plain path."""
    spelled = f'"{_escaped(path)}"'
    if len(spelled) <= LIMITS.collected.path_bytes:
        return spelled
    digest = blake3(path.encode("utf-8", "surrogateescape")).hexdigest()
    return f'"{_escaped(path)[:_SHOWN_CHARACTERS]}…{digest}"'


def quoted(path: str) -> str:
    """Write a path as git writes it in a patch: in quotes if it has a byte that needs an escape."""
    escaped = _escaped(path)
    return path if escaped == path else f'"{escaped}"'


def _escaped(path: str) -> str:
    return "".join(map(_escape, path.encode("utf-8", "surrogateescape")))


def _escape(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if byte in _PRINTABLE else f"\\{byte:03o}"
