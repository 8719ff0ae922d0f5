"""What an agent states about cost, tokens and model: unknown stays unknown, and no output raises."""

import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.suts.agent_output import StatedUsage, UsageReader
from codegenie.eval.suts.agent_spec.reading import decoded_spec
from codegenie.eval.suts.agent_spec.records import OutputTable
from tests.support.stated_usage import read_usage


def table(text: str) -> OutputTable:
    whole = f'schema = 1\nname = "a"\ncommand = ["a"]\n[output]\n{text}\n'
    return decoded_spec(whole.encode(), "sut.toml").output


LAST = table(
    """format = "jsonl"
take = { type = "result" }
cost_usd = "cost"
input_tokens = "usage.*.input"
model = "usage.*"
"""
)
SUM = table(
    """format = "jsonl"
take = { type = "turn.end" }
over = "sum"
input_tokens = "in"
output_tokens = "out"
"""
)
TEXT = table(
    """over = "sum"
cost_usd = "Cost: $# message"
input_tokens = "Tokens: # sent"
output_tokens = ", # received"
"""
)
JSON = table(
    """format = "json"
cost_usd = "info.cost"
input_tokens = "messages.*.usage.in"
model = "messages.*.model"
"""
)


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


GOOD = line(type="result", cost=0.25, usage={"m-1": {"input": 10}, "m-2": {"input": 5}})


def test_the_last_line_of_the_named_type_is_read() -> None:
    stated = read_usage(
        LAST, line(type="result", cost=9) + line(type="other", cost=8) + GOOD + line(type="end", cost=7)
    )

    assert stated == StatedUsage(cost_usd=0.25, input_tokens=15, model="m-1, m-2")


def test_a_line_without_its_end_is_read() -> None:
    assert read_usage(LAST, GOOD.rstrip()).cost_usd == 0.25


def test_lines_are_added_up() -> None:
    stdout = (
        line(type="turn.end", **{"in": 10, "out": 1})
        + b"noise\n"
        + line(type="turn.end", **{"in": 5, "out": 2})
    )

    assert read_usage(SUM, stdout) == StatedUsage(input_tokens=15, output_tokens=3)


def test_a_sum_of_which_a_part_is_missing_is_unknown() -> None:
    stated = read_usage(SUM, line(type="turn.end", **{"in": 10, "out": 1}) + line(type="turn.end", out=2))

    assert (stated.input_tokens, stated.output_tokens) == (None, 3)
    assert stated.notes == ("what the agent states: input_tokens is missing",)


def test_nothing_is_stated_where_the_file_names_nothing() -> None:
    assert read_usage(table('format = "text"'), GOOD) == StatedUsage()


def test_no_output_is_unknown_and_not_zero() -> None:
    for output in (LAST, SUM, TEXT, JSON):
        stated = read_usage(output, b"")
        assert (stated.cost_usd, stated.input_tokens, stated.output_tokens, stated.model) == (None,) * 4
        assert len(stated.notes) == 1


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        ("-1", "is negative"),
        ("-0.0001", "is negative"),
        ("1e12", "is absurd"),
        ("1e400", "is missing"),
        ("NaN", "is missing"),
        ("Infinity", "is missing"),
        ('"free"', "is not a number"),
        ('"0.05"', "is not a number"),
        ("true", "is not a number"),
        ("null", "is not a number"),
        ("[1]", "is not a number"),
        ("{}", "is not a number"),
        ("1" * 5000, "is missing"),
    ],
)
def test_a_cost_that_is_none_is_unknown(cost: str, problem: str) -> None:
    stated = read_usage(
        LAST, f'{{"type": "result", "cost": {cost}, "usage": {{"m": {{"input": 1}}}}}}\n'.encode()
    )

    assert stated.cost_usd is None
    assert f"cost_usd {problem}" in stated.notes[0]


@pytest.mark.parametrize("tokens", [-1, 1.5, 1e13, True, "5", None, [5]])
def test_a_number_of_tokens_that_is_none_is_unknown_also_among_good_ones(tokens: object) -> None:
    stated = read_usage(LAST, line(type="result", cost=1, usage={"m": {"input": 3}, "n": {"input": tokens}}))

    assert (stated.cost_usd, stated.input_tokens) == (1.0, None)


def test_an_item_that_lacks_the_rest_of_a_path_is_left_out() -> None:
    messages: list[Any] = [
        {"role": "user"},
        {"usage": {"in": 4}, "model": "m"},
        7,
        None,
        {"usage": {"in": 6}},
    ]
    stated = read_usage(JSON, json.dumps({"info": {"cost": 1}, "messages": messages}).encode())

    assert stated == StatedUsage(cost_usd=1.0, input_tokens=10, model="m")


