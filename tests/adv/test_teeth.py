"""Every scenario of the story succeeds as soon as its defense is gone.

This test enforces ADR-0018 §Decision: an attack that does not succeed without its defense proves nothing.
"""

from pathlib import Path

import pytest

from tests.hostile.engine.switching import play_without_defense
from tests.hostile.engine.table import STORY, Scenario, read_portfolio

PORTFOLIO = read_portfolio()
STORIES = [scenario for scenario in PORTFOLIO.scenarios.values() if scenario.surface == STORY]


@pytest.mark.all_ways
@pytest.mark.parametrize("scenario", STORIES, ids=lambda scenario: scenario.name)
def test_a_scenario_of_the_story_succeeds_without_its_defense(scenario: Scenario, tmp_path: Path) -> None:
    outcome = play_without_defense(scenario, PORTFOLIO.switches[scenario.defense], tmp_path)
    assert outcome.harm is not None, f"theater: it met {outcome.met!r} although the defense is off"
