"""The prose of the source: comments, docstrings and messages name the process or the caller that acts."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
# They hide which process, user or caller is meant: the harness, the child, another process, an attacker.
VAGUE = re.compile(r"\b(?:nobody|whoever|somebody|anybody)\b", re.IGNORECASE)
# "It is not a file" is plain, "it is no file" is not; "There is no file" and "it is no longer open" are.
IS_NO = re.compile(r"(?<!\bthere )\b(?:is|are|was|were) no\b(?! longer\b)", re.IGNORECASE)


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


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield each text of more than one word that the code itself holds, with the number of its first line.

    What is put into a text while the program runs is shown as `{}`. A string that is a statement is prose.
    """
    nodes = list(ast.walk(ast.parse(source)))
    not_alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    not_alone |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in not_alone:
            text = words_of(node)
            if len(text.split()) > 1:
                yield node.lineno, text


def words_of(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    value = node.value if isinstance(node, ast.Constant) else None
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def vague_words(source: str, name: str) -> list[str]:
    """Return `file:line: word` for each vague word of the prose, in order of lines."""
    found = {(number, word) for number, text in prose(source) for word in VAGUE.findall(text)}
    return [f"{name}:{number}: {word}" for number, word in sorted(found)]


def unclear_messages(source: str, name: str) -> list[str]:
    """Return `file:line: words` for each vague word and each "is no" of the messages, in order of lines."""
    found = {
        (number, words)
        for number, text in messages(source)
        for pattern in (VAGUE, IS_NO)
        for words in pattern.findall(text)
    }
    return [f"{name}:{number}: {words}" for number, words in sorted(found)]


def offenders(find: Callable[[str, str], list[str]]) -> list[str]:
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    return [
        offender
        for path in files
        for offender in find(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]


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


MESSAGES = '''\
"""A docstring is no message."""

ACCOUNT = "nobody"
PLAIN = "there is no file; it is no longer a file", "There are no cases"
raise ValueError(
    f"{ACCOUNT} is no "
    f"number; ask somebody"
)
print("this is compiled code, which Nobody reads", f"{len('of whoever reads')} files were no texts")
NOTE = b"# Records are no part of your sources."
'''


def test_no_comment_or_docstring_of_the_source_says_nobody_whoever_somebody_or_anybody() -> None:
    found = offenders(vague_words)
    assert not found, "name the process, the user or the caller instead:\n" + "\n".join(found)


def test_no_message_of_the_source_says_nobody_whoever_somebody_or_anybody_or_is_no() -> None:
    found = offenders(unclear_messages)
    assert not found, "say who acts, and `is not a` instead of `is no`:\n" + "\n".join(found)


def test_a_vague_word_is_found_in_comments_docstrings_and_constant_texts_and_not_in_code() -> None:
    assert vague_words(SPECIMEN, "specimen.py") == [
        "specimen.py:1: nobody",
        "specimen.py:3: Whoever",
        "specimen.py:7: somebody",
        "specimen.py:12: anybody",
    ]


def test_an_unclear_message_is_found_in_each_form_of_a_text_and_not_in_names_or_docstrings() -> None:
    assert unclear_messages(MESSAGES, "messages.py") == [
        "messages.py:6: is no",
        "messages.py:6: somebody",
        "messages.py:9: Nobody",
        "messages.py:9: were no",
        "messages.py:9: whoever",
        "messages.py:10: are no",
    ]
