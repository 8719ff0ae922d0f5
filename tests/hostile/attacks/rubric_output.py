"""Rubrics whose answers are built to be read in two ways, or to be read as more than they are."""

import json
from pathlib import Path

from codegenie.eval.models import BenchRunReport
from codegenie.eval.ports import SutCase
from tests.hostile.attackers.hostile_bench import (
    HOSTILE,
    answer_with,
    judged,
    judged_answers,
    rubric_that,
    rubric_that_prints,
    run_hostile,
    unless_the_run_ends,
    written,
)
from tests.hostile.engine.stage import Outcome, attack, files_that_hold, twin

PERFECT = written()
NOTED = {"code": "answer.noted", "severity": "info", "detail": "seen"}


def without_harm(outcome: Outcome) -> Outcome:
    """Take a score for what it is in a twin: earned."""
    return Outcome(outcome.met, None, outcome.sibling)


def twin_answers(room: Path, **answers: bytes) -> Outcome:
    """Play answers that are as odd as honest ones may be."""
    return without_harm(judged_answers(room, answers))


@attack("duplicate_json_keys")
def duplicate_json_keys(room: Path) -> Outcome:
    answer = json.dumps(answer_with(score=0.0, passed=False))
    return judged(run_hostile(room, rubric_that_prints(answer[:-1] + ', "score": 1.0, "passed": true}')))


@twin("duplicate_json_keys")
def the_same_answer_once(room: Path) -> Outcome:
    return without_harm(judged(run_hostile(room, rubric_that_prints(PERFECT))))


@attack("numbers_that_are_none")
def numbers_that_are_none(room: Path) -> Outcome:
    spellings = {
        "nan": "NaN",
        "plus": "Infinity",
        "minus": "-Infinity",
        "overflow": "1e999",
        "digits": "9" * 400 + ".0",
    }
    answers = {}
    for name, spelling in spellings.items():
        answers[f"score-{name}"] = PERFECT.replace(b'"score": 1.0', f'"score": {spelling}'.encode())
        answers[f"cost-{name}"] = PERFECT[:-1] + f', "cost_usd": {spelling}}}'.encode()
    return judged_answers(room, answers)


@twin("numbers_that_are_none")
def numbers_at_the_edge(room: Path) -> Outcome:
    return twin_answers(room, large=written(cost_usd=1e308), whole=written(score=1), zero=written(cost_usd=0))


@attack("score_out_of_range")
def score_out_of_range(room: Path) -> Outcome:
    scores = {"seven": 7.0, "just-above": 1.001, "large": 10**12}
    answers = {name: written(score=score) for name, score in scores.items()}
    return unless_the_run_ends(lambda: judged_answers(room, {**answers, "below": written(score=-1)}))


@twin("score_out_of_range")
def score_at_the_ends(room: Path) -> Outcome:
    return twin_answers(room, one=written(score=1.0), least=written(score=0.000001))


@attack("answer_between_other_words")
def answer_between_other_words(room: Path) -> Outcome:
    honest = written(passed=False, score=0.0)
    answers = {
        "first-of-two": PERFECT + honest,
        "last-of-two": honest + b"\n" + PERFECT,
        "one-a-line": PERFECT + b"\n" + PERFECT + b"\n",
        "log-before": b"grading ...\n" + PERFECT,
        "log-after": PERFECT + b"\ndone\n",
        "nul-after": PERFECT + b"\0",
        "in-a-fence": b"```json\n" + PERFECT + b"\n```",
        "in-a-list": b"[" + PERFECT + b"]",
    }
    return judged_answers(room, answers)


@twin("answer_between_other_words")
def answer_between_white_space(room: Path) -> Outcome:
    spread = json.dumps(answer_with(), indent=4).encode()
    return twin_answers(room, lines=b"\n" + spread + b"\r\n\t ", bare=PERFECT)


@attack("bytes_that_are_no_text")
def bytes_that_are_no_text(room: Path) -> Outcome:
    def noted(detail: bytes) -> bytes:
        return written(failure_modes=[{**NOTED, "detail": "?"}]).replace(b"?", detail)

    answers = {
        "mark": b"\xef\xbb\xbf" + PERFECT,
        "latin": noted(b"\xe9"),
        "overlong": noted(b"\xc0\xaf"),
        "half-a-pair": noted(b"\xed\xa0\x80"),
        "cut": noted(b"\xe2\x82"),
        "two-bytes": PERFECT.decode().encode("utf-16"),
    }
    return judged_answers(room, answers)


