"""The table of hostile agents, the tests that play it and the production code say the same."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.contracts.test_portfolio import absent_tests, misfits
from tests.hostile import test_agent_rows as played
from tests.hostile.engine.agent_rows import NETWORKS, AgentRow, read_agent_rows
from tests.hostile.engine.loot import WITNESSES
from tests.hostile.engine.table import ROOT, Restriction
from tests.support.confinement import CONFINED

ROWS = read_agent_rows()
OF_THE_CONTRACT = [
    "sut-reads-answers", "sut-reads-git-history", "sut-reads-shipped-bench", "sut-steals-environment",
    "sut-steals-credential", "sut-calls-out", "sut-abuses-broker", "sut-leaves-word", "sut-edits",
    "sut-outlives", "sut-fills", "sut-leaves-traps", "sut-forges", "sut-rerolls", "sut-spends",
]  # fmt: skip
HERE = {name: row for name, row in ROWS.items() if not row.driven_by}


def parameters(test: Any) -> set[Any]:  # noqa: ANN401 - a function with marks
    """Return what a test is called with."""
    (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")
    return {getattr(each, "values", each) for each in mark.args[1]}


def gaps(row: AgentRow) -> Iterator[str]:
    """Say what a row lacks: a class, its teeth, a network, or the tests that it names."""
    if row.driven_by:
        yield from ({*CONFINED, "teeth"} - row.driven_by.keys())
    elif not (row.parts and row.cases):
        yield "parts and cases"
    if not {"broker"} <= {*row.networks} <= {*NETWORKS}:
        yield "a network"
    if row.also and not row.elsewhere:
        yield "teeth elsewhere"
    named = (*row.elsewhere, *row.driven_by.values())
    yield from absent_tests(Restriction(row.name, row.defense, row.adr, (), named)) if named else ()
    yield from misfits(row.switch) if row.edits else ()


def test_there_is_a_row_for_each_attack_of_the_contract() -> None:
    assert list(ROWS) == OF_THE_CONTRACT


def test_no_row_lacks_a_class_a_network_its_teeth_or_a_test() -> None:
    assert {row.name: found for row in ROWS.values() if (found := list(gaps(row)))} == {}


def test_a_row_that_lacks_something_is_named() -> None:
    by_others = AgentRow(
        "bad", "", "", "", driven_by={"namespace": "tests/contracts/test_portfolio.py::test_of_nothing"}
    )
    broken = AgentRow("bad", "", "", "", ("a",), ("a",), networks=("moon",), also=("b",))

    assert {*gaps(by_others)} >= {"landlock", "teeth"}
    assert [*gaps(broken)] == ["a network", "teeth elsewhere"]
    assert [*gaps(AgentRow("bad", "", "", ""))] == ["parts and cases"]


def test_each_row_has_a_witness_and_is_played_in_each_class_and_without_walls() -> None:
    assert WITNESSES.keys() == HERE.keys()
    wanted = {
        (isolation, network, row.name)
        for isolation, row in product(CONFINED, HERE.values())
        for network in row.networks
    }
    assert parameters(played.test_an_agent_in_a_box_succeeds_with_no_part_of_an_attack) == wanted
    ways = {*product(CONFINED, NETWORKS)}
    assert parameters(played.test_a_run_of_attacks_is_whole_and_its_honest_case_passes) == ways
    assert parameters(played.test_an_ordinary_user_is_robbed_of_nothing_either) == ways
    teeth = played.test_without_walls_and_without_its_defense_every_part_of_an_attack_succeeds
    assert parameters(teeth) == {*HERE}


def test_no_case_belongs_to_two_rows_and_each_defense_cites_an_adr_that_exists() -> None:
    cases = [case for row in HERE.values() for case in row.cases]
    assert len(cases) == len({*cases})
    known = {file.name[:4] for file in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    assert {row.adr for row in ROWS.values() if row.edits} <= known
