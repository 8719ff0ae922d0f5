"""Every scenario beyond the story, three times: with its defense, without it, and as its benign twin."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.portfolio.stage import ATTACKS, TWINS, Outcome, set_the_stage
from tests.portfolio.switching import play_without_defense
from tests.portfolio.table import DRIVER, Scenario, read_portfolio

PORTFOLIO = read_portfolio()
SCENARIOS = [scenario for scenario in PORTFOLIO.scenarios.values() if scenario.driver == DRIVER]
set_the_stage(scenario.surface for scenario in SCENARIOS)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


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


@pytest.fixture(scope="module")
def without_defense(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[Outcome]]]:
    """Play every attack that is asked for in a process of its own, some at a time; most wait for a start."""
    asked: list[Scenario] = [
        item.callspec.params["scenario"]  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "without_defense" in item.fixturenames
    ]
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
        yield {
            scenario.name: pool.submit(
                play_without_defense,
                scenario,
                PORTFOLIO.switches[scenario.defense],
                tmp_path_factory.mktemp(scenario.name[:40]),
            )
            for scenario in asked
        }
        pool.shutdown(cancel_futures=True)


@every_scenario
def test_an_attack_succeeds_without_its_defense(
    scenario: Scenario, without_defense: Mapping[str, Future[Outcome]]
) -> None:
    outcome = without_defense[scenario.name].result()
    assert outcome.harm is not None, f"theater: it met {outcome.met!r} although the defense is off"
