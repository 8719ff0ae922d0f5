"""Writes docs/reference/scenarios.md from the tables: python -m tests.hostile.engine.page."""

from collections.abc import Iterator

from tests.hostile.engine.table import ROOT, Scenario, read_portfolio

PAGE = ROOT / "docs" / "reference" / "scenarios.md"

_HEAD = """\
# Scenarios

What the harness claims to defeat, attack by attack. Made by `python -m tests.hostile.engine.page` from the
tables in `tests/hostile/tables/`, which the tests run: each attack meets what the table says, its benign twin
passes, and with the defense switched off in a copy of the source the attack succeeds
([ADR-0018](../adr/0018-defenses-are-switched-off-in-a-copy.md)). `make mutants` flips every switch and shows
which tests go red. Ids such as RO-04 are the rows of the threat catalog that a scenario came from.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_sections()]).rstrip("\n") + "\n"


def _sections() -> Iterator[str]:
    portfolio = read_portfolio()
    scenarios = list(portfolio.scenarios.values())
    surfaces = dict.fromkeys(["story", *(row.surface for row in scenarios)])
    yield f"{len(scenarios)} scenarios, {len(portfolio.switches)} switches.\n"
    for surface in surfaces:
        yield f"## {surface.replace('_', ' ').capitalize()}\n"
        yield "| scenario | attack | defense | meets | threats |"
        yield "|---|---|---|---|---|"
        yield from (
            _row(row, portfolio.switches[row.defense].defends) for row in scenarios if row.surface == surface
        )
        yield ""


def _row(row: Scenario, defends: str) -> str:
    threats = ", ".join(row.threats) or "ours"
    return f"| `{row.name}` | {row.attack} | {defends} (`{row.defense}`) | `{row.expected}` | {threats} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
