"""The form of the documents: how long a line may be, which words are avoided, and the glossary.

A reviewer reads a change of a document line by line, so a line is at most 120 characters long. A row of a
table and a single word (an address, the name of a test) cannot be broken, and are left alone.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINE_CHARACTERS = 120


def is_breakable(line: str) -> bool:
    return not line.startswith("|") and len(line.split()) > 1


def long_lines(text: str) -> list[int]:
    """Return the numbers of the lines that are too long and could be shorter."""
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > LINE_CHARACTERS and is_breakable(line)
    ]


def test_every_line_of_a_document_is_at_most_120_characters_long() -> None:
    found = {
        page.relative_to(ROOT).as_posix(): long_lines(page.read_text(encoding="utf-8")) for page in PAGES
    }

    assert {"README.md", "CHANGELOG.md", "docs/index.md"} <= found.keys()
    assert {page: lines for page, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("a " * 60, False),
        ("a " * 60 + "b", True),
        ("- " + "b" * 119, True),
        ("    " + "a b" * 39, True),
        ("ä" * 60 + " " + "ö" * 59, False),
        ("| " + "a " * 100 + "|", False),
        ("b" * 200, False),
    ],
)
def test_a_long_line_is_found_where_it_can_be_broken(line: str, is_found: bool) -> None:
    assert long_lines(f"first\n{line}\nlast") == ([2] if is_found else [])


# A reader asks "who?": the subject has a name, such as the harness, the agent, the author or the reader.
AVOIDED = re.compile(r"\b(?:no|some|any)body\b|\bwhoever\b", re.IGNORECASE)
# Written by programs, from tables and sources that have rules of their own.
GENERATED = re.compile(
    r"<!-- matrix: .*<!-- end of the matrix -->|^\| `F\d{3}` .*?$|```.*?^```$|`[^`\n]+`",
    re.DOTALL | re.MULTILINE,
)


def avoided_words(text: str) -> list[str]:
    return AVOIDED.findall(GENERATED.sub("", text))


def test_the_documents_name_who_does_something() -> None:
    pages = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
    pages.pop("docs/reference/scenarios.md")

    assert {name: avoided_words(text) for name, text in pages.items() if avoided_words(text)} == {}
    assert avoided_words("Whoever reads `nobody` asks somebody.") == ["Whoever", "somebody"]


GLOSSARY_LINES = 40


def test_the_glossary_is_short_and_is_linked_where_readers_begin() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    words = [line.partition(" | ")[0] for line in glossary if line.startswith("| ")]

    assert len(glossary) <= GLOSSARY_LINES
    assert len(words) == len(set(words))
    assert "](glossary.md)" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert "](docs/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
