"""Every scenario beyond the story, three times: with its defense, without it, and as its benign twin."""

from pathlib import Path

import pytest

from tests.portfolio.stage import ATTACKS, TWINS, Outcome, set_the_stage
from tests.portfolio.switching import play_without_defense
from tests.portfolio.table import DRIVER, Scenario, read_portfolio
from tests.sampling import one_machine

PORTFOLIO = read_portfolio()
SCENARIOS = [scenario for scenario in PORTFOLIO.scenarios.values() if scenario.driver == DRIVER]
set_the_stage(scenario.surface for scenario in SCENARIOS)
# Attacks on the time of others: beside each other, one would be counted for the other.
OF_ONE_MACHINE = {"time_of_a_sibling", "time_of_everybody"}
every_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=one_machine if scenario.name in OF_ONE_MACHINE else ())
        for scenario in SCENARIOS
    ],
)


@every_scenario
def test_an_attack_meets_its_typed_outcome(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "attack").mkdir()
    outcome = ATTACKS[scenario.name](tmp_path / "attack")
    assert (outcome.met, outcome.harm) == (scenario.expected, None)
    if outcome.sibling is not None:
        (tmp_path / "twin").mkdir()
        assert outcome.sibling == TWINS[scenario.name](tmp_path / "twin").sibling


@every_scenario
def test_the_benign_twin_passes(scenario: Scenario, tmp_path: Path) -> None:
    outcome = TWINS[scenario.name](tmp_path)
    assert Outcome(outcome.met, outcome.harm) == Outcome(scenario.twin)


@every_scenario
def test_an_attack_succeeds_without_its_defense(scenario: Scenario, tmp_path: Path) -> None:
    outcome = play_without_defense(scenario, PORTFOLIO.switches[scenario.defense], tmp_path)
    assert outcome.harm is not None, f"theater: it met {outcome.met!r} although the defense is off"
