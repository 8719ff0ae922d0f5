"""Find what a reviewer cannot see: hidden characters, other normal forms, look-alike names (threat BL-17)."""

import io
import itertools
import re
import tokenize
import unicodedata
from collections.abc import Iterator

from codegenie.eval.bench.grammar import foreign_encoding
from codegenie.eval.fence.credentials import find_credentials
from codegenie.eval.fence.findings import Notes, Spot
from codegenie.eval.limits import LIMITS
from codegenie.eval.wording import counted

_PLAIN_BYTES = bytes([*range(0x20, 0x7F), 0x09, 0x0A, 0x0D])
_LONE_RETURN = re.compile(r"\r(?!\n)")
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Zl", "Zp"}
# Letters and marks that show nothing, with or without width: fillers, joiners, variation selectors for
# ideographs (whole texts were smuggled with them), the blank Braille pattern.
_HIDDEN_LETTERS = {"\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u2800", "\u3164", "\uffa0"}
_HIDDEN_LETTERS |= {chr(code) for code in (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))}
# Each is one more pass over a text of up to 32 MB.
_NAMED_CHARACTERS = 8
# Unicode's own measure of safe text. Sorting marks takes quadratic time: 34 s for 80,000 (CPython 3.11).
_MARKS_IN_A_ROW = 30
_ALLOWED = {"\n", "\t", "\r"}
_WORD = re.compile(r"[^\W\d]\w*")
# Scripts whose letters are often mixed with Latin letters in names, and never look like them.
_BESIDE_LATIN = {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}


def inspect_text(notes: Notes, path: str, raw: bytes, *, required: bool) -> None:
    """Check one file. A file that is not text is skipped, unless it is `required` to be text."""
    for found in find_credentials(raw):
        before = raw[: found.start].decode("utf-8", "replace")
        message = f"holds what looks like {found.kind} ({found.length} characters){_often(found.times)}"
        notes.add("F080", _spot(path, before, len(before)), message)
    if raw.isascii() and not raw.translate(None, _PLAIN_BYTES):
        text = raw.decode("ascii")
    else:
        problem = _no_text(raw)
        if problem and required:
            notes.add("F073", path, problem)
        if problem:
            return
        text = raw.decode("utf-8")
        _inspect_characters(notes, path, text)
    if "\r" in text and (lone := _LONE_RETURN.search(text)):
        notes.add("F070", _spot(path, text, lone.start()), "holds U+000D CARRIAGE RETURN without a line end")
    if path.endswith(".py"):
        _inspect_python(notes, path, text, declared=required)


def is_plain_text(raw: bytes) -> bool:
    """Say whether a reviewer and Python read the same characters in a file."""
    return _no_text(raw) is None and foreign_encoding(raw.decode("utf-8")) is None


def _no_text(raw: bytes) -> str | None:
    if b"\0" in raw:
        return "holds a NUL and is not text"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    return None


def _spot(path: str, text: str, index: int) -> Spot:
    return Spot(path, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _often(times: int) -> str:
    return f", {times} times" if times > 1 else ""


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or char in _HIDDEN_LETTERS


def _inspect_characters(notes: Notes, path: str, text: str) -> None:
    hidden = sorted(char for char in set(text) - _ALLOWED if _is_hidden(char))
    for char in hidden[:_NAMED_CHARACTERS]:
        name = unicodedata.name(char, "a control character")
        message = f"holds U+{ord(char):04X} {name}{_often(text.count(char))}"
        notes.add("F070", _spot(path, text, text.index(char)), message)
    if len(hidden) > _NAMED_CHARACTERS:
        notes.add(
            "F070",
            path,
            f"holds {counted(len(hidden) - _NAMED_CHARACTERS, 'more kind')} of invisible characters",
        )
    marks = "".join(char for char in set(text) if unicodedata.combining(char))
    if marks and (run := re.search(f"[{re.escape(marks)}]{{{_MARKS_IN_A_ROW + 1}}}", text)):
        message = f"holds more than {_MARKS_IN_A_ROW} combining marks in a row"
        notes.add("F071", _spot(path, text, run.start()), message)
    elif not unicodedata.is_normalized("NFC", text):
        line, column = next(_not_normal(text), (1, 1))
        notes.add("F071", Spot(path, line, column), "holds text that is not in normal form (NFC)")


def _not_normal(text: str) -> Iterator[tuple[int, int]]:
    for number, line in enumerate(text.split("\n"), 1):
        normal = unicodedata.normalize("NFC", line)
        if normal != line:
            same = next((n for n, (a, b) in enumerate(zip(line, normal, strict=False)) if a != b), 0)
            yield number, same + 1


def _inspect_python(notes: Notes, path: str, text: str, *, declared: bool) -> None:
    encoding = foreign_encoding(text)
    if encoding and declared:
        # A reviewer reads UTF-8, but Python runs another encoding: in UTF-7 a comment can hold a statement.
        notes.add("F073", Spot(path, 1), f"declares the encoding {encoding[:40]!a}")
    if text.isascii():
        return
    for word, line, column in _doubtful_names(text):
        notes.add("F072", Spot(path, line, column), f"the name {word[:60]!a} {_doubt(word)}")


def _doubtful_names(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each doubtful name once, with its first place. Comments and strings are not searched."""
    if not any(_doubt(char) or _script(char) not in _BESIDE_LATIN for char in set(text) if char.isalpha()):
        return
    words = (word for word in dict.fromkeys(_WORD.findall(text)) if not word.isascii() and _doubt(word))
    doubtful = set(itertools.islice(words, LIMITS.fence_findings_per_rule))
    for word, line, column in _names(text):
        if word in doubtful:
            doubtful.remove(word)
            yield word, line, column


def _names(text: str) -> Iterator[tuple[str, int, int]]:
    # The tokenizer is slow. A text larger than any real source is searched word by word.
    if len(text) <= LIMITS.rubric_tree.file_bytes:
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError):
            tokens = []
        if tokens:
            yield from (
                (token.string, token.start[0], token.start[1] + 1)
                for token in tokens
                if token.type == tokenize.NAME
            )
            return
    for number, line in enumerate(text.split("\n"), 1):
        yield from ((match[0], number, match.start() + 1) for match in _WORD.finditer(line))


def _script(char: str) -> str:
    return unicodedata.name(char, "").split(" ")[0]


def _doubt(word: str) -> str | None:
    if unicodedata.normalize("NFKC", word) != word:
        return "is read by Python as another one"
    scripts = {_script(char) for char in word if char.isalpha()}
    others = scripts - _BESIDE_LATIN
    if others and len(scripts) > 1:
        return f"mixes {' and '.join(sorted(scripts))} letters"
    return None