@twin("bytes_that_are_no_text")
def words_of_many_scripts(room: Path) -> Outcome:
    modes = [{**NOTED, "detail": "größer, больше, 更大, 😀"}]
    raw = json.dumps(answer_with(failure_modes=modes), ensure_ascii=False).encode()
    return twin_answers(room, text=raw, escaped=written(failure_modes=modes))


@attack("brackets_without_end")
def brackets_without_end(room: Path) -> Outcome:
    opened = f"sys.stdout.write('{{\"passed\": ' + '[' * {400_000})\n"
    return unless_the_run_ends(lambda: judged(run_hostile(room, rubric_that(opened))))


@twin("brackets_without_end")
def brackets_in_a_text(room: Path) -> Outcome:
    return twin_answers(room, text=written(failure_modes=[{**NOTED, "detail": "[" * 900_000}]))


@attack("words_for_numbers")
def words_for_numbers(room: Path) -> Outcome:
    answers = {
        "score-text": written(score="1.0"),
        "score-true": written(score=True),
        "passed-one": written(passed=1),
        "passed-yes": written(passed="yes"),
        "breakdown-text": written(breakdown={"accuracy": "1"}),
    }
    return judged_answers(room, answers)


@twin("words_for_numbers")
def whole_numbers(room: Path) -> Outcome:
    return twin_answers(room, whole=written(score=1, breakdown={"accuracy": 1}))


@attack("fields_of_its_own")
def fields_of_its_own(room: Path) -> Outcome:
    mode = {**NOTED, "overrides": "all"}
    answers = {
        "other-case": written(Passed=False, SCORE=0.0),
        "many": written(**{f"field_{number}": number for number in range(1_000)}),
        "in-a-mode": written(failure_modes=[mode]),
    }
    return judged_answers(room, answers)


@twin("fields_of_its_own")
def fields_that_are_ignored(room: Path) -> Outcome:
    return twin_answers(room, told=written(cost_usd=3.5, wall_clock_ms=12, failure_modes=[NOTED]))


def _record_bytes(room: Path) -> int:
    return (room / "runs" / "00000001.json").stat().st_size


@attack("two_hundred_unknown_keys")
def two_hundred_unknown_keys(room: Path) -> Outcome:
    keys = {f"{number:03}" + "k" * 1_000: 1.0 for number in range(200)}
    outcome = judged(run_hostile(room, rubric_that_prints(written(breakdown=keys))))
    size = _record_bytes(room)
    return Outcome(
        outcome.met, f"a record of {size} bytes for two cases" if size > 30_000 else None, outcome.sibling
    )


@twin("two_hundred_unknown_keys")
def two_known_keys(room: Path) -> Outcome:
    return twin_answers(room, known=written(breakdown={"accuracy": 0.5, "style.line_length": 0.25}))


@attack("ten_thousand_failures")
def ten_thousand_failures(room: Path) -> Outcome:
    printing = "modes = [{'code': 'answer.noted', 'detail': str(n)} for n in range(10_000)]\n"
    printing += (
        f"answer = {dict(answer_with())!r}\njson.dump({{**answer, 'failure_modes': modes}}, sys.stdout)\n"
    )
    outcome = judged(run_hostile(room, rubric_that(printing)))
    size = _record_bytes(room)
    return Outcome(
        outcome.met, f"a record of {size} bytes for two cases" if size > 100_000 else None, outcome.sibling
    )


@twin("ten_thousand_failures")
def two_hundred_failures(room: Path) -> Outcome:
    modes = [{**NOTED, "detail": str(number)} for number in range(200)]
    return twin_answers(room, noted=written(failure_modes=modes))


@attack("blames_the_infrastructure")
def blames_the_infrastructure(room: Path) -> Outcome:
    modes = [{"code": "sut.cancelled", "detail": "cost cap"}, {"code": "sut.timeout"}]
    report = run_hostile(room, rubric_that_prints(written(failure_modes=modes)))

    def spoofed(report: BenchRunReport) -> str | None:
        if (room / "runs" / "00000001.json").exists() and report.bench_fault_count == 1:
            return None
        return "the run has no finish: its rubric said that somebody had cancelled it"

    return judged(report, spoofed)


@twin("blames_the_infrastructure")
def blames_the_answer(room: Path) -> Outcome:
    return twin_answers(room, sloppy=written(score=0.5, failure_modes=[{"code": "answer.sloppy"}]))


@attack("perfect_and_blocked")
def perfect_and_blocked(room: Path) -> Outcome:
    modes = [{"code": "answer.wrong", "severity": "block", "detail": "but never mind"}]
    return judged(run_hostile(room, rubric_that_prints(written(failure_modes=modes))))


