"""Which attack meets which defense: the tables of `tests/hostile/tables`, as records.

Each `*.toml` there is one surface. A `[[switch]]` turns one defense off by an edit of the production code,
and exactly one place must match; a `[[scenario]]` names the attack, the switch that it needs to succeed, the
test that drives it and the typed outcome that it meets. A `[[restriction]]` is a switch of the confinement,
with the tests that must all go red without it.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "codegenie" / "eval"
TABLES = ROOT / "tests" / "hostile" / "tables"
STORY = "story"
DRIVER = "tests/hostile/test_portfolio.py"


@dataclass(frozen=True)
class Edit:
    """One piece of the production code, and what stands there without the defense."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Switch:
    """One defense, by the edits that remove it."""

    name: str
    defends: str
    adr: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Restriction(Switch):
    """One restriction of a confined process, and the tests that have to go red without it."""

    tests: tuple[str, ...]
    root: bool = False  # only where the harness is root's does anything depend on it


@dataclass(frozen=True)
class Scenario:
    """One attack: what it tries, what stops it, who drives it and what it meets."""

    name: str
    surface: str
    threats: tuple[str, ...]
    attack: str
    defense: str
    expected: str
    twin: str
    driver: str = DRIVER
    hangs: bool = False  # the harm is that nothing ends: the attack is ended from outside

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that have to go red without the defense."""
        if self.driver != DRIVER:
            return (self.driver,)
        return (f"{DRIVER}::test_an_attack_meets_its_typed_outcome[{self.name}]",)


@dataclass(frozen=True)
class Fixture:
    """A hostile bench on disk, and what the fence finds in it."""

    path: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Portfolio:
    """All tables together."""

    switches: dict[str, Switch]
    restrictions: dict[str, Restriction]
    scenarios: dict[str, Scenario]
    fixtures: tuple[Fixture, ...]


def _switch(row: dict[str, Any]) -> Switch:
    edits = tuple(Edit(**edit) for edit in row.pop("edits"))
    return Switch(edits=edits, **row)


def _restriction(row: dict[str, Any]) -> Restriction:
    edits = tuple(Edit(**edit) for edit in row.pop("edits"))
    return Restriction(edits=edits, tests=tuple(row.pop("tests")), **row)


def _scenario(row: dict[str, Any], surface: str) -> Scenario:
    return Scenario(surface=surface, threats=tuple(row.pop("threats")), **row)


def read_portfolio() -> Portfolio:
    """Read every table; a name that appears twice is an error."""
    switches: list[Switch] = []
    restrictions: list[Restriction] = []
    scenarios: list[Scenario] = []
    fixtures: list[Fixture] = []
    for file in sorted(TABLES.glob("*.toml")):
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        switches += [_switch(row) for row in table.pop("switch", [])]
        restrictions += [_restriction(row) for row in table.pop("restriction", [])]
        scenarios += [_scenario(row, file.stem) for row in table.pop("scenario", [])]
        fixtures += [Fixture(row["path"], tuple(row["findings"])) for row in table.pop("fixture", [])]
        if table:
            raise ValueError(f"{file.name} holds {sorted(table)}")
    by_switch = {switch.name: switch for switch in switches}
    by_restriction = {restriction.name: restriction for restriction in restrictions}
    by_scenario = {scenario.name: scenario for scenario in scenarios}
    names = len(by_switch.keys() | by_restriction.keys()), len(by_scenario)
    if names != (len(switches) + len(restrictions), len(scenarios)):
        raise ValueError("a switch, a restriction or a scenario appears twice")
    return Portfolio(by_switch, by_restriction, by_scenario, tuple(fixtures))