def test_several_places_of_one_number_are_added_up_and_all_of_them_are_needed() -> None:
    parts = table('format = "json"\ninput_tokens = "usage.*.new + usage.*.cached"\nmodel = "a + b"')
    usage = {"m-1": {"new": 4, "cached": 3}, "m-2": {"new": 2, "cached": 1}}
    whole = read_usage(parts, json.dumps({"usage": usage, "a + b": "m"}).encode())
    short = read_usage(parts, json.dumps({"usage": {"m-1": {"new": 4}}}).encode())

    assert (whole.input_tokens, whole.model) == (10, "m")
    assert short.input_tokens is None
    assert "input_tokens is missing" in short.notes[0]


def test_no_model_at_all_is_unknown_and_so_is_one_that_is_not_a_name() -> None:
    assert read_usage(LAST, line(type="result", cost=1, usage={})).model is None
    assert read_usage(JSON, b'{"messages": [{"model": 5}]}').model is None


def test_the_name_of_a_model_is_one_safe_line() -> None:
    stated = read_usage(LAST, line(type="result", usage={"\x1b[31m\n" + "x" * 5000: {"input": 1}}))

    assert stated.model is not None
    assert stated.model.isprintable()
    assert len(stated.model) <= 200


def test_a_thousand_models_are_named_in_one_line() -> None:
    stated = read_usage(
        LAST, line(type="result", usage={f"m{number}": {"input": 1} for number in range(1000)})
    )

    assert (stated.input_tokens, len(stated.model or "") <= 200) == (1000, True)


# A cost of 0.


def test_a_cost_of_zero_is_unknown_unless_the_harness_saw_that_no_model_was_asked() -> None:
    stated = read_usage(LAST, line(type="result", cost=0, usage={"m": {"input": 1}}))

    assert stated.cost_usd == 0
    assert stated.with_calls(3).cost_usd is None
    assert stated.with_calls(None).cost_usd is None
    assert stated.with_calls(0).cost_usd == 0
    assert stated.with_calls(3).notes == ("what the agent states: cost_usd is 0 although a model was asked",)


def test_a_cost_above_zero_and_an_unknown_one_stay_as_they_are() -> None:
    for stated in (StatedUsage(cost_usd=0.5), StatedUsage()):
        assert stated.with_calls(3) == stated


def test_there_is_one_note_however_much_is_wrong() -> None:
    stated = read_usage(LAST, line(type="result", cost=0, usage="x")).with_calls(1)

    assert len(stated.notes) == 1
    assert "input_tokens is missing" in stated.notes[0]
    assert "cost_usd is 0" in stated.notes[0]


# Text.


def test_numbers_are_read_from_text_and_added_up() -> None:
    text = (
        "Tokens: 1.2k sent, 300 cache write, 1.1k cache hit, 40 received.\n"
        "Cost: $0.0031 message, $0.0031 session.\n"
        "Tokens: 2,500 sent, 1M received. Cost: $0.10 message, $0.1031 session.\n"
    )

    stated = read_usage(TEXT, text.encode())

    assert (stated.input_tokens, stated.output_tokens) == (3700, 1_000_040)
    assert stated.cost_usd == pytest.approx(0.1031)


@pytest.mark.parametrize(
    "text",
    [
        "Tokens: sent",
        "Tokens: x sent",
        "Tokens: 5kk sent",
        "Tokens: 5 received",
        "Tokens: " + "9" * 60 + " sent",
    ],
)
def test_text_that_is_not_the_piece_says_nothing(text: str) -> None:
    assert read_usage(TEXT, text.encode()).input_tokens is None


def test_a_negative_and_an_absurd_number_in_text_are_unknown() -> None:
    assert read_usage(TEXT, b"Tokens: -5 sent").input_tokens is None
    assert read_usage(TEXT, b"Tokens: 9,999,999,999,999M sent").input_tokens is None
    assert read_usage(TEXT, b"Cost: $-1 message").cost_usd is None


def test_a_piece_with_the_signs_of_a_pattern_is_taken_literally() -> None:
    output = table('input_tokens = "(a+)+$ # [x]"')

    assert read_usage(output, b"(a+)+$ 7 [x]").input_tokens == 7
    assert read_usage(output, b"aaaa 7 x").input_tokens is None


# Hostile output. What is printed may be anything and as much as an agent likes.

