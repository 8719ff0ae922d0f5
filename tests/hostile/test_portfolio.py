"""Every scenario beyond the story, three times: with its defense, without it, and as its benign twin.

`make test` plays them with their defense, and a twin whose score is compared; `make test-all` all three.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.hostile.engine.stage import ATTACKS, TWINS, Outcome, set_the_stage
from tests.hostile.engine.switching import play_without_defense
from tests.hostile.engine.table import DRIVER, Scenario, read_portfolio
from tests.support.proved_once import set_up_and_proved_once
from tests.support.sampling import one_machine

PORTFOLIO = read_portfolio()
SCENARIOS = [scenario for scenario in PORTFOLIO.scenarios.values() if scenario.driver == DRIVER]
set_the_stage(scenario.surface for scenario in SCENARIOS)
# Attacks on the time of others: beside each other, one would be counted for the other. What they meet,
# `integration/test_time_is_divided.py` shows in every run without an attacker, and in less time.
OF_TIME = {"time_of_a_sibling", "time_of_everybody"}
every_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            scenario,
            id=scenario.name,
            # The plays of any other scenario share a worker, which plays its twin once.
            marks=[one_machine, pytest.mark.all_ways]
            if scenario.name in OF_TIME
            else pytest.mark.xdist_group(scenario.name),
        )
        for scenario in SCENARIOS
    ],
)


@pytest.fixture
def _class_is_proved_once(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove the class of a run once per worker, unless the defense belongs to what is proved."""
    edits = PORTFOLIO.switches[scenario.defense].edits
    if not any(edit.file.startswith("isolation/") for edit in edits):
        monkeypatch.setattr("codegenie.eval.isolation.proof._set_up_and_proved", set_up_and_proved_once)


@pytest.fixture(scope="module")
def twin_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Outcome]:
    """Give what the twin of a scenario comes to; it is played once."""

    @cache
    def play(scenario: Scenario) -> Outcome:
        return TWINS[scenario.name](tmp_path_factory.mktemp("twin"))

    return play


@pytest.mark.usefixtures("_class_is_proved_once")
@every_scenario
def test_an_attack_meets_its_typed_outcome(
    scenario: Scenario, tmp_path: Path, twin_of: Callable[[Scenario], Outcome]
) -> None:
    outcome = ATTACKS[scenario.name](tmp_path)
    assert (outcome.met, outcome.harm) == (scenario.expected, None)
    if outcome.sibling is not None:
        assert outcome.sibling == twin_of(scenario).sibling


@pytest.mark.all_ways
@pytest.mark.usefixtures("_class_is_proved_once")
@every_scenario
def test_the_benign_twin_passes(scenario: Scenario, twin_of: Callable[[Scenario], Outcome]) -> None:
    outcome = twin_of(scenario)
    assert Outcome(outcome.met, outcome.harm) == Outcome(scenario.twin)


@pytest.mark.all_ways
@every_scenario
def test_an_attack_succeeds_without_its_defense(scenario: Scenario, tmp_path: Path) -> None:
    outcome = play_without_defense(scenario, PORTFOLIO.switches[scenario.defense], tmp_path)
    assert outcome.harm is not None, f"theater: it met {outcome.met!r} although the defense is off"
