"""The tables of the portfolio, its attacks, twins, drivers, switches, fixtures and pages say the same."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from codegenie.eval.fence import inspect_paths
from codegenie.eval.models import RUNNER_CODES
from tests.portfolio.page import PAGE, page
from tests.portfolio.stage import ATTACKS, TWINS, set_the_stage
from tests.portfolio.table import (
    DRIVER,
    ROOT,
    SOURCE,
    STORY,
    Fixture,
    Restriction,
    Scenario,
    Switch,
    read_portfolio,
)

PORTFOLIO = read_portfolio()
SCENARIOS = list(PORTFOLIO.scenarios.values())
STORIES = [scenario for scenario in SCENARIOS if scenario.surface == STORY]
ATTACK_ROOMS = ROOT / "tests" / "hostile" / "attacks"
EVERY_SWITCH = [*PORTFOLIO.switches.values(), *PORTFOLIO.restrictions.values()]
CONFINEMENT = SOURCE / "isolation" / "confinement"
every_switch = pytest.mark.parametrize("switch", EVERY_SWITCH, ids=lambda switch: switch.name)
every_restriction = pytest.mark.parametrize(
    "restriction", PORTFOLIO.restrictions.values(), ids=lambda restriction: restriction.name
)

set_the_stage(scenario.surface for scenario in SCENARIOS)


def test_every_defense_that_a_scenario_names_has_a_switch_and_every_switch_a_scenario() -> None:
    assert {scenario.defense for scenario in SCENARIOS} == PORTFOLIO.switches.keys()


@every_switch
def test_a_switch_fits_the_production_code_in_exactly_one_place(switch: Switch) -> None:
    assert switch.edits
    for edit in switch.edits:
        text = (SOURCE / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.file}: {edit.old!r}"
        assert edit.new != edit.old
        ast.parse(text.replace(edit.old, edit.new))


@every_switch
def test_a_switch_cites_an_adr_that_exists(switch: Switch) -> None:
    assert list((ROOT / "docs" / "adr").glob(f"{switch.adr}-*.md"))


@every_restriction
def test_a_restriction_names_tests_that_exist(restriction: Restriction) -> None:
    assert restriction.tests
    for test in restriction.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name.partition("[")[0] in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }


def test_every_part_of_the_confinement_has_a_restriction() -> None:
    edited = {edit.file for restriction in PORTFOLIO.restrictions.values() for edit in restriction.edits}
    parts = {path.name for path in CONFINEMENT.glob("*.py")} - {"__init__.py", "run_as_main.py"}
    assert {f"isolation/confinement/{name}" for name in parts} - edited == set()
    assert len(PORTFOLIO.restrictions) >= 90


def test_no_restriction_takes_away_a_namespace_together_with_the_look_at_it() -> None:
    # The look is what keeps a mount or a name from the host when a flag was taken away as root.
    for restriction in PORTFOLIO.restrictions.values():
        texts = [edit.old for edit in restriction.edits]
        looks = any("shared" in text or "_check" in text for text in texts)
        assert not (looks and any("CLONE_NEW" in text for text in texts)), restriction.name


def test_every_scenario_has_an_attack_and_every_attack_a_scenario() -> None:
    assert ATTACKS.keys() == PORTFOLIO.scenarios.keys()


def test_every_scenario_beyond_the_story_has_a_twin() -> None:
    assert TWINS.keys() == {scenario.name for scenario in SCENARIOS if scenario.surface != STORY}


def test_every_room_of_attacks_belongs_to_a_table() -> None:
    assert {room.stem for room in ATTACK_ROOMS.glob("*.py")} == {scenario.surface for scenario in SCENARIOS}


def test_no_two_scenarios_are_the_same_attack_in_other_words() -> None:
    assert [text for text, count in Counter(row.attack for row in SCENARIOS).items() if count > 1] == []


@pytest.mark.parametrize("scenario", STORIES, ids=lambda scenario: scenario.name)
def test_a_driver_of_the_story_cites_its_adr_and_asserts_the_expected_outcome(scenario: Scenario) -> None:
    source = (ROOT / scenario.driver).read_text(encoding="utf-8")
    tests = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert tests
    for test in tests:
        assert re.match(rf"ADR-{PORTFOLIO.switches[scenario.defense].adr} §", ast.get_docstring(test) or "")
    assert scenario.expected in source


def test_the_story_has_one_scenario_for_each_hostile_case_and_one_for_the_sibling() -> None:
    fixture = ROOT / "tests" / "fixtures" / "bench" / "adversarial-task-class"
    cases = {entry.name for entry in (fixture / "cases").iterdir() if entry.is_dir()}
    names = {scenario.name for scenario in STORIES}
    assert names - cases == {"malformed_failure_modes_yaml"}
    assert cases - names == {"valid_baseline"}
    rows = {
        row.split("`")[1]: row for row in (fixture / "README.md").read_text(encoding="utf-8").splitlines()
        if row.startswith("| `")
    }  # fmt: skip
    for scenario in STORIES:
        if scenario.name in cases:
            assert f"`{scenario.expected}`" in rows[scenario.name]
            assert f"ADR-{PORTFOLIO.switches[scenario.defense].adr}" in rows[scenario.name]


def test_scenarios_beyond_the_story_share_one_driver() -> None:
    assert {row.driver for row in SCENARIOS if row.surface != STORY} == {DRIVER}


def test_the_page_of_scenarios_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.portfolio.page`"


def test_there_are_at_least_sixty_scenarios() -> None:
    assert len(SCENARIOS) >= 60


def test_a_scenario_that_ends_in_a_code_of_the_runner_names_one_of_the_seven() -> None:
    named = {word for row in SCENARIOS for word in re.findall(r"\b(?:sut|rubric)\.[a-z_]+", row.expected)}
    assert named <= RUNNER_CODES.keys()
    assert named >= RUNNER_CODES.keys() - {"sut.cancelled"}


@pytest.mark.parametrize("fixture", PORTFOLIO.fixtures, ids=lambda fixture: fixture.path)
def test_the_fence_finds_in_a_bench_on_disk_what_the_table_says(fixture: Fixture) -> None:
    report = inspect_paths([ROOT / fixture.path])
    below = [Path(finding.path).resolve().relative_to(ROOT / fixture.path) for finding in report.findings]
    found = [f"{finding.rule} {path}" for finding, path in zip(report.findings, below, strict=True)]
    assert tuple(found) == fixture.findings


def test_every_bench_of_the_repository_has_a_row() -> None:
    benches = [
        path.parent.relative_to(ROOT)
        for place in ("bench", "tests/fixtures/bench")
        for path in (ROOT / place).glob("*/registration.py")
    ]
    assert sorted(map(str, benches)) == sorted(fixture.path for fixture in PORTFOLIO.fixtures)