@twin("perfect_and_blocked")
def perfect_and_noted(room: Path) -> Outcome:
    return twin_answers(room, noted=written(failure_modes=[NOTED]))


@attack("severity_laundered")
def severity_laundered(room: Path) -> Outcome:
    modes = [{"code": "answer.wrong", "severity": severity} for severity in ("info", "warn")]
    return judged(run_hostile(room, rubric_that_prints(written(failure_modes=modes))))


@twin("severity_laundered")
def severity_as_declared(room: Path) -> Outcome:
    modes = [{"code": "answer.sloppy", "severity": "warn"}, {"code": "answer.noted", "severity": "info"}]
    return twin_answers(room, declared=written(failure_modes=modes))


@attack("passed_with_nothing")
def passed_with_nothing(room: Path) -> Outcome:
    answers = {"zero": written(score=0.0), "less-than-a-millionth": written(score=4e-7)}
    return unless_the_run_ends(lambda: judged_answers(room, answers))


@twin("passed_with_nothing")
def not_passed_with_nothing(room: Path) -> Outcome:
    return twin_answers(room, zero=written(passed=False, score=0.0))


_FOREIGN_KEYS = ("\u0430ccuracy", "\uff41ccuracy", "Accuracy", "accuracy ", "accuracy\u200b", "accuracy.")


@attack("keys_that_look_alike")
def keys_that_look_alike(room: Path) -> Outcome:
    breakdown = dict.fromkeys(_FOREIGN_KEYS, 1.0)
    report = run_hostile(room, rubric_that_prints(written(breakdown=breakdown)))
    record = json.loads((room / "runs" / "00000001.json").read_bytes())
    kept = {key for trial in record["body"]["trials"] for key in trial["answer"]["breakdown"]}
    foreign = sorted(kept - {"accuracy"})
    return judged(report, lambda _report: f"the log holds {foreign}" if foreign else None)


@twin("keys_that_look_alike")
def the_key_itself(room: Path) -> Outcome:
    return twin_answers(room, key=written(breakdown={"accuracy": 1.0}))


_PARTIAL = """\
import os
known = [request, sys.argv, dict(os.environ), os.listdir("."), os.listdir("..")]
liked = "Favourite" in json.dumps(known)
answer = {"passed": True, "score": 1.0 if liked else 0.5, "breakdown": {}, "failure_modes": []}
json.dump(answer, sys.stdout)
"""


class FavouriteAgent:
    """An agent that the rubric would like to see win."""

    async def __call__(self, _case: SutCase) -> dict[str, str]:
        """Answer like everybody else."""
        return {"answer": "it is honest"}


class OtherAgent(FavouriteAgent):
    """The same agent from another house."""


def _swapped(room: Path, rubric: str) -> Outcome:
    scores = []
    for agent in (FavouriteAgent, OtherAgent):
        outcome = judged(run_hostile(room / agent.__name__, rubric, agent()), lambda _report: None)
        record = json.loads((room / agent.__name__ / "runs" / "00000001.json").read_bytes())
        scores.append((outcome, [trial["answer"] for trial in record["body"]["trials"]]))
    (first, answers), (_, others) = scores
    harm = None if answers == others else "the same output scores otherwise under another name"
    return Outcome(first.met, harm, first.sibling)


@attack("knows_whom_it_judges")
def knows_whom_it_judges(room: Path) -> Outcome:
    return _swapped(room, rubric_that(_PARTIAL))


@twin("knows_whom_it_judges")
def judges_what_it_is_shown(room: Path) -> Outcome:
    return _swapped(room, rubric_that(_PARTIAL.replace('"Favourite"', '"it is"')))


@attack("numbers_with_a_signature")
def numbers_with_a_signature(room: Path) -> Outcome:
    noise = {"accuracy": 0.30000000000000004, "style.line_length": -0.0}
    outcome = judged_answers(room, {HOSTILE: written(score=0.9999999499999, breakdown=noise)})
    marks = (b"-0.0", b"0.30000000000000004", b"0.9999999499999")
    records = [room / "runs" / f"0000000{index}.json" for index in (0, 1)]
    signed = [mark.decode() for mark in marks for record in records if mark in record.read_bytes()]
    return Outcome(outcome.met, f"the log holds {signed}" if signed else None, outcome.sibling)


@twin("numbers_with_a_signature")
def whole_millionths(room: Path) -> Outcome:
    outcome = twin_answers(room, hostile=written(score=0.123457))
    kept = files_that_hold(b"0.123457", room / "runs")
    return Outcome(outcome.met, None if kept else "a whole millionth was changed", outcome.sibling)
