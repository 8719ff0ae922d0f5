"""Writes docs/reference/scenarios.md from the tables: python -m tests.hostile.engine.page."""

from collections.abc import Iterator
from textwrap import fill

from tests.hostile.engine.agent_rows import AgentRow, read_agent_rows
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


_OF_AGENTS = """\
## Agents in boxes

What an agent that is a program tries from its box. Whole runs of a hostile agent play each row in classes
`namespace` and `landlock`, as root and as an ordinary user, and no part of it succeeds. The same agent
without walls, in a pid namespace of its own, succeeds with every part
(`tests/hostile/test_agent_rows.py`). Only the witness counts, never what the agent says.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_sections(), _OF_AGENTS, *_agent_rows()]).rstrip("\n") + "\n"


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


def _agent_rows() -> Iterator[str]:
    yield "| row | attack | defense | witness | networks |"
    yield "|---|---|---|---|---|"
    rows = read_agent_rows().values()
    yield from map(_agent_row, rows)
    yield ""
    yield from (_item(f"`{row.name}`: {row.note}.") for row in rows if row.note)


def _item(text: str) -> str:
    """Return an item of a list, broken into lines of the length that documents have."""
    return fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _agent_row(row: AgentRow) -> str:
    return f"| `{row.name}` | {row.attack} | {row.defense} | {row.witness} | {', '.join(row.networks)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
