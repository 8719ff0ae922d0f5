"""A report as text: the bound, the faults and the blocked cases first; nothing is shown too high."""

import datetime as dt
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.cli.progress import LineProgress, LiveProgress
from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.models import (
    BenchRunReport,
    BenchScore,
    FailureMode,
    Selection,
    Severity,
    SutIdentity,
    TrialScore,
)
from codegenie.eval.reporting.run_text import render_report

NOW = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
ZERO = "0" * 64


def a_trial(case_id: str, trial: int) -> TrialEvidence:
    answer = Answer(passed=False, score=0.0)
    return TrialEvidence(case_id=case_id, trial=trial, answer=answer, cost_usd=None, wall_clock_ms=0)


def report_of(scores: dict[str, BenchScore], **fields: object) -> BenchRunReport:
    values: dict[str, object] = {
        "run_id": "20261115T000000Z-00000000",
        "task_class": "built-class",
        "harness_version": "0",
        "sut": SutIdentity(spec="null"),
        "sut_identity_digest": ZERO,
        "rubric_digest": ZERO,
        "taxonomy_digest": ZERO,
        "case_set_digest": ZERO,
        "sut_boundary": "harness",
        "isolation_class": "subprocess",
        "selection": Selection(kind="all", available_cases=len(scores)),
        "trials": 1,
        "started_at": NOW,
        "ended_at": NOW,
        "per_case": tuple(sorted(scores.items())),
        "mean_score": 0.7999,
        "score_stddev": 0.1,
        "lower_bound_95": 0.79999999,
        "lower_bound_95_status": "ok",
        "certified_lower_95": 0.5,
        "gaffke_lower_95": 0.5999,
        "units": len(scores),
        "units_passed": sum(score.passed for score in scores.values()),
        "passed_count": sum(score.passed for score in scores.values()),
        "scored_count": len(scores),
        "sut_fault_count": 0,
        "bench_fault_count": 0,
        "infrastructure_fault_count": 0,
        "total_cost_usd": None,
        "block_severity_failure_modes": (),
        "complete": True,
    }
    return BenchRunReport.model_validate({**values, **fields})


def blocked(*codes: str) -> BenchScore:
    modes = tuple(FailureMode(code=code, severity=Severity.BLOCK, detail="why") for code in codes)
    return BenchScore(passed=False, score=0.0, failure_modes=modes)


PASSED = BenchScore(passed=True, score=1.0)
MISSED = BenchScore(
    passed=False, score=0.7999, failure_modes=(FailureMode(code="answer.noted", severity=Severity.INFO),)
)


def test_blocked_cases_come_first_with_their_exact_number_however_many_there_are() -> None:
    scores = {f"a{n:03}": PASSED for n in range(50)} | {f"m{n:03}": MISSED for n in range(40)}
    scores |= {f"z{n:03}": blocked("answer.wrong") for n in range(30)}
    lines = render_report(report_of(scores))

    start = lines.index("blocked          30 cases")
    assert [line.split()[0] for line in lines[start + 1 : start + 21]] == [f"z{n:03}" for n in range(20)]
    assert lines[start + 21] == "  … and 10 more; --json names them all"
    assert lines[start + 22] == "not passed       40 cases"
    assert lines[-1] == "passed           50 of 120 cases"
    assert start == 7


def test_the_reasons_of_a_case_are_counted_when_they_are_too_many_to_show() -> None:
    lines = render_report(report_of({"a": blocked("e.one", "e.two", "e.three", "e.four", "e.five")}))

    assert "  a  0.000  e.one (why); e.two (why); e.three (why); and 2 more" in lines


def test_a_block_is_shown_before_what_is_only_noted() -> None:
    modes = tuple(FailureMode(code=f"n.n{n}", severity=Severity.INFO) for n in range(9))
    block = FailureMode(code="answer.wrong", severity=Severity.BLOCK)
    lines = render_report(
        report_of({"a": BenchScore(passed=False, score=0.0, failure_modes=(*modes, block))})
    )

    assert "  a  0.000  answer.wrong; n.n0; n.n1; and 7 more" in lines


def test_every_number_is_rounded_down() -> None:
    lines = render_report(report_of({"a": PASSED, "b": MISSED}))

    bounds = lines.index("lower bound 95 % 0.799 BCa")
    assert lines[bounds + 1].startswith("certified 95 %   0.500 on 1 of 2 units passed · Gaffke 0.599 on")
    assert lines[bounds + 2] == "mean             0.799 ± 0.100"
    assert "  b  0.799  answer.noted" in lines


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.7999, "0.799"),
        (0.8, "0.800"),
        (0.57, "0.570"),
        (1.0, "1.000"),
        (0.0, "0.000"),
        (0.9999999, "0.999"),
    ],
)
def test_three_decimals_never_more_than_there_is(value: float, shown: str) -> None:
    assert floor3(value) == shown


@given(st.floats(0, 1))
def test_what_is_shown_is_never_higher_and_never_a_thousandth_lower(value: float) -> None:
    shown = Decimal(floor3(value))

    assert float(shown) <= value
    assert Decimal(value) - shown < Decimal("0.0010001")


def test_an_incomplete_and_partial_report_says_so_in_its_first_line() -> None:
    selection = Selection(kind="partial", case_filter="a*", available_cases=9)
    first, *rest = render_report(report_of({"a": PASSED}, complete=False, selection=selection))

    assert first.endswith("INCOMPLETE, PARTIAL (1 of 9 cases)")
    assert "cost unknown" in "\n".join(rest)


def test_outputs_from_the_store_are_counted_where_there_are_any() -> None:
    report = report_of({"one": BenchScore(passed=False, score=0.0)}, trials=3)

    assert "reused           2 of 3 outputs from the store; --no-cache asks again" in render_report(report, 2)
    assert not any("store" in line for line in render_report(report))


def test_a_bound_that_is_not_a_bootstraps_says_what_it_is() -> None:
    lines = render_report(report_of({"a": PASSED}, lower_bound_95_status="degenerate", gaffke_lower_95=None))

    assert lines[2] == "lower bound 95 % 0.799 BCa (degenerate: certified value)"
    assert "Gaffke" not in lines[3]


SCORE = TrialScore(passed=True, score=0.9999)


def test_plain_progress_is_one_line_a_trial() -> None:
    stream = io.StringIO()
    progress = LineProgress(3, stream)
    progress.finished(a_trial("a", 0), SCORE)
    progress.finished(a_trial("a", 1), TrialScore(passed=False, score=0.5))
    progress.finished(a_trial("b", 0), blocked("answer.wrong"))

    assert stream.getvalue() == (
        "[1/3] a: passed, score 0.999\n"
        "[2/3] a#1: not passed, score 0.500\n"
        "[3/3] b: answer.wrong, score 0.000\n"
    )


def test_live_progress_is_one_line_that_is_rewritten_and_cleared() -> None:
    stream = io.StringIO()
    progress = LiveProgress(2, stream)
    progress.finished(a_trial("a", 0), SCORE)
    progress.finished(a_trial("b", 0), blocked("answer.wrong"))
    progress.close()

    assert "\n" not in stream.getvalue()
    assert stream.getvalue().split("\r\x1b[2K")[2:] == [
        "2/2 done · 1 passed · 1 blocked · b: answer.wrong, score 0.000",
        "",
    ]


class ClosedStream(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("kind", [LineProgress, LiveProgress])
def test_a_reader_that_went_away_ends_no_run(kind: type[LineProgress] | type[LiveProgress]) -> None:
    kind(1, ClosedStream()).finished(a_trial("a", 0), SCORE)
