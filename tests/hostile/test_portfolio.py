"""Every scenario beyond the story, three times: with its defense, without it, and as its benign twin.

`make test` plays them with their defense; `make test-all` all three.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.hostile.attackers.hostile_bench import HONEST, rubric_that, run_cases
from tests.hostile.engine.stage import ATTACKS, TWINS, Outcome, set_the_stage
from tests.hostile.engine.switching import play_without_defense
from tests.hostile.engine.table import DRIVER, Scenario, read_portfolio
from tests.support.benches import HONEST_RUBRIC, canonical_score
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
            marks=[one_machine, pytest.mark.all_ways] if scenario.name in OF_TIME else (),
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


@cache
def honest_scores() -> frozenset[bytes | None]:
    """Return what the honest case scores where it is alone, beside rubrics and beside agents that attack.

    Some scenarios have no honest case, which is None.
    """
    scores: set[bytes | None] = {None}
    for rubric in (rubric_that(""), HONEST_RUBRIC):
        with TemporaryDirectory() as room:
            report = run_cases(Path(room), rubric, [HONEST])
        scores.add(canonical_score(dict(report.per_case)[HONEST]))
    return frozenset(scores)


@pytest.mark.usefixtures("_class_is_proved_once")
@every_scenario
def test_an_attack_meets_its_typed_outcome(scenario: Scenario, tmp_path: Path) -> None:
    outcome = ATTACKS[scenario.name](tmp_path)
    assert (outcome.met, outcome.harm) == (scenario.expected, None)
    assert outcome.sibling in honest_scores()


@pytest.mark.all_ways
@pytest.mark.usefixtures("_class_is_proved_once")
@every_scenario
def test_the_benign_twin_passes(scenario: Scenario, tmp_path: Path) -> None:
    outcome = TWINS[scenario.name](tmp_path)
    assert Outcome(outcome.met, outcome.harm) == Outcome(scenario.twin)
    assert outcome.sibling in honest_scores()


@pytest.mark.all_ways
@every_scenario
def test_an_attack_succeeds_without_its_defense(scenario: Scenario, tmp_path: Path) -> None:
    outcome = play_without_defense(scenario, PORTFOLIO.switches[scenario.defense], tmp_path)
    assert outcome.harm is not None, f"theater: it met {outcome.met!r} although the defense is off"
