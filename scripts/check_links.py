"""Follow every link of the documents that leads into this repository; no network.

    .venv/bin/python -m scripts.check_links

A link must lead to a file that exists and, with an anchor, to a heading of that file. A decision that is
named (`ADR-0012`) must exist. Text in fenced blocks and between backticks is an example, not a link.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from scripts.locks import ROOT

PATTERNS = ("*.md", "docs/**/*.md", "tests/**/*.md", "bench/*/*.md", "benchmarks/*.md")
DECISIONS = "docs/adr"
_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?", re.MULTILINE)
_DECISION = re.compile(r"\bADR-(\d{4})\b")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages(root: Path = ROOT) -> list[Path]:
    """Return every document; the cases of a bench are data and are left out."""
    found = {path for pattern in PATTERNS for path in root.glob(pattern)}
    return sorted(path for path in found if "cases" not in path.relative_to(root).parts)


def prose(text: str) -> str:
    """Return a document without its examples."""
    return _CODE.sub("`", _FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings as a browser sees them; a second heading of a name gets `-1`."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def dead_links(page: Path, text: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    visible = prose(text)
    for target in [*_INLINE.findall(visible), *_DEFINED.findall(visible)]:
        if _ELSEWHERE.match(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        found = (page.parent / path).resolve() if path else page
        if path and not (found.is_relative_to(root) and found.exists()):
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(text if found == page else found.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"
    for number in sorted(set(_DECISION.findall(visible))):
        if not list((root / DECISIONS).glob(f"{number}-*.md")):
            yield f"ADR-{number}: no such decision"


def main() -> int:
    """Print what is wrong; return the exit status."""
    documents = pages()
    found = [
        f"{page.relative_to(ROOT)}: {problem}"
        for page in documents
        for problem in dead_links(page, page.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or f"links: those of {len(documents)} documents lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
