"""Every record is frozen, closed, strict and finite, and no field is named after a banned word."""

import copy
import datetime as dt
import importlib
import math
import pickle
import pkgutil
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import codegenie.eval
from codegenie.eval.breakdown import banned_part
from codegenie.eval.log.records import RUN_FACTS, RunStarted
from codegenie.eval.models import (
    MICRO,
    BenchCase,
    BenchRunReport,
    FailureMode,
    FrozenMap,
    Record,
    RunHeader,
    RunOptions,
    Severity,
    TrialScore,
    quantise,
)

PROGRAMS = ("codegenie_rubric", "python_child", "zygote", "child")


def every_module_is_loaded() -> None:
    for module in pkgutil.walk_packages(codegenie.eval.__path__, "codegenie.eval."):
        if not module.name.endswith(PROGRAMS):
            importlib.import_module(module.name)


def descendants(kind: type[Record]) -> Iterator[type[Record]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


every_module_is_loaded()
RECORDS = sorted(set(descendants(Record)), key=lambda record: record.__qualname__)


def test_the_records_that_the_line_needs_are_looked_at() -> None:
    assert {"BenchRunReport", "BenchScore", "FailureMode", "RunPlan", "_Answer"} <= {
        r.__name__ for r in RECORDS
    }


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_is_frozen_closed_strict_and_finite(record: type[Record]) -> None:
    wanted = {"frozen": True, "extra": "forbid", "strict": True, "allow_inf_nan": False}

    assert {name: record.model_config.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_no_field_is_named_after_a_banned_word(record: type[Record]) -> None:
    names = [*record.model_fields, *(field.alias for field in record.model_fields.values() if field.alias)]

    assert [(name, banned_part(name)) for name in names if banned_part(name)] == []


def test_the_report_has_exactly_the_fields_of_the_contract() -> None:
    # The schema is closed: a field more or less is a new version of it.
    assert sorted(field.alias or name for name, field in BenchRunReport.model_fields.items()) == [
        "bench_fault_count",
        "block_severity_failure_modes",
        "case_set_digest",
        "certified_lower_95",
        "complete",
        "ended_at",
        "gaffke_lower_95",
        "harness_version",
        "infrastructure_fault_count",
        "isolation_class",
        "lower_bound_95",
        "lower_bound_95_status",
        "mean_score",
        "passed_count",
        "per_case",
        "policy_digest",
        "provenance",
        "rubric_digest",
        "run_id",
        "schema",
        "score_stddev",
        "scored_count",
        "selection",
        "started_at",
        "sut",
        "sut_boundary",
        "sut_fault_count",
        "sut_identity_digest",
        "sut_network",
        "sut_upstream",
        "task_class",
        "taxonomy_digest",
        "total_cost_usd",
        "trials",
        "units",
        "units_passed",
    ]


SCORE: dict[str, Any] = {"passed": True, "score": 0.5, "breakdown": {"accuracy": 0.5}}
CASE: dict[str, Any] = {
    "case_id": "a",
    "task_class": "t",
    "disposition": "positive",
    "difficulty": "easy",
    "source": "curated",
    "curation_class": "held-out",
    "family": "a",
    "added_at": dt.date(2026, 11, 15),
    "last_validated_at": dt.date(2026, 11, 15),
    "digest": "0" * 64,
    "input_digest": "0" * 64,
}
REFUSED: list[tuple[type[Record], dict[str, Any]]] = [
    (TrialScore, {**SCORE, "score": math.nan}),
    (TrialScore, {**SCORE, "score": math.inf}),
    (TrialScore, {**SCORE, "score": "0.5"}),
    (TrialScore, {**SCORE, "score": True}),
    (TrialScore, {**SCORE, "score": 1.1}),
    (TrialScore, {**SCORE, "score": -0.1}),
    (TrialScore, {**SCORE, "score": 0.0}),
    (TrialScore, {**SCORE, "score": None}),
    (TrialScore, {**SCORE, "passed": 1}),
    (TrialScore, {**SCORE, "breakdown": {"accuracy": math.nan}}),
    (TrialScore, {**SCORE, "breakdown": {"accuracy": 2}}),
    (TrialScore, {**SCORE, "breakdown": {1: 0.5}}),
    (TrialScore, {**SCORE, "cost_usd": math.nan}),
    (TrialScore, {**SCORE, "cost_usd": -1.0}),
    (TrialScore, {**SCORE, "cost_usd": 1e300}),
    (TrialScore, {**SCORE, "wall_clock_ms": 1.5}),
    (TrialScore, {**SCORE, "wall_clock_ms": -1}),
    (TrialScore, {**SCORE, "extra": 1}),
    (TrialScore, {**SCORE, "failure_modes": (FailureMode(code="a", severity=Severity.BLOCK),)}),
    (TrialScore, {**SCORE, "failure_modes": [FailureMode(code="a", severity=Severity.INFO)]}),
    (FailureMode, {"code": "A", "severity": Severity.BLOCK}),
    (FailureMode, {"code": "a\n", "severity": Severity.BLOCK}),
    (FailureMode, {"code": "a", "severity": "block"}),
    (FailureMode, {"code": "a", "severity": Severity.BLOCK, "detail": "two\nlines"}),
    (FailureMode, {"code": "a", "severity": Severity.BLOCK, "detail": "\x1b[31m"}),
    (FailureMode, {"code": "a", "severity": Severity.BLOCK, "detail": "x" * 201}),
    (BenchCase, {**CASE, "case_id": "A"}),
    (BenchCase, {**CASE, "case_id": "a\n"}),
    (BenchCase, {**CASE, "case_id": "../a"}),
    (BenchCase, {**CASE, "added_at": "2026-11-15"}),
    (BenchCase, {**CASE, "source": "regression-converted"}),
    (BenchCase, {**CASE, "rubric_wall_clock_seconds": 301}),
    (BenchCase, {**CASE, "rubric_wall_clock_seconds": True}),
    (BenchCase, {**CASE, "sut_wall_clock_seconds": 1.0}),
    (RunOptions, {"trials": 0}),
    (RunOptions, {"trials": True}),
    (RunOptions, {"concurrency": 257}),
    (RunOptions, {"timeout_seconds": 0.0}),
    (RunOptions, {"timeout_seconds": math.nan}),
    (RunOptions, {"max_cost_usd": math.inf}),
    (RunOptions, {"isolation": "none"}),
]


@pytest.mark.parametrize(
    ("record", "fields"), REFUSED, ids=[f"{r.__name__}-{n}" for n, (r, _) in enumerate(REFUSED)]
)
def test_what_is_not_exactly_right_is_no_record(record: type[Record], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        record(**fields)


def test_their_twins_are_records() -> None:
    assert TrialScore(**SCORE).score == 0.5
    assert BenchCase(**CASE, rubric_wall_clock_seconds=300).family == "a"
    assert RunOptions(timeout_seconds=0.1).concurrency == 2
    assert FailureMode(code="a", severity=Severity.BLOCK, detail="x" * 200).code == "a"


def test_a_report_repeats_from_its_start_every_field_that_both_have() -> None:
    assert sorted(RUN_FACTS) == sorted(RunHeader.model_fields.keys() & RunStarted.model_fields.keys())


def test_a_record_does_not_change() -> None:
    score = TrialScore(**SCORE)
    with pytest.raises(ValidationError):
        score.score = 1.0
    with pytest.raises(ValidationError):
        del score.score
    with pytest.raises(TypeError):
        score.breakdown["accuracy"] = 1.0
    assert score == TrialScore(**SCORE)


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda mapping: mapping.__setitem__("a", 2),
    lambda mapping: mapping.__delitem__("a"),
    lambda mapping: mapping.update(a=2),
    lambda mapping: mapping.pop("a"),
    lambda mapping: mapping.popitem(),
    lambda mapping: mapping.clear(),
    lambda mapping: mapping.setdefault("b", 2),
    lambda mapping: mapping.__ior__({"a": 2}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_frozen_map_cannot_be_changed(change: Callable[[dict[str, Any]], object]) -> None:
    mapping = FrozenMap({"a": 1})
    with pytest.raises(TypeError, match="records do not change"):
        change(mapping)
    assert mapping == {"a": 1}


def test_a_frozen_map_is_copied_and_pickled_as_one() -> None:
    mapping = FrozenMap({"a": 1})

    for copied in (copy.copy(mapping), copy.deepcopy(mapping), pickle.loads(pickle.dumps(mapping))):  # noqa: S301 - our own
        assert copied == mapping
        assert isinstance(copied, FrozenMap)


@given(st.floats(0, 1))
def test_a_score_is_a_whole_number_of_millionths_near_what_was_written(score: float) -> None:
    kept = quantise(score)

    assert abs(kept - score) <= 0.5 / MICRO + 1e-12
    assert quantise(kept) == kept
    assert round(kept * MICRO) / MICRO == kept
    assert math.copysign(1, kept) == 1


def test_a_detail_is_judged_alike_by_every_python() -> None:
    """A character that is newer than this interpreter's Unicode is no forgery: another Python wrote it."""
    unassigned = "\U0001fadd"
    assert (
        FailureMode(code="a", severity=Severity.WARN, detail=f"new {unassigned}").detail
        == f"new {unassigned}"
    )


def test_what_steers_a_terminal_is_in_no_detail() -> None:
    """Every character that this Python assigns and cannot print is in the list, and nothing printable is."""
    for number in range(0x110000):
        character = chr(number)
        if character.isprintable() or unicodedata.category(character) == "Cn":
            continue
        with pytest.raises(ValidationError):
            FailureMode(code="a", severity=Severity.WARN, detail=character)


def test_everything_printable_may_stand_in_a_detail() -> None:
    shown = "".join(filter(str.isprintable, map(chr, range(0x110000))))
    lines = [shown[start : start + 200] for start in range(0, len(shown), 200)]
    assert [FailureMode(code="a", severity=Severity.WARN, detail=line).detail for line in lines] == lines
