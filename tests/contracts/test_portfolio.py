"""The tables of the portfolio, its attacks, twins, drivers, switches, fixtures and pages say the same."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from codegenie.eval.fence import inspect_paths
from codegenie.eval.models import RUNNER_CODES
from tests.hostile.engine.page import PAGE, page
from tests.hostile.engine.stage import ATTACKS, TWINS, set_the_stage
from tests.hostile.engine.table import (
    DRIVER,
    ROOT,
    SOURCE,
    STORY,
    Edit,
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

set_the_stage(scenario.surface for scenario in SCENARIOS)


def test_every_defense_that_a_scenario_names_has_a_switch_and_every_switch_a_scenario() -> None:
    assert {scenario.defense for scenario in SCENARIOS} == PORTFOLIO.switches.keys()


def misfits(switch: Switch) -> Iterator[str]:
    """Say where a switch does not fit the production code; if it fits, say nothing."""
    if not switch.edits:
        yield f"{switch.name}: it edits nothing"
    for edit in switch.edits:
        text = (SOURCE / edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            yield f"{switch.name}: {edit.file} holds {edit.old!r} {text.count(edit.old)} times"
        elif edit.new == edit.old:
            yield f"{switch.name}: {edit.file} stays as it is"
        elif not _is_python(text.replace(edit.old, edit.new)):
            yield f"{switch.name}: {edit.file} is not Python any more"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def test_a_switch_fits_the_production_code_in_exactly_one_place() -> None:
    assert [misfit for switch in EVERY_SWITCH for misfit in misfits(switch)] == []


BROKEN_SWITCHES = {
    "no edit at all": ((), "edits nothing"),
    "a text that does not occur": ((Edit("errors.py", "no such text", "other"),), "0 times"),
    "a text that occurs twice": ((Edit("errors.py", "class ", "klass "),), " times"),
    "the same text again": ((Edit("errors.py", "class EvalError", "class EvalError"),), "stays as it is"),
    "a broken statement": ((Edit("errors.py", "class EvalError", "class class"),), "not Python"),
    "a good edit and a bad one": (
        (Edit("errors.py", "class EvalError", "class Other"), Edit("limits.py", "no such text", "")),
        "limits.py holds",
    ),
}


@pytest.mark.parametrize("how", BROKEN_SWITCHES)
def test_a_switch_that_does_not_fit_is_named(how: str) -> None:
    edits, said = BROKEN_SWITCHES[how]
    (misfit,) = misfits(Switch("broken", "nothing", "0018", edits))
    assert misfit.startswith("broken: ")
    assert said in misfit


def test_a_switch_cites_an_adr_that_exists() -> None:
    known = {file.name[:4] for file in (ROOT / "docs" / "adr").glob("[0-9][0-9][0-9][0-9]-*.md")}
    assert [f"{switch.name}: ADR-{switch.adr}" for switch in EVERY_SWITCH if switch.adr not in known] == []


def absent_tests(restriction: Restriction) -> Iterator[str]:
    """Name the tests of a restriction that are in no file."""
    if not restriction.tests:
        yield f"{restriction.name}: it names no test"
    for test in restriction.tests:
        file, _, name = test.partition("::")
        if name.partition("[")[0] not in _functions(ROOT / file):
            yield f"{restriction.name}: {test}"


@cache
def _functions(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def test_a_restriction_names_tests_that_exist() -> None:
    restrictions = PORTFOLIO.restrictions.values()
    assert [missing for each in restrictions for missing in absent_tests(each)] == []


@pytest.mark.parametrize("tests", [(), ("tests/contracts/test_portfolio.py::test_of_nothing[a]",)])
def test_a_restriction_without_its_test_is_named(tests: tuple[str, ...]) -> None:
    restriction = Restriction("untested", "nothing", "0018", (), tests)
    (missing,) = absent_tests(restriction)
    assert missing.startswith("untested: ")


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
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.hostile.engine.page`"


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
