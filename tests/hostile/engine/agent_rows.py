"""What a hostile agent tries from its box: the rows of `tests/hostile/tables/boxed`, as records.

A row has parts, each of them one way to do it. In the classes and networks of the row no part may succeed.
Without walls each does, in a pid namespace and as an ordinary user. A defense that lies outside the walls is
taken away by the edits of its row, in the copy of the package that plays without walls.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.hostile.engine.table import TABLES, Edit, Switch

NETWORKS = ("none", "broker")


@dataclass(frozen=True)
class AgentRow:
    """One attack of an agent, and who sees whether it succeeds."""

    name: str
    attack: str
    witness: str
    defense: str
    # Each must succeed where nothing is in its way.
    parts: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    networks: tuple[str, ...] = NETWORKS
    # Ways that a second defense stops everywhere; their teeth are in the tests of `elsewhere`.
    also: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    # The test of another file that plays it: by class, and with the word `teeth`.
    driven_by: Mapping[str, str] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    adr: str = ""
    note: str = ""

    @property
    def switch(self) -> Switch:
        """Return its edits as a switch of the portfolio."""
        return Switch(self.name, self.defense, self.adr, self.edits)


def read_agent_rows() -> dict[str, AgentRow]:
    """Read every table; a name that appears twice is an error."""
    found: dict[str, AgentRow] = {}
    for file in sorted((TABLES / "boxed").glob("*.toml")):
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        for row in table.pop("row"):
            edits = tuple(Edit(**edit) for edit in row.pop("edits", []))
            lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
            made = AgentRow(edits=edits, **{**row, **lists})
            if made.name in found:
                raise ValueError(f"{made.name} appears twice")
            found[made.name] = made
        if table:
            raise ValueError(f"{file.name} holds {sorted(table)}")
    return found
