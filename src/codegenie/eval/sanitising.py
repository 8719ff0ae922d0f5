"""Make text of a bench or of a system under test safe to store and to show.

There are two dangers: a control character that steers a terminal (threats UI-04), and a secret of the
harness that was read and written back (ADR-0001). Both are handled here and nowhere else.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping

from codegenie.eval.limits import LIMITS

REDACTED = "[redacted]"

# Hangul fillers, the blank Braille pattern and the variation selectors: printable but invisible.
_BLANK = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)
# Vietnamese needs two marks on a letter, Hebrew and Thai up to three.
_MOST_MARKS = 3

_HARMLESS = """
    PATH PWD OLDPWD HOME SHELL TERM TERM_PROGRAM COLORTERM LANG LANGUAGE LC_ALL LC_CTYPE LC_COLLATE
    LC_MESSAGES LC_NUMERIC LC_TIME TZ USER LOGNAME HOSTNAME EDITOR VISUAL PAGER DISPLAY TMPDIR VIRTUAL_ENV
    PYTHONPATH PYTHONHASHSEED PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE XDG_RUNTIME_DIR XDG_SESSION_TYPE
    XDG_DATA_DIRS XDG_CONFIG_DIRS SHLVL MAKEFLAGS MAKELEVEL MFLAGS NO_COLOR FORCE_COLOR PYTEST_CURRENT_TEST
    PYTEST_VERSION CI _
"""
HARMLESS_VARIABLES = frozenset(_HARMLESS.split())
"""Variables whose values are paths and settings. Redacting them would only hide where a file is."""


def printable(text: str) -> str:
    """Replace every character that could steer a terminal or mislead a reader.

    `str.isprintable` is false for control, format, surrogate, private and separator characters other
    than the space, so bidirectional and zero-width characters are replaced too. It is true for blank letters,
    which push a text to the start of the next row, and for marks, which pile up over the rows above.
    """
    if text.isprintable() and text.isascii():
        return text
    shown, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Me"} else 0
        harmless = char.isprintable() and char not in _BLANK and marks <= _MOST_MARKS
        shown.append(char if harmless else "\N{REPLACEMENT CHARACTER}")
    cleaned = "".join(shown)
    return text if cleaned == text else cleaned


def one_line(text: str, limit: int = LIMITS.detail_characters) -> str:
    """Fold white space, replace unprintable characters and cut to `limit` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


class Redactor:
    """Removes known secret values from free text. Make it before untrusted code runs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {value.strip() for name, value in environment.items() if name not in HARMLESS_VARIABLES}
        spellings = _spellings(value for value in values if len(value) >= LIMITS.secret_characters)
        secrets = sorted({tuple(spelling.split()) for spelling in spellings})
        # Any white space matches: folding a text to one line must not put a secret back together.
        self._secrets = [(re.compile(r"\s+".join(map(re.escape, words))), words[0]) for words in secrets]
        self._longest = max(map(len, spellings), default=0)

    def clean(self, text: str) -> str:
        """Replace every secret value in `text`."""
        return _covered(text, self._found(text))

    def clean_tail(self, text: str) -> str:
        """Clean a text whose beginning was cut off: half a secret may be at the cut."""
        if not self._longest:
            return text
        return _covered(text, [(0, self._longest), *self._found(text)]).removeprefix(REDACTED)

    def _found(self, text: str) -> list[tuple[int, int]]:
        return [
            match.span()
            for pattern, first_word in self._secrets
            if first_word in text
            for match in pattern.finditer(text)
        ]

    def clean_head(self, text: str) -> str:
        """Clean a text whose end was cut off: half a secret may be at the cut."""
        if not self._longest:
            return text
        start = max(0, len(text) - self._longest)
        return _covered(text, [(start, len(text)), *self._found(text)]).removesuffix(REDACTED)

    def detail(self, text: str) -> str:
        """Clean first and shorten afterwards: cutting first could leave half a secret."""
        return one_line(self.clean(text))


def _covered(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Replace spans of a text. Where two spans overlap, everything in either of them is replaced."""
    parts, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [text[end:start], REDACTED]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def _spellings(values: Iterable[str]) -> set[str]:
    """Return each value; also line by line, with undecodable bytes replaced, and as JSON spells it."""
    spellings = set()
    for value in values:
        replaced = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        escaped = (json.dumps(replaced)[1:-1], json.dumps(replaced, ensure_ascii=False)[1:-1])
        for text in (value, replaced, *value.splitlines(), *escaped):
            if len(text.strip()) >= LIMITS.secret_characters and text.strip() not in REDACTED:
                spellings.add(text.strip())
    return spellings
