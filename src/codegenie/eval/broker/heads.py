"""Heads of HTTP/1.1 messages, read strictly: what two readers could understand in two ways is refused.

An agent that can make the broker and the upstream disagree on where a request ends has smuggled a second
request past the rules. So there is one way to write a head here: lines end in CR LF, names have no space
before the colon, no line is folded, and a body has one length or one `chunked`, never both.
"""

import re
from dataclasses import dataclass

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,4096}) HTTP/1\.1")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[\t ]*([!-~](?:[\t -~]*[!-~])?)?[\t ]*")
_ANSWERED_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[\t ]*([\t -~\x80-\xff]*?)[\t ]*")
_LENGTH = re.compile(r"[0-9]{1,12}")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}\r\n")
_MOST_FIELDS = 128
_WITHOUT_BODY = {204, 304}


class Malformed(Exception):  # noqa: N818 - what the other side has sent
    """The bytes are not a message that the broker accepts. The text says why and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body is delimited: by `chunked`, by its length, or, with neither, by the connection's end."""

    chunked: bool = False
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The names, in lower case, and the values of a head, in their order."""

    fields: tuple[tuple[str, str], ...]

    def every(self, name: str) -> list[str]:
        """Return every value of this name."""
        return [value for known, value in self.fields if known == name]

    def only(self, name: str) -> str:
        """Return the value of a name that may stand there once, or an empty text. Raises Malformed."""
        values = self.every(name)
        if len(values) > 1:
            raise Malformed(f"{name} stands there twice")
        return values[0] if values else ""

    def says(self, name: str, word: str) -> bool:
        """Whether a value, which may be a list, names this word."""
        words = [part.strip().lower() for value in self.every(name) for part in value.split(",")]
        return word in words


@dataclass(frozen=True, slots=True)
class RequestHead(Head):
    """The head of a request."""

    method: str
    target: str


@dataclass(frozen=True, slots=True)
class ResponseHead(Head):
    """The head of a response."""

    status: int


def request_head(lines: list[bytes]) -> RequestHead:
    """Read the lines of a request's head, without their ends. Raises Malformed."""
    start = _REQUEST_LINE.fullmatch(lines[0])
    if start is None:
        raise Malformed("not a request of HTTP/1.1")
    head = RequestHead(_fields(lines[1:], _FIELD), start[1].decode(), start[2].decode())
    if len(head.every("host")) != 1:
        raise Malformed("not exactly one Host")
    return head


def response_head(lines: list[bytes]) -> ResponseHead:
    """Read the lines of a response's head, without their ends. Raises Malformed."""
    start = _STATUS_LINE.fullmatch(lines[0])
    if start is None:
        raise Malformed("not a response of HTTP/1.1")
    return ResponseHead(_fields(lines[1:], _ANSWERED_FIELD), int(start[2]))


def _fields(lines: list[bytes], grammar: re.Pattern[bytes]) -> tuple[tuple[str, str], ...]:
    if len(lines) > _MOST_FIELDS:
        raise Malformed(f"more than {_MOST_FIELDS} header fields")
    found = [grammar.fullmatch(line) for line in lines]
    if not all(found):
        raise Malformed("a header field is not written as `name: value`")
    return tuple((field[1].decode().lower(), (field[2] or b"").decode("latin-1")) for field in found if field)


def framing(head: Head) -> Framing:
    """Say how the body of a message is delimited. Raises Malformed if there is more than one answer."""
    length, coding = head.only("content-length"), head.only("transfer-encoding")
    if head.every("content-length") and head.every("transfer-encoding"):
        raise Malformed("Content-Length and Transfer-Encoding together")
    if head.every("transfer-encoding"):
        if coding.lower() != "chunked":
            raise Malformed("a Transfer-Encoding that is not chunked")
        return Framing(chunked=True)
    if head.every("content-length"):
        if not _LENGTH.fullmatch(length):
            raise Malformed("a Content-Length that is not a number")
        return Framing(length=int(length))
    return Framing()


def request_framing(head: RequestHead) -> Framing:
    """Say how the body of a request is delimited: without a word of it there is none."""
    found = framing(head)
    return found if found.chunked or found.length is not None else Framing(length=0)


def response_framing(head: ResponseHead) -> Framing:
    """Say how the body of a response is delimited."""
    return Framing(length=0) if head.status in _WITHOUT_BODY else framing(head)


def chunk_size(line: bytes) -> int:
    """Read the line before a chunk, its end included. Raises Malformed: extensions are not accepted."""
    if not _CHUNK_SIZE.fullmatch(line):
        raise Malformed("a chunk without a plain size")
    return int(line, 16)
