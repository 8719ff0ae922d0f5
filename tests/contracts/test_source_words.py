"""The prose of the source: comments and docstrings name the process or the caller that acts."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
# They hide which process, user or caller is meant: the harness, the child, another process, an attacker.
VAGUE = re.compile(r"\b(?:nobody|whoever|somebody|anybody)\b", re.IGNORECASE)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield each line of each comment, and of each string that is a statement, with its number."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            last = node.end_lineno or node.lineno
            yield from ((number, lines[number - 1]) for number in range(node.lineno, last + 1))


def vague_words(source: str, name: str) -> list[str]:
    """Return `file:line: word` for each vague word, in order of lines."""
    found = {(number, word) for number, text in prose(source) for word in VAGUE.findall(text)}
    return [f"{name}:{number}: {word}" for number, word in sorted(found)]


SPECIMEN = '''\
"""A module that nobody imports.

It is run by path, Whoever starts it.
"""

LIMIT = 3
"""The limit that somebody set."""


def become_nobody() -> str:
    """Take the rights of a user away."""
    # Else anybody could write here.
    name = "nobody"  # the account
    return name
'''


def test_no_comment_or_docstring_of_the_source_says_nobody_whoever_somebody_or_anybody() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    offenders = [
        offender
        for path in files
        for offender in vague_words(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]
    assert not offenders, "name the process, the user or the caller instead:\n" + "\n".join(offenders)


def test_a_vague_word_is_found_in_comments_docstrings_and_constant_texts_and_not_in_code() -> None:
    assert vague_words(SPECIMEN, "specimen.py") == [
        "specimen.py:1: nobody",
        "specimen.py:3: Whoever",
        "specimen.py:7: somebody",
        "specimen.py:12: anybody",
    ]
