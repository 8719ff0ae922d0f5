"""What a broker reads of tokens and models: four APIs, streamed or not, and nonsense, which is unknown."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from codegenie.eval.broker.meter import Meter, Reading
from codegenie.eval.broker.redaction import Redactor
from tests.support import fake_answers
from tests.support.fake_model import CACHED, HTML, INPUT, MODEL, OUTPUT

Events = Callable[[str, str], Iterator[dict[str, Any]]]
JSON, SSE = "application/json", "text/event-stream; charset=utf-8"
WHOLE = [fake_answers.anthropic, fake_answers.completion, fake_answers.response, fake_answers.generated]
STREAMED = [
    fake_answers.anthropic_events,
    fake_answers.completion_events,
    fake_answers.response_events,
    fake_answers.generated_events,
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", repr(value))


def read(raw: bytes, kind: str = JSON, size: int | None = None) -> Reading:
    meter = Meter(kind)
    for place in range(0, len(raw), size or len(raw) or 1):
        meter.feed(raw[place : place + (size or len(raw))])
    return meter.finish()


def stream(events: Iterator[dict[str, Any]], end: str = "\n") -> bytes:
    return "".join(f"event: x{end}data: {json.dumps(event)}{end}{end}" for event in events).encode()


def counts(found: Reading) -> tuple[str | None, int | None, int | None, int | None]:
    return found.model, found.input_tokens, found.cached_tokens, found.output_tokens


@pytest.mark.parametrize("answer", WHOLE, ids=name_of)
def test_a_whole_answer_of_each_api_is_counted(answer: Callable[[str, str], dict[str, Any]]) -> None:
    found = read(json.dumps(answer(MODEL, "text")).encode())

    assert counts(found) == (MODEL, INPUT, CACHED, OUTPUT)
    assert found.has_usage


@pytest.mark.parametrize("size", [1, 7, None])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize("kind", [SSE, ""], ids=["typed", "untyped"])
@pytest.mark.parametrize("events", STREAMED, ids=name_of)
def test_a_stream_of_each_api_is_counted_however_it_is_cut(
    events: Events, kind: str, end: str, size: int | None
) -> None:
    found = read(stream(events(MODEL, "one two"), end), kind, size)

    assert counts(found) == (MODEL, INPUT, CACHED, OUTPUT)


def test_a_stream_of_gemini_as_a_list_is_counted() -> None:
    raw = json.dumps(list(fake_answers.generated_events(MODEL, "one two"))).encode()

    assert counts(read(raw)) == (MODEL, INPUT, CACHED, OUTPUT)


def test_the_tokens_of_thoughts_and_of_written_caches_are_paid_for_and_counted() -> None:
    gemini = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 40}}
    claude = {"usage": {"input_tokens": 5, "cache_creation_input_tokens": 70, "output_tokens": 2}}

    assert counts(read(json.dumps(gemini).encode())) == (None, 5, None, 42)
    assert counts(read(json.dumps(claude).encode())) == (None, 75, None, 2)


def test_a_stream_that_broke_off_gives_what_it_had_said() -> None:
    first = next(fake_answers.anthropic_events(MODEL, "one"))
    found = read(stream(iter([first])), SSE)

    assert counts(found) == (MODEL, INPUT, CACHED, 1)
    assert not found.is_ended


@pytest.mark.parametrize("events", STREAMED[:3], ids=name_of)
def test_the_last_word_of_a_stream_is_known_and_the_model_cannot_say_it(events: Events) -> None:
    *talk, last = events(MODEL, '[DONE] {"type": "message_stop"} response.completed')
    done = b"data: [DONE]\n\n" if events is fake_answers.completion_events else b""

    assert read(stream(iter([*talk, last])) + done, SSE).is_ended
    assert not read(stream(iter(talk)), SSE).is_ended


@pytest.mark.parametrize(
    "text",
    ["-1", "1.5", "NaN", "Infinity", "1e400", "true", '"12"', "null", "[]", "{}", "10000000000", "1" * 5000],
    ids=lambda text: text[:20],
)
def test_a_count_that_is_not_a_plausible_number_is_unknown(text: str) -> None:
    raw = f'{{"model": "m", "usage": {{"input_tokens": {text}, "output_tokens": {text}}}}}'.encode()

    found = read(raw)

    assert (found.input_tokens, found.output_tokens, found.has_usage) == (None, None, False)


@pytest.mark.parametrize("model", ["", "a\nb", "\x1b[2J", "x" * 201, 5, None, ["m"]], ids=repr)
def test_a_model_that_is_not_a_short_printable_name_is_unknown(model: object) -> None:
    assert not read(json.dumps({"model": model}).encode()).is_from_a_model


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        HTML,
        b"{",
        b"null",
        b"[[]]",
        b'{"usage": []}',
        b'{"usage": 5}',
        b'{"type": ["model"], "usage": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda raw: repr(raw[:16]),
)
def test_what_is_not_the_answer_of_a_model_is_unknown(raw: bytes) -> None:
    for kind in (JSON, SSE, "text/html"):
        assert read(raw, kind) == Reading()
        assert read(b"data: " + raw + b"\n\n", kind) == Reading()


def test_more_cached_tokens_than_tokens_are_unknown() -> None:
    raw = json.dumps({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}}).encode()

    assert counts(read(raw)) == (None, 5, None, None)


def test_the_largest_value_of_a_count_is_taken_and_a_later_smaller_one_is_not() -> None:
    events = [{"usage": {"output_tokens": count, "input_tokens": 1}} for count in (3, 90, 4)]

    assert read(stream(iter(events)), SSE).output_tokens == 90


def test_a_document_beyond_the_cap_is_given_up_and_the_events_after_it_are_read() -> None:
    endless = b"data: " + b"x" * 6_000_000
    usage = stream(iter([{"model": "m", "usage": {"input_tokens": 1, "output_tokens": 2}}]))
    meter = Meter(SSE)
    largest = 0
    for place in range(0, len(endless), 100_000):
        meter.feed(endless[place : place + 100_000])
        largest = max(largest, len(meter._buffer) + len(meter._data))  # noqa: SLF001 - what it holds
    meter.feed(b"\n\n" + usage)

    assert counts(meter.finish()) == ("m", 1, None, 2)
    assert largest < 4_500_000
    assert read(b'{"model": "m", "a": "' + b"x" * 5_000_000 + b'"}', JSON, 100_000) == Reading()


def test_many_lines_of_one_event_are_bounded_too() -> None:
    meter = Meter(SSE)
    for _ in range(60):
        meter.feed(b"data: " + b"x" * 100_000 + b"\n")

    assert len(meter._data) < 4_500_000  # noqa: SLF001 - what it holds


# The key in an answer.


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_key_in_a_stream_is_replaced_however_it_is_cut_and_the_length_stays(size: int) -> None:
    raw = b"say abcab! abcabc ab abcabcabc abca"
    redactor = Redactor("abcabc")
    clean = b"".join(redactor.feed(raw[place : place + size]) for place in range(0, len(raw), size))
    clean += redactor.finish()

    assert clean == b"say abcab! ****** ab ******abc abca"


def test_what_cannot_be_the_beginning_of_the_key_is_not_held_back() -> None:
    redactor = Redactor("sk-1234")

    assert redactor.feed(b"event: sk\n\n") == b"event: sk\n\n"
    assert redactor.feed(b"event: sk") == b"event: "
    assert redactor.feed(b"y") == b"sky"
