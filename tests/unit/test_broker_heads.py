"""Heads of HTTP messages: there is one way to write them, and every other one is refused."""

import pytest

from codegenie.eval.broker.heads import (
    Framing,
    Malformed,
    chunk_size,
    request_framing,
    request_head,
    response_framing,
    response_head,
)

START = b"POST /v1/messages HTTP/1.1"
HOST = b"Host: 127.0.0.1"


def test_a_plain_head_is_read_with_names_in_lower_case() -> None:
    head = request_head([START, HOST, b"X-Thing:  a b ", b"Empty:", b"Content-Length: 12"])

    assert (head.method, head.target) == ("POST", "/v1/messages")
    assert head.fields[1:3] == (("x-thing", "a b"), ("empty", ""))
    assert request_framing(head) == Framing(length=12)
    assert request_framing(request_head([START, HOST])) == Framing(length=0)
    assert request_framing(request_head([START, HOST, b"transfer-encoding: Chunked"])) == Framing(
        chunked=True
    )


@pytest.mark.parametrize(
    "line",
    [
        b"POST /v1/messages HTTP/1.0",
        b"POST /v1/messages HTTP/2",
        b"POST /v1/messages",
        b"POST  /v1/messages HTTP/1.1",
        b"post /v1/messages HTTP/1.1",
        b"POST /v1/mess ages HTTP/1.1",
        b"POST /v1/messages\x00 HTTP/1.1",
        b"POST /v1/m\xc3\xa4ssages HTTP/1.1",
        b" POST /v1/messages HTTP/1.1",
        b"POST /v1/messages HTTP/1.1 ",
        b"POST /" + b"a" * 5000 + b" HTTP/1.1",
    ],
)
def test_a_line_that_is_not_exactly_a_request_of_http_1_1_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed, match="not a request"):
        request_head([line, HOST])


@pytest.mark.parametrize(
    "field",
    [
        b"X-Thing : a",
        b" folded",
        b"\tfolded",
        b"X-Thing",
        b": a",
        b"X Thing: a",
        b"X-Thing: a\x00b",
        b"X-Thing: a\rb",
        b"X-Thing: a\nContent-Length: 3",
        b"X-Thing: \xc3\xa4",
        b"X-Th\xc3\xa4ng: a",
        b"X" * 200 + b": a",
    ],
)
def test_a_field_that_two_readers_could_read_in_two_ways_is_refused(field: bytes) -> None:
    with pytest.raises(Malformed, match="header field"):
        request_head([START, HOST, field])


@pytest.mark.parametrize(
    "fields",
    [
        [b"Content-Length: 3", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Content-Length: 3"],
        [b"Content-Length: 3", b"Content-Length: 4"],
        [b"Content-Length: 3", b"content-length: 3"],
        [b"Content-Length: 3, 3"],
        [b"Content-Length: +3"],
        [b"Content-Length: -1"],
        [b"Content-Length: 0x3"],
        [b"Content-Length: 3_0"],
        [b"Content-Length:"],
        [b"Content-Length: " + b"9" * 20],
        [b"Transfer-Encoding: identity"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding: xchunked"],
        [b"Transfer-Encoding:"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding:", b"Content-Length: 3"],
    ],
)
def test_a_body_with_two_lengths_or_an_odd_one_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(Malformed):
        request_framing(request_head([START, HOST, *fields]))


@pytest.mark.parametrize("fields", [[], [HOST, HOST], [HOST, b"host: other"]])
def test_a_request_has_exactly_one_host(fields: list[bytes]) -> None:
    with pytest.raises(Malformed, match="Host"):
        request_head([START, *fields])


def test_a_head_of_too_many_fields_is_refused() -> None:
    with pytest.raises(Malformed, match="more than 128"):
        request_head([START, HOST, *[b"a: b"] * 128])


def test_an_answer_is_framed_by_chunks_by_length_or_by_the_end() -> None:
    assert response_framing(response_head([b"HTTP/1.1 200 OK"])) == Framing()
    assert response_framing(response_head([b"HTTP/1.0 200", b"content-length: 3"])) == Framing(length=3)
    assert response_framing(response_head([b"HTTP/1.1 204 No Content"])) == Framing(length=0)
    assert response_head([b"HTTP/1.1 529 Site is overloaded", b"x: \xe4"]).fields == (("x", "\xe4"),)


@pytest.mark.parametrize(
    "line", [b"HTTP/2 200", b"220 ESMTP", b"HTTP/1.1 99 x", b"HTTP/1.1 2000", b"HTTP/1.1"]
)
def test_an_answer_that_is_not_http_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed, match="not a response"):
        response_head([line])


def test_a_chunk_has_a_plain_size_and_no_extension() -> None:
    assert (chunk_size(b"0\r\n"), chunk_size(b"1aF\r\n")) == (0, 0x1AF)


@pytest.mark.parametrize(
    "line",
    [b"5;a=b\r\n", b"5 \r\n", b" 5\r\n", b"+5\r\n", b"0x5\r\n", b"5\n", b"\r\n", b"-1\r\n", b"1_0\r\n"],
)
def test_any_other_line_before_a_chunk_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed, match="chunk"):
        chunk_size(line)
