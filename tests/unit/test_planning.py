"""Which cases are run, and what a plan says of that."""

import pytest

from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.errors import NoCaseMatches, SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RunOptions, Selection
from codegenie.eval.planning import (
    CaseFilter,
    CaseSelection,
    answer_room,
    any_of,
    build_plan,
    case_set_digest,
)
from tests.support.stub_benches import CASES, FIXTURE, NAME

TASK_CLASS = load_task_class(NAME, bench_root=FIXTURE.parent)
LOADED, AVAILABLE = load_cases(TASK_CLASS, lambda _case_id: True)
ALL = Selection(kind="all", available_cases=AVAILABLE)


@pytest.mark.parametrize(
    ("case_filter", "wanted", "described"),
    [
        (None, set(CASES), None),
        ("*", set(CASES), "*"),
        ("adds_up", {"adds_up"}, "adds_up"),
        ("*_[bu]*", {"adds_up", "off_by_one"}, "*_[bu]*"),
        ("ADDS_UP", set(), "ADDS_UP"),
        ("", set(), ""),
        (["off_by_one", "adds_up"], {"adds_up", "off_by_one"}, "adds_up,off_by_one"),
        ({"adds_up"}, {"adds_up"}, "adds_up"),
        ((), set(), ""),
        (lambda case_id: case_id.startswith("o"), {"off_by_one"}, "predicate"),
        (any_of([]), set(CASES), None),
        (any_of(["adds_*"]), {"adds_up"}, "adds_*"),
        (any_of(["adds_*", "off*"]), {"adds_up", "off_by_one"}, "adds_*,off*"),
    ],
)
def test_a_filter_wants_what_it_says(
    case_filter: CaseFilter, wanted: set[str], described: str | None
) -> None:
    assert set(filter(CaseSelection.by(case_filter).wants, CASES)) == wanted
    assert CaseSelection.by(case_filter).describe() == described


@pytest.mark.parametrize("case_filter", [["adds_up", "gone"], any_of(["adds_up", "gone*"])])
def test_a_name_that_finds_nothing_does_not_shrink_a_run_silently(case_filter: CaseFilter) -> None:
    with pytest.raises(NoCaseMatches, match="there is no case 'gone"):
        CaseSelection.by(case_filter).check(["adds_up"])


@pytest.mark.parametrize(
    "case_filter", [None, "gone*", ["adds_up"], any_of(["adds_up", "a*"]), lambda _case: False]
)
def test_other_filters_are_left_to_the_plan(case_filter: CaseFilter) -> None:
    CaseSelection.by(case_filter).check(["adds_up"])


def test_a_plan_is_ordered_by_id_and_its_digest_does_not_depend_on_the_order() -> None:
    forwards = build_plan(TASK_CLASS, LOADED, ALL)
    backwards = build_plan(TASK_CLASS, LOADED[::-1], ALL, RunOptions(trials=2))
    assert [case.case_id for case in backwards.cases] == sorted(CASES)
    assert backwards.case_set_digest == forwards.case_set_digest == case_set_digest(LOADED)
    assert (forwards.options.trials, backwards.options.trials) == (1, 2)
    assert case_set_digest(LOADED[:2]) != case_set_digest(LOADED)


def test_a_plan_without_a_case_is_refused_and_says_what_there_is() -> None:
    selection = Selection(kind="partial", case_filter="gone", available_cases=3)
    with pytest.raises(NoCaseMatches, match="no case of 'stub-task-class' matches 'gone'") as caught:
        build_plan(TASK_CLASS, (), selection)
    assert "the 3 cases" in (caught.value.hint or "")


def test_an_answer_has_its_share_of_the_record_and_a_run_without_one_is_not_planned() -> None:
    cases = len(LOADED)
    assert answer_room(cases, 1) == LIMITS.answer_bytes
    assert LIMITS.least_answer_bytes <= answer_room(100_000, 1) < LIMITS.answer_bytes
    many = [case.model_copy(update={"case_id": f"c{n}"}) for case in LOADED[:1] for n in range(120)]
    with pytest.raises(SettingsInvalid, match="120 cases x 1000 trials are more than one record") as caught:
        build_plan(TASK_CLASS, tuple(many), ALL, RunOptions(trials=1_000))
    assert "--trials" in str(caught.value.hint)
    assert build_plan(TASK_CLASS, tuple(many), ALL, RunOptions(trials=990)).options.trials == 990


def test_a_filter_without_end_is_described_by_its_beginning() -> None:
    described = CaseSelection.by([f"case-{number}" for number in range(1_000)]).describe()

    assert described is not None
    assert (len(described), described[-1]) == (LIMITS.text_characters, "…")
