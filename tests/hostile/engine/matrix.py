"""Writes the matrix attack x class into docs/threat-model.md: python -m tests.hostile.engine.matrix.

It plays every attack in every class and writes down what each came to, so it takes some minutes and needs a
machine that has every class. A cell that differs from the table is an error: the table says what is meant.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import TextWrapper

from tests.hostile.engine.ground import CONFINED, set_the_ground
from tests.hostile.engine.rows import CLASSES, STOPPED, SUCCEEDS, WAYS, Row, Way, read_rows
from tests.hostile.engine.table import ROOT

PAGE = ROOT / "docs" / "threat-model.md"
BEGIN = "<!-- matrix: written by `python -m tests.hostile.engine.matrix`, not by hand -->"
END = "<!-- end of the matrix -->"

# How children are started in a class if nothing else is said.
_DEFAULT = {name: str(next(way for way in WAYS if way.isolation == name)) for name in CLASSES}

Results = Mapping[str, Mapping[str, str]]


def played(rows: Iterable[Row]) -> Results:
    """Play every attack in every way and say what it came to, by the way."""
    results: dict[str, dict[str, str]] = {}
    for row in rows:
        for way in WAYS:
            result = came_to(row, way)
            sys.stdout.write(f"{row.name} in {way}: {result}\n")
            results.setdefault(row.name, {})[str(way)] = result
    return results


def came_to(row: Row, way: Way) -> str:
    """Play one attack in a room of its own."""
    with tempfile.TemporaryDirectory() as room:
        return SUCCEEDS if CONFINED[row.name](Path(room), way.isolation, way.spawn).harm else STOPPED


def expected(rows: Iterable[Row]) -> Results:
    """Return what the tables say."""
    return {row.name: {str(way): row.comes_to(way) for way in WAYS} for row in rows}


def section(rows: Mapping[str, Row], results: Results) -> str:
    """Return the section of the page, markers included."""
    return "\n".join([BEGIN, "", *_lines(rows, results), END])


def _lines(rows: Mapping[str, Row], results: Results) -> Iterator[str]:
    stopped = {name: sum(cells[_DEFAULT[name]] == STOPPED for cells in results.values()) for name in CLASSES}
    counts = ", ".join(f"{count} in `{name}`" for name, count in stopped.items())
    yield f"{len(rows)} attacks; stopped are {counts}."
    as_root = sum(bool(row.not_as_root) for row in rows.values())
    if as_root:
        yield f"Attacks that succeed in `subprocess` only if root runs the harness: {as_root}. Programs of an"
        yield "ordinary user cannot look into the harness"
        yield "([ADR-0025](adr/0025-what-a-rubric-knows-and-who-looks-into-it.md))."
    yield ""
    for surface in dict.fromkeys(row.surface for row in rows.values()):
        yield f"| {surface} | threats | {' | '.join(f'`{name}`' for name in CLASSES)} |"
        yield "|---|---|" + "---|" * len(CLASSES)
        yield from (_row(row, results[row.name]) for row in rows.values() if row.surface == surface)
        yield ""
    there = [row for row in rows.values() if not row.is_plain]
    yield "What a stronger class lets through, and why:\n"
    yield from _reasons(row for row in there if row.subprocess == SUCCEEDS)
    yield "What fails in `subprocess` already, and is played because the others start rubrics differently:\n"
    yield from _reasons(row for row in there if row.subprocess == STOPPED)


def _row(row: Row, cells: Mapping[str, str]) -> str:
    words = " | ".join(_cell(cells, name) + _unless_root(row, name) for name in CLASSES)
    mark = "" if row.is_plain else " (see below)"
    return f"| {row.attack}{mark} | {', '.join(row.threats)} | {words} |"


def _cell(cells: Mapping[str, str], name: str) -> str:
    """Say what an attack comes to in a class, and by a fresh interpreter where that differs."""
    by_default, fresh = cells[_DEFAULT[name]], cells.get(f"{name}-cold", "")
    other = f", with `--spawn cold` it {fresh}" if fresh and fresh != by_default else ""
    return (f"**{by_default}**" if by_default == SUCCEEDS else by_default) + other.replace(
        "it succeeds", "it **succeeds**"
    )


def _unless_root(row: Row, name: str) -> str:
    """Say what an attack comes to if an ordinary user runs the harness, where that differs."""
    return f" as root, otherwise {row.not_as_root}" if name == "subprocess" and row.not_as_root else ""


def _reasons(rows: Iterable[Row]) -> Iterator[str]:
    """Yield why attacks come to something else than success without confinement and failure with it."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.why, []).append(row.attack)
    yield from (_item(f"{'; '.join(attacks)}: {why}.") for why, attacks in by_reason.items())
    yield ""


def _item(text: str) -> str:
    """Return an item of a list, broken into lines of the length that documents have."""
    lines = TextWrapper(width=120, initial_indent="- ", subsequent_indent="  ")
    lines.break_long_words = lines.break_on_hyphens = False
    return lines.fill(text)


def with_section(page: str, text: str) -> str:
    """Return the page with its matrix replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the matrix")
    return before + text + after


def main() -> int:
    """Play, compare and write."""
    rows = read_rows()
    set_the_ground(row.surface for row in rows.values())
    results = played(rows.values())
    meant = expected(rows.values())
    wrong = [name for name, cells in results.items() if cells != meant[name]]
    for name in wrong:
        sys.stderr.write(f"{name}: {results[name]}, and the table says {meant[name]}\n")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_section(page, section(rows, results)), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
