"""The parts of a system's identity beside its name: its variables and its syntax tree."""

import ast
import hashlib
import os
import warnings
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import HarnessFailure, SutSpecInvalid
from codegenie.eval.system.file_writing import make_file_once
from codegenie.eval.system.files import UnsafeTree, read_whole_file
from codegenie.eval.system.folders import make_folder

SALT = "salt"
_SALT_BYTES = 32
# A syntax tree takes a hundred times the memory of its text.
_LARGEST_SOURCE = 4 * 1024 * 1024
# These fields say how a value was written, which does not change its meaning.
_FORM_ONLY = {"kind", "type_comment", "type_ignores"}


def variable_fingerprint(salt: bytes, name: str, value: str) -> str:
    """Return 128 bits that tell two values apart, and reveal neither without the salt of the log."""
    text = f"{name}={value}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16, key=salt).hexdigest()


def log_salt(directory: Path, *, create: bool) -> bytes | None:
    """Return the secret that the fingerprints of a log are made with; None if the log has none.

    It lies beside the records and is not part of a bundle, because verification does not need it. Raises
    HarnessFailure if the file is damaged or cannot be read or made.
    """
    path = directory / SALT
    try:
        salt = read_whole_file(path, _SALT_BYTES)
        if salt is None and create:
            make_folder(directory)
            make_file_once(path, os.urandom(_SALT_BYTES))
            salt = read_whole_file(path, _SALT_BYTES)
    except (OSError, UnsafeTree) as error:
        problem = getattr(error, "strerror", None) or f"it {getattr(error, 'problem', '')}"
        raise HarnessFailure(f"cannot keep the salt of the log: {problem}", where=str(path)) from None
    if salt is not None and len(salt) != _SALT_BYTES:
        raise HarnessFailure(
            "the salt of the log is not whole", where=str(path), hint="restore it from a copy"
        )
    return salt


def syntax_digest(source: bytes) -> str | None:
    """Hash the meaning of a Python module, without comments, layout and strings that are statements.

    None if it is not valid Python; the child reports that. The module is parsed and never run. The form is
    our own and not that of `ast.dump`, which changes from one Python to the next. Raises SutSpecInvalid if
    the module is too long or nested too deep.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = None if len(source) > _LARGEST_SOURCE else ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        tree = None
    if tree is None:
        # A hash of its bytes would make it another candidate with every new comment.
        raise SutSpecInvalid(
            "the module is too long or nested too deeply to be compared with others",
            hint=f"keep its source below {_LARGEST_SOURCE} bytes, and put large texts into other files",
        )
    hasher = blake3(b"codegenie.eval/syntax.v1\n")
    # Our own stack instead of recursion: a long sum is a deep tree.
    waiting: list[object] = [tree]
    while waiting:
        piece = waiting.pop()
        words, inner = _opened(piece)
        for word in words:
            raw = word.encode("utf-8", "surrogatepass")
            hasher.update(len(raw).to_bytes(8, "big") + raw)
        waiting.extend(reversed(inner))
    return hasher.hexdigest()


def _opened(piece: object) -> tuple[list[str], list[object]]:
    """Return the words of one piece of a tree, and the pieces in it that follow."""
    if isinstance(piece, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(piece) if _says_something(name, value)]
        words = ["node", type(piece).__name__, *(name for name, _ in fields)]
        return words, [_without_texts(value) for _, value in fields]
    if isinstance(piece, list):
        return ["list", str(len(piece))], list(piece)
    # Python cannot print an integer of more than 4,300 decimal digits, but it prints any in base 16.
    written = hex(piece) if isinstance(piece, int) else repr(piece)
    return ["value", type(piece).__name__, written], []


def _says_something(name: str, value: object) -> bool:
    return name not in _FORM_ONLY and value is not None and value != []


def _without_texts(value: object) -> object:
    """Leave out statements that are constants: docstrings, and comments in the form of strings."""
    if not isinstance(value, list):
        return value
    return [one for one in value if not _is_text(one)]


def _is_text(statement: object) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
