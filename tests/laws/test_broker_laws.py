"""What holds of a broker for every input: nonsense is refused by type, and cuts do not matter."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.broker.heads import Malformed, chunk_size, request_framing, request_head, response_head
from codegenie.eval.broker.meter import Meter, Reading
from codegenie.eval.broker.redaction import Redactor
from codegenie.eval.broker.rules import Passage, Refused, judge_body, judge_head
from tests.laws.near_misses import Changes, changes, edited
from tests.support import fake_answers
from tests.support.broker_lines import rules

KNOWN = rules("https://api.example.com", models=("m",))
HEAD = b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: a\r\naccept: b\r\ncontent-length: 3"
BODY = json.dumps({"model": "m", "tools": [{"type": "function"}], "messages": [{"content": []}]}).encode()
STREAM = b"".join(
    b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
    for events in (fake_answers.anthropic_events, fake_answers.response_events, fake_answers.generated_events)
    for event in events("m", "one two")
)
names = st.sampled_from(
    ["usage", "message", "response", "model", "input_tokens", "output_tokens", "tools", "type"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def metered(raw: bytes, kind: str, cuts: list[int]) -> Reading:
    meter = Meter(kind)
    places = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    for begin, end in pairwise(places):
        meter.feed(raw[begin:end])
    return meter.finish()


@given(changes)
def test_a_head_is_read_or_refused_and_what_passes_is_on_the_list(made: Changes) -> None:
    lines = edited(HEAD, made).split(b"\r\n")
    try:
        head = request_head(lines)
        request_framing(head)
        passage = judge_head(KNOWN, head)
    except (Malformed, Refused):
        return
    assert passage.target.partition("?")[0] in KNOWN.paths or passage.model is not None
    assert {name for name, _ in passage.fields} <= {"accept", "user-agent", "version"}
    assert all(value.isprintable() and value.isascii() for _, value in passage.fields)


@given(st.binary(max_size=60))
def test_bytes_are_a_head_a_chunk_or_malformed(raw: bytes) -> None:
    for read in (lambda: request_head([raw]), lambda: response_head([raw]), lambda: chunk_size(raw)):
        try:
            read()
        except Malformed:
            continue


@given(changes)
def test_a_body_passes_or_is_refused(made: Changes) -> None:
    raw = edited(BODY, made)
    try:
        model = judge_body(KNOWN, Passage("POST", "/v1/messages", (), None), raw)
    except Refused:
        return
    assert model == json.loads(raw)["model"] == "m"


@given(values)
def test_any_document_passes_or_is_refused(document: Any) -> None:  # noqa: ANN401 - any value of JSON
    try:
        judge_body(KNOWN, Passage("POST", "/p", (), "m"), json.dumps(document).encode())
    except Refused:
        return
    assert isinstance(document, dict)


@given(
    values,
    st.lists(st.integers(0, 400), max_size=4),
    st.sampled_from(["application/json", "text/event-stream"]),
)
def test_any_answer_is_metered_without_an_error_and_however_it_is_cut(
    document: Any,  # noqa: ANN401 - any value of JSON
    cuts: list[int],
    kind: str,
) -> None:
    raw = json.dumps(document).encode()
    raw = raw if kind.endswith("json") else b"data: " + raw + b"\n\n"
    found = metered(raw, kind, cuts)

    assert found == metered(raw, kind, [])
    assert all(
        count is None or 0 <= count <= 4 * 10**9 for count in (found.input_tokens, found.output_tokens)
    )


@given(changes, st.lists(st.integers(0, 4000), max_size=6))
def test_a_damaged_stream_is_metered_without_an_error_and_however_it_is_cut(
    made: Changes, cuts: list[int]
) -> None:
    raw = edited(STREAM, made)

    assert metered(raw, "text/event-stream", cuts) == metered(raw, "text/event-stream", [])


@given(
    st.text("ab", min_size=1, max_size=5), st.lists(st.binary(max_size=0) | st.text("abc").map(str.encode))
)
def test_no_cut_of_a_stream_lets_the_key_through(key: str, parts: list[bytes]) -> None:
    redactor = Redactor(key)
    clean = b"".join(redactor.feed(part) for part in parts) + redactor.finish()

    assert key.encode() not in clean
    assert len(clean) == len(b"".join(parts))