HOSTILE = {
    "invalid utf-8": b"\xff\xfe" * 1000 + b"\n",
    "deep": b'{"type": "result", "cost": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "unclosed": b'{"type": "result", "cost": 5\n',
    "not an object": b'["result"]\n"result"\n5\nnull\n',
    "duplicate keys": b'{"type": "result", "cost": 5, "cost": 6}\n',
    "lone surrogate": b'{"type": "result", "cost": "\\ud800"}\n',
    "NUL": b"\0" * 10_000 + b"\n",
    "carriage returns": b"\r" * 10_000,
    "blank lines": b"\n" * 100_000,
    "a type that is a list": b'{"type": ["result"], "cost": 5}\n',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_output_is_unknown_and_what_follows_is_read(kind: str) -> None:
    for output in (LAST, SUM, TEXT, JSON):
        assert read_usage(output, HOSTILE[kind]).cost_usd is None
    assert read_usage(LAST, HOSTILE[kind] + b"\n" + GOOD).cost_usd == 0.25


@given(st.binary(max_size=200), st.sampled_from([LAST, SUM, TEXT, JSON]))
def test_no_bytes_raise(raw: bytes, output: OutputTable) -> None:
    for whole in (raw, b'{"type": "result", "cost": ' + raw + b"}", b"Tokens: " + raw + b" sent"):
        stated = read_usage(output, whole)
        assert stated.cost_usd is None or 0 <= stated.cost_usd <= 1e9


@given(st.lists(st.integers(1, 40), max_size=20))
def test_the_cuts_between_pieces_do_not_matter(sizes: list[int]) -> None:
    whole = b"noise\n" + GOOD + b"\n\n" + GOOD.replace(b"0.25", b"0.75") + b"tail"
    reader, at = UsageReader(LAST), 0
    for size in sizes:
        reader.feed(whole[at : at + size])
        at += size
    reader.feed(whole[at:])

    assert reader.usage() == read_usage(LAST, whole)
    assert reader.usage().cost_usd == 0.75


def memory_of(output: OutputTable, chunk: bytes, times: int, last: bytes) -> tuple[StatedUsage, int]:
    tracemalloc.start()
    try:
        reader = UsageReader(output)
        for _ in range(times):
            reader.feed(chunk)
        reader.feed(last)
        return reader.usage(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_hundred_megabytes_of_other_lines_are_passed_over_in_little_memory() -> None:
    chunk = line(type="item", text="x" * 900) * 70

    stated, most = memory_of(LAST, chunk, 100_000_000 // len(chunk), GOOD)

    assert stated.cost_usd == 0.25
    assert most < 16 << 20


def test_a_line_of_fifty_megabytes_is_passed_over_in_little_memory() -> None:
    for output in (LAST, TEXT):
        stated, most = memory_of(output, b"x" * 1_000_000, 50, b"\n" + GOOD + b"Cost: $0.25 message\n")
        assert stated.cost_usd == 0.25
        assert most < 32 << 20


def test_a_long_line_that_comes_in_one_piece_is_held_only_in_part() -> None:
    piece = b"x" * (50 << 20)

    # The pieces between line ends are copies, so one copy of it is there in any case.
    _, most = memory_of(LAST, piece, 1, b"\n")

    assert most < 2 * len(piece)


def test_a_result_in_a_line_that_is_too_long_is_unknown() -> None:
    huge = b'{"type": "result", "cost": 5, "text": "' + b"x" * (5 << 20) + b'"}\n'

    stated = read_usage(LAST, GOOD + huge)

    assert stated.cost_usd is None
    assert "too long" in stated.notes[0]
    assert read_usage(LAST, huge + GOOD).cost_usd == 0.25


def test_a_flood_of_results_is_unknown_and_is_not_decoded_to_its_end() -> None:
    chunk = line(type="turn.end", pad="x" * 60_000, **{"in": 1, "out": 1}) * 16

    stated, _ = memory_of(SUM, chunk, 40, b"")

    assert (stated.input_tokens, stated.output_tokens) == (None, None)
    assert "too many" in stated.notes[0]


def test_a_document_that_is_too_large_is_unknown() -> None:
    stated, most = memory_of(JSON, b'{"info": {"cost": 1}, "x": "' + b"x" * 1_000_000, 50, b'"}')

    assert stated.cost_usd is None
    assert most < 64 << 20


def test_a_file_that_was_not_left_is_unknown() -> None:
    output = table('format = "file"\nfile = "{home}/t.json"\ncost_usd = "cost"')

    assert read_usage(output, GOOD, None).cost_usd is None
    assert read_usage(output, GOOD, b'{"cost": 2}').cost_usd == 2
    assert read_usage(output, b"", b"\xff").cost_usd is None


def test_a_note_is_one_short_line() -> None:
    (note,) = read_usage(LAST, b"").notes

    assert len(note) <= 200
    assert re.fullmatch(r"what the agent states: [a-z_ ;]+", note)
