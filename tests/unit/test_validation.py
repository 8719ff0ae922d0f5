"""Every clause of the rubric wire and of the seven codes, as a table from bytes to verdict."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.evidence import answer_weight, apply_block_rule
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import FailureModeSpec, Severity, TaskClass, TrialScore
from codegenie.eval.ports import RubricRun
from codegenie.eval.sanitising import Redactor
from codegenie.eval.validation import bounded, failed, judge
from tests.support.benches import BREAKDOWN_KEYS, OWN_MODES, RUNNER_CODES

SECRET = "sk-live-0123456789abcdef"
LONG_SECRET = "Zq7" * 30
ENVIRONMENT = {"API_KEY": SECRET, "LONG_KEY": LONG_SECRET, "HOME": "/home/somebody"}
MALFORMED = "rubric.malformed_output"
PERFECT = {"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}

RUN = RubricRun(
    stdout=json.dumps(PERFECT).encode(),
    stdout_truncated=False,
    stderr=b"",
    exit_code=0,
    signal=None,
    timed_out=False,
    leaked_processes=0,
)


def task_class(keys: tuple[str, ...] = BREAKDOWN_KEYS) -> TaskClass:
    severities = {**dict.fromkeys(RUNNER_CODES, "block"), **OWN_MODES}
    return TaskClass(
        name="built-class",
        directory=Path("/nowhere"),
        breakdown_keys=keys,
        taxonomy={
            code: FailureModeSpec(severity=Severity(severity), description="made for a test")
            for code, severity in severities.items()
        },
        min_cases_for_promotion={},
        rubric=(),
        rubric_digest="0" * 64,
        taxonomy_digest="0" * 64,
    )


def judged(run: RubricRun, keys: tuple[str, ...] = BREAKDOWN_KEYS) -> TrialScore:
    return apply_block_rule(judge(run, task_class(keys), Redactor(ENVIRONMENT)), None, 0)


def judged_bytes(stdout: bytes) -> TrialScore:
    return judged(replace(RUN, stdout=stdout))


def answered(**fields: object) -> TrialScore:
    return judged_bytes(json.dumps({**PERFECT, **fields}).encode())


def refused(verdict: TrialScore, code: str = MALFORMED) -> str:
    """Check that a verdict is one refusal and nothing else; return its detail."""
    assert (verdict.passed, verdict.score, verdict.breakdown) == (False, 0.0, {})
    [mode] = verdict.failure_modes
    assert (mode.code, mode.severity) == (code, Severity.BLOCK)
    return mode.detail or ""


def test_a_well_formed_answer_is_taken_as_it_is() -> None:
    verdict = answered(score=0.25, breakdown={"accuracy": 0.5}, cost_usd=3, wall_clock_ms=1.5)

    assert verdict == TrialScore(passed=True, score=0.25, breakdown={"accuracy": 0.5})


def test_a_whole_number_is_a_score() -> None:
    assert answered(score=1).score == 1.0


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        (b"", "stdout: empty"),
        (b" \n\t ", "stdout: empty"),
        (b"not json", "stdout: not one JSON document"),
        (b'{"passed": true', "stdout: not one JSON document"),
        (b"[]", "answer: "),
        (b'"perfect"', "answer: "),
        (b"1.0", "answer: "),
        (b"null", "answer: "),
        (RUN.stdout + RUN.stdout, "Extra data"),
        (RUN.stdout + b"\n" + RUN.stdout, "Extra data"),
        (b"score: 1.0\n" + RUN.stdout, "stdout: not one JSON document"),
        (RUN.stdout + b"\nall good", "Extra data"),
        (RUN.stdout + b"\x00", "Extra data"),
        (b"\xef\xbb\xbf" + RUN.stdout, "byte order mark"),
        (RUN.stdout.decode().encode("utf-16"), "not UTF-8"),
        (RUN.stdout[:-1] + b', "note": "\xff\xfe"}', "not UTF-8"),
        (RUN.stdout[:-1] + rb', "note": "\ud800"}', "surrogate"),
        (b"[" * 100_000, "nested"),
        (b"[" * 40 + b"]" * 40, "nested"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested"),
    ],
)
def test_anything_but_one_json_object_is_malformed(stdout: bytes, said: str) -> None:
    assert said in refused(judged_bytes(stdout))


@pytest.mark.parametrize(
    "number",
    [
        *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "1" * 5_000, "1e308"),
        *('"nan"', '"1"', '"1.0"', "true", "false", "null", "[1]", '{"value": 1}'),
        *("1.0000011", "2", "-0.000001", "-1"),
    ],
)
@pytest.mark.parametrize("place", ["score", "breakdown"])
def test_a_number_that_is_no_share_is_malformed(number: str, place: str) -> None:
    value = number if place == "score" else f'{{"accuracy": {number}}}'
    fields = {"passed": "true", "score": "1", "breakdown": "{}", "failure_modes": "[]", place: value}
    stdout = "{" + ", ".join(f'"{name}": {written}' for name, written in fields.items()) + "}"

    assert refused(judged_bytes(stdout.encode()))


@pytest.mark.parametrize("passed", ["true", "yes", 1, 0, 1.0, None, [], {}])
def test_passed_is_a_boolean_and_nothing_like_one(passed: object) -> None:
    assert refused(answered(passed=passed)).startswith("answer: passed")


@pytest.mark.parametrize("missing", ["passed", "score", "breakdown", "failure_modes"])
def test_every_field_of_the_answer_is_required(missing: str) -> None:
    fields = {name: value for name, value in PERFECT.items() if name != missing}

    assert refused(judged_bytes(json.dumps(fields).encode())) == f"answer: {missing}: Field required"


@pytest.mark.parametrize(
    "extra", [{"confidence": 1.0}, {"Score": 1.0}, {"score ": 1.0}, {"sut": "x"}, {"": None}]
)
def test_an_unknown_field_is_malformed(extra: Mapping[str, Any]) -> None:
    assert refused(answered(**extra)).startswith("answer: ")


@pytest.mark.parametrize("field", ["cost_usd", "wall_clock_ms"])
@pytest.mark.parametrize("value", ["1", True, -1, [1]])
def test_what_the_runner_ignores_must_still_be_well_formed(field: str, value: object) -> None:
    assert refused(answered(**{field: value})).startswith(f"answer: {field}")


@pytest.mark.parametrize(
    "stdout",
    [
        b'{"passed": false, "score": 0, "score": 1, "breakdown": {}, "failure_modes": []}',
        b'{"passed": true, "score": 1, "breakdown": {"accuracy": 0, "accuracy": 1}, "failure_modes": []}',
        b'{"passed": true, "score": 1, "breakdown": {}, "failure_modes": [{"code": "a", "code": "b"}]}',
        rb'{"passed": true, "score": 1, "scor\u0065": 0, "breakdown": {}, "failure_modes": []}',
    ],
    ids=["depth 0", "depth 1", "depth 2", "spelled with an escape"],
)
def test_a_key_that_appears_twice_is_malformed_at_any_depth(stdout: bytes) -> None:
    assert "twice" in refused(judged_bytes(stdout))


def test_an_answer_over_the_cap_is_malformed_even_when_it_would_be_valid_when_cut() -> None:
    padded = RUN.stdout + b" " * LIMITS.rubric_stdout_bytes
    run = replace(RUN, stdout=padded[: LIMITS.rubric_stdout_bytes], stdout_truncated=True)

    assert refused(judged(run)) == "resource_limit:stdout"


@pytest.mark.parametrize("field", ["failure_modes", "breakdown"])
def test_a_million_entries_are_refused_in_one_short_line(field: str) -> None:
    entries: object = (
        [{"code": "a"}] * 70_000 if field == "failure_modes" else {f"k{n}": 1 for n in range(90_000)}
    )
    stdout = json.dumps({**PERFECT, field: entries}, separators=(",", ":")).encode()
    assert len(stdout) <= LIMITS.rubric_stdout_bytes

    assert refused(judged_bytes(stdout)).startswith(f"answer: {field}")


def test_passed_with_nothing_scored_is_malformed() -> None:
    assert refused(answered(score=0)) == "answer: passed with score 0"
    assert refused(answered(score=-0.0)) == "answer: passed with score 0"
    assert refused(answered(score=4e-7)) == "answer: passed with score 0"


def test_not_passed_may_have_any_score() -> None:
    assert answered(passed=False, score=0.9) == TrialScore(passed=False, score=0.9)


@pytest.mark.parametrize(
    ("written", "kept"),
    [(0.12345678901234567, 0.123457), (0.1 + 0.2, 0.3), (1 - 1e-9, 1.0), (5e-324, 0.0), (1e-6, 1e-6)],
)
def test_scores_are_whole_millionths(written: float, kept: float) -> None:
    verdict = answered(passed=False, score=written, breakdown={"accuracy": written})

    assert repr(verdict.score) == repr(kept)
    assert repr(verdict.breakdown["accuracy"]) == repr(kept)


def test_a_negative_zero_becomes_a_plain_one() -> None:
    verdict = answered(passed=False, score=-0.0, breakdown={"accuracy": -0.0})

    assert repr((verdict.score, verdict.breakdown)) == "(0.0, {'accuracy': 0.0})"


# --- breakdown keys -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "speed",
        "Accuracy",
        "accuracy ",
        "\u0430ccuracy",
        "accuracy.x",
        "llm_score",
        "model_says_ok",
        "accuracÿ",
    ],
)
def test_an_undeclared_key_is_named_and_left_out_and_takes_the_score(key: str) -> None:
    verdict = answered(breakdown={key: 1.0, "accuracy": 0.5})

    assert (verdict.passed, verdict.score, verdict.breakdown) == (False, 0.0, {"accuracy": 0.5})
    [mode] = verdict.failure_modes
    assert (mode.code, mode.detail) == ("rubric.unknown_breakdown_key", key.strip())


@pytest.mark.parametrize("key", ["confidence", "self_reported_score", "c.o.n.f.i.d.e.n.c.e", "model_says"])
def test_a_banned_key_is_refused_at_run_time_even_when_the_bench_declares_it(key: str) -> None:
    run = replace(RUN, stdout=json.dumps({**PERFECT, "breakdown": {key: 1.0}}).encode())
    verdict = judged(run, (*BREAKDOWN_KEYS, key))

    assert (verdict.passed, verdict.score, verdict.breakdown) == (False, 0.0, {})
    assert [(mode.code, mode.detail) for mode in verdict.failure_modes] == [
        ("rubric.unknown_breakdown_key", key)
    ]


def test_at_most_sixteen_unknown_keys_are_named_and_always_the_same_ones() -> None:
    keys = [f"k{n:02}" for n in range(40)]
    forwards = answered(breakdown=dict.fromkeys(keys, 1.0))
    backwards = answered(breakdown=dict.fromkeys(reversed(keys), 1.0))

    assert [mode.detail for mode in forwards.failure_modes] == keys[:16]
    assert forwards == backwards


def test_declared_keys_may_be_absent_and_need_not_add_up_to_the_score() -> None:
    assert answered(score=1.0, breakdown={"accuracy": 0.0}) == TrialScore(
        passed=True, score=1.0, breakdown={"accuracy": 0.0}
    )


# --- failure modes --------------------------------------------------------------------------------


@pytest.mark.parametrize("suggested", ["info", "warn", "nonsense", None])
def test_the_taxonomy_decides_the_severity_and_a_block_takes_the_score(suggested: str | None) -> None:
    verdict = answered(failure_modes=[{"code": "answer.wrong", "severity": suggested, "detail": "no"}])

    assert (verdict.passed, verdict.score) == (False, 0.0)
    assert [(mode.code, mode.severity) for mode in verdict.failure_modes] == [
        ("answer.wrong", Severity.BLOCK)
    ]


def test_a_suggested_block_of_a_warning_is_not_followed_either() -> None:
    verdict = answered(failure_modes=[{"code": "answer.sloppy", "severity": "block", "detail": None}])

    assert (verdict.passed, verdict.score) == (True, 1.0)
    assert verdict.failure_modes[0].severity is Severity.WARN


@pytest.mark.parametrize("code", [*RUNNER_CODES, "sut.", "sut.anything", "rubric.new"])
def test_a_rubric_cannot_use_the_runners_own_codes(code: str) -> None:
    verdict = answered(failure_modes=[{"code": code, "severity": "info"}])

    assert (verdict.passed, verdict.score) == (False, 0.0)
    [mode] = verdict.failure_modes
    assert (mode.code, mode.detail) == ("rubric.unknown_failure_mode", f"reserved_code:{code}")


@pytest.mark.parametrize("code", ["answer.unheard_of", "", "ANSWER.WRONG", "answer.wrong\u200b", "x" * 500])
def test_a_code_outside_the_taxonomy_blocks(code: str) -> None:
    verdict = answered(failure_modes=[{"code": code, "severity": "info"}])

    assert (verdict.passed, verdict.score) == (False, 0.0)
    assert [mode.code for mode in verdict.failure_modes] == ["rubric.unknown_failure_mode"]


@pytest.mark.parametrize(
    "mode",
    [
        *("answer.wrong", None, {}, {"severity": "block"}, {"code": 1}),
        *({"code": "answer.wrong", "detail": 3}, {"code": "answer.wrong", "extra": 1}),
    ],
)
def test_a_failure_mode_of_another_shape_is_malformed(mode: object) -> None:
    assert refused(answered(failure_modes=[mode])).startswith("answer: failure_modes.0")


def test_a_detail_becomes_one_printable_line_of_at_most_two_hundred_characters() -> None:
    hostile = "a\nb\r\x1b[31mred\x1b]8;;http://x\x07\x9b2J\u202egnp.exe\u2066\u200b\x00" + "é" * 500
    verdict = answered(failure_modes=[{"code": "answer.noted", "detail": hostile}])

    detail = verdict.failure_modes[0].detail or ""
    assert len(detail) == 200
    assert detail.isprintable()
    assert detail.startswith("a b \ufffd[31mred\ufffd]8;;http://x\ufffd\ufffd2J\ufffdgnp.exe")


# --- how the child ended --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "detail"),
    [
        ({"exit_code": 3}, "exit:3"),
        ({"exit_code": 1, "stderr": b"one\n  two  \n\n"}, "exit:1: two"),
        ({"exit_code": 1, "stderr": b"Traceback\nMemoryError\n"}, "resource_limit:memory"),
        ({"exit_code": 1, "stderr": b"OSError: [Errno 27] File too large\n"}, "resource_limit:file_size"),
        (
            {"exit_code": 1, "stderr": b"OSError: [Errno 27] File too large: 'x'\n"},
            "resource_limit:file_size",
        ),
        ({"exit_code": 1, "stderr": b"\x1b[2Jdone\xff\n"}, "exit:1: \ufffd[2Jdone\ufffd"),
        ({"exit_code": None, "signal": "SEGV"}, "signal:SEGV"),
        ({"exit_code": None, "signal": "KILL"}, "signal:KILL"),
        ({"exit_code": None, "signal": "XCPU"}, "resource_limit:cpu"),
        ({"exit_code": None, "signal": "XFSZ"}, "resource_limit:file_size"),
        ({"exit_code": None}, "supervisor_killed"),
        ({"leaked_processes": 1}, "process_leak"),
        ({"leaked_processes": 1, "exit_code": 2}, "exit:2"),
    ],
)
def test_a_perfect_answer_counts_only_after_an_orderly_end(end: dict[str, Any], detail: str) -> None:
    assert refused(judged(replace(RUN, **end))) == detail


def test_a_deadline_that_passed_comes_before_everything_else() -> None:
    run = replace(RUN, timed_out=True, exit_code=None, stdout_truncated=True, leaked_processes=9)

    assert refused(judged(run), "rubric.timeout") == ""


# What a record has room for.


def noting(count: int, detail: str) -> RubricRun:
    notes = [{"code": "answer.noted", "detail": f"{number:03}{detail}"} for number in range(count)]
    return replace(RUN, stdout=json.dumps({**PERFECT, "failure_modes": notes}).encode())


def test_an_answer_is_weighed_in_bytes_and_in_values() -> None:
    assert judged(noting(256, "")).passed
    heavy = judged(noting(80, "\N{GRINNING FACE}" * 197))

    assert [mode.code for mode in heavy.failure_modes] == [MALFORMED]
    assert "answer: weighs" in str(heavy.failure_modes[0].detail)
    light = judge(noting(10, ""), task_class(), Redactor(ENVIRONMENT))
    assert answer_weight(light) >= 40 * LIMITS.bytes_per_value
    assert bounded(light, answer_weight(light)) is light
    assert bounded(light, answer_weight(light) - 1).failure_modes[0].code == MALFORMED


def test_every_failure_of_our_own_fits_into_the_least_room() -> None:
    worst = failed("rubric.unknown_breakdown_key", "\N{GRINNING FACE}" * 300)

    assert bounded(worst, LIMITS.least_answer_bytes) is worst
