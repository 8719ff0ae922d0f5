"""Which runs of a log look at one candidate, and which were tries at the same cases by others."""

import datetime as dt
from typing import Any

from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.log.chain import Link, make_record
from codegenie.eval.log.records import RunAbandoned, RunFinished, RunStarted
from codegenie.eval.log.runs import History, Look, RunEntry
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.validation import failed
from tests.support.gate import NOW, cases, report, started

SPEC = "python:agent:solve"


class Desk:
    """A log that is told record by record."""

    def __init__(self) -> None:
        self.history = History()
        self._index = 0

    def start(self, sut: SutIdentity, boundary: SutBoundary = "process", **changes: Any) -> RunEntry:  # noqa: ANN401
        """Start a run of this agent."""
        body = started(4, sut=sut, sut_boundary=boundary, **changes)
        run_id = f"run-{self._index}"
        record = make_record(body, Link(self._index), run_id, NOW)
        self._index += 1
        self.history.add(record, "0" * 64)
        return self.history.runs[run_id]


def agent(code: str, tree: str | None, spec: str = SPEC, version: str | None = None) -> SutIdentity:
    return SutIdentity(spec=spec, version=version, digest=code * 64, syntax=tree and tree * 64)


def test_a_candidate_is_known_by_its_bytes_or_by_its_tree_and_by_what_they_lead_to() -> None:
    desk = Desk()
    older = desk.start(agent("a", None))
    desk.start(agent("a", "1", version="2"))
    commented = desk.start(agent("b", "1"))
    other = desk.start(agent("c", "2"))

    assert [desk.history.unfinished(entry) for entry in (older, commented, other)] == [2, 2, 0]
    assert [desk.history.candidates_tried(entry) for entry in (older, commented, other)] == [2, 2, 3]


def test_two_agents_without_a_tree_are_not_the_same_for_that() -> None:
    desk = Desk()
    first = desk.start(agent("a", None))
    desk.start(agent("b", None))

    assert (desk.history.unfinished(first), desk.history.candidates_tried(first)) == (0, 2)


def test_another_name_or_variable_is_another_candidate_and_is_counted() -> None:
    desk = Desk()
    first = desk.start(agent("a", "1"))
    desk.start(agent("a", "1", f"{SPEC}.again"))
    desk.start(agent("a", "1", f"{SPEC} --sut-env MODEL:0123"))

    assert desk.history.unfinished(first) == 0
    assert (desk.history.candidates_tried(first), desk.history.elsewhere(first)) == (3, 2)
    assert desk.history.agents("fix-bugs") == [SPEC, f"{SPEC}.again"]


def test_the_harness_own_systems_are_no_candidates() -> None:
    desk = Desk()
    first = desk.start(agent("a", "1"))
    desk.start(SutIdentity(spec="oracle"), "harness")

    assert (desk.history.candidates_tried(first), desk.history.elsewhere(first)) == (1, 0)
    assert desk.history.agents("fix-bugs") == ["oracle", SPEC]


def test_tries_on_one_shared_input_count_and_those_on_others_do_not() -> None:
    desk = Desk()
    first = desk.start(agent("a", "1"))
    desk.start(agent("b", "2"), rubric_digest="9" * 64)
    desk.start(agent("c", "3"), cases=cases(4)[3:])
    fresh = tuple(case.model_copy(update={"input_digest": "f" * 64}) for case in cases(4))
    desk.start(agent("d", "4"), cases=fresh)
    # The same agent on other cases is told, and is no other candidate.
    desk.start(agent("a", "1"), cases=fresh, case_set_digest="8" * 64)

    assert (desk.history.candidates_tried(first), desk.history.elsewhere(first)) == (3, 3)


def test_the_newest_start_of_an_agent_decides_and_partial_ones_are_passed_over() -> None:
    desk = Desk()
    desk.start(agent("a", "1"))
    newest = desk.start(agent("b", "2"))
    some = started(4).selection.model_copy(update={"kind": "partial"})
    desk.start(agent("b", "2"), selection=some)
    desk.start(agent("b", "2", "python:other:solve"))

    assert desk.history.newest_start("fix-bugs", SPEC) is newest
    assert desk.history.newest_start("fix-bugs", "python:nobody:solve") is None
    assert desk.history.newest_start("other-class", SPEC) is None


def test_a_run_that_was_given_up_is_no_longer_open() -> None:
    desk = Desk()
    first, second = desk.start(agent("a", "1")), desk.start(agent("a", "1"))
    body = RunAbandoned(because="the disk was lost")
    record = make_record(body, Link(2), second.run_id, NOW)
    desk.history.add(record, "0" * 64)

    assert (second.is_open, second.abandoned) == (False, "the disk was lost")
    assert desk.history.unfinished(first) == 0
    assert desk.history.abandoned(first) == (second.run_id,)


def finish(start: RunStarted, passed: int, *, twice: tuple[int, ...] = ()) -> Look:
    """Return the look of a run of four cases, of which some were asked twice."""
    trials = tuple(
        TrialEvidence(
            case_id=case.case_id,
            trial=0,
            answer=failed("sut.exception", "made up"),
            cost_usd=None,
            wall_clock_ms=0,
            interrupted=int(number in twice),
        )
        for number, case in enumerate(start.cases)
    )
    return Look.of(RunFinished(report=report(4, passed), trials=trials), start, NOW - dt.timedelta(hours=1))


def test_a_look_counts_the_units_that_hold_a_trial_that_was_asked_twice() -> None:
    start = started(4, unit_rule="family-or-input")

    assert finish(start, 4).interrupted_units == 0
    look = finish(start, 3, twice=(0, 3))
    assert (look.units, look.units_passed) == (4, 3)
    assert (look.interrupted_units, look.interrupted_units_passed) == (2, 1)
    assert look.interrupted_cases_passed == 1


def test_a_whole_unit_is_lost_by_one_of_its_cases_and_older_looks_have_the_units_of_today() -> None:
    joined = tuple(case.model_copy(update={"input_digest": "f" * 64}) for case in cases(2))
    start = started(4, cases=(*joined, *cases(4)[2:]))

    look = finish(start, 4, twice=(1,))
    assert (look.units, look.units_passed) == (3, 3)
    assert (look.interrupted_units_passed, look.interrupted_cases_passed) == (1, 2)
