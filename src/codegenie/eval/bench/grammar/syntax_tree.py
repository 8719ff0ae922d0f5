"""One Python file of a bench as a syntax tree; it is never compiled and never run (threats BL-01, BL-07)."""

import ast
import re
import warnings
from typing import NoReturn

from codegenie.eval.bench.grammar.problems import Problem, Refused, Topic, quoted
from codegenie.eval.decoding import decode_source
from codegenie.eval.errors import BenchInvalid, DecodingRefused
from codegenie.eval.limits import LIMITS

_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8_NAMES = {"utf-8", "utf8", "utf_8", "utf-8-unix"}
_LINE_END = re.compile(r"\r\n|\r|\n")  # Python's: a cookie after a lone carriage return counts too
_INTEGER_BITS = 64
COMPILED_CODE = re.compile(r"(^|/)__pycache__/|\.(pyc|pyo|so|pyd|dylib)$")


def pycache_hint(path: str) -> str | None:
    """Say where a `__pycache__` on this path comes from and what to do, since its owner did not make it."""
    if "__pycache__" not in path.split("/"):
        return None
    return (
        "Python makes __pycache__ when it imports or compiles the files beside it: remove the directory, and"
        " start Python with -B or with PYTHONDONTWRITEBYTECODE=1"
    )


def foreign_encoding(text: str) -> str | None:
    """Return the encoding that a Python file declares, if it is another than the one it is reviewed in."""
    for line in _LINE_END.split(text, 2)[:2]:
        cookie = _COOKIE.match(line)
        if cookie and cookie[1].lower() not in _UTF8_NAMES:
            return cookie[1]
    return None


def check_reviewable(path: str, content: bytes) -> None:
    """Refuse a file of a rubric in which Python finds other code than a reviewer sees.

    In UTF-7 a comment can hold a line end, and behind it code that only Python sees.
    """
    if COMPILED_CODE.search(path):
        raise BenchInvalid(
            "is compiled code, which a reviewer cannot read; remove it", where=path, hint=pycache_hint(path)
        )
    encoding = foreign_encoding(content.decode("latin-1")) if path.endswith(".py") else None
    if encoding:
        raise BenchInvalid(f"declares the encoding {quoted(encoding)}", where=path, hint="write it as UTF-8")


class SourceFile:
    """A small Python file, its tree, and the error type of its kind."""

    def __init__(self, raw: bytes, name: str, error: type[BenchInvalid]) -> None:
        self._name = name
        self._error = error
        try:
            text = decode_source(raw, LIMITS.python_bytes)
        except DecodingRefused as refusal:
            raise self._refused(refusal.message, refusal.line, refusal.hint, "encoding") from None
        encoding = foreign_encoding(text)
        if encoding:
            raise self._refused(
                f"declares the encoding {quoted(encoding)}", None, "write it as UTF-8", "encoding"
            )
        self.body = self._parse(text)

    def _refused(self, message: str, line: int | None, hint: str | None, topic: Topic = "form") -> Refused:
        return Refused(Problem(self._error, message, self._name, line, hint, topic))

    def _parse(self, text: str) -> list[ast.stmt]:
        try:
            with warnings.catch_warnings():
                # A warning would quote the bench's text on our stderr.
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as problem:
            raise self._refused(f"is not Python: {problem.msg}", problem.lineno or 1, None) from None
        except (ValueError, RecursionError, MemoryError):
            raise self._refused("is nested too deeply or holds a NUL", None, None) from None
        self._check_nodes(tree)
        return tree.body

    def _check_nodes(self, tree: ast.Module) -> None:
        level: list[ast.AST] = [tree]
        for _ in range(LIMITS.nesting):
            level = [child for node in level for child in ast.iter_child_nodes(node)]
            for node in level:
                # 16 KB of hexadecimal digits are an integer that Python itself refuses to print.
                if isinstance(node, ast.Constant) and _bits(node.value) > _INTEGER_BITS:
                    self.refuse(node, f"holds an integer of more than {_INTEGER_BITS} bits")
        if level:
            raise self._refused("is nested too deeply", None, None)

    def refuse(self, node: ast.AST, problem: str, topic: Topic = "form") -> NoReturn:
        """Refuse one part of the file, with its line."""
        hint = "only the literal form in docs/reference/bench.md is read"
        raise self._refused(problem, getattr(node, "lineno", 1), hint, topic)


def _bits(value: object) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def is_docstring(node: ast.stmt) -> bool:
    """Say whether a statement is nothing but a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
