"""What a rubric's author may import: `read_case` and `emit`.

A copy of this file lies beside `rubric.py` in the child, so a rubric says

    from codegenie_rubric import emit, read_case

    request = read_case()
    right = request.harness_output.get("answer") == "42"
    emit(passed=right, score=1.0 if right else 0.0, breakdown={"passed": 1.0 if right else 0.0})

From the moment `read_case` is called the answer has a descriptor of its own, and
everything else that is written to standard output, by `print`, by C code or by a
program the rubric starts, goes to standard error. What was written **before** that
call is not protected: it is part of the answer, and makes it malformed. So call
`read_case` first.

Standard library only, and little of it: the child pays for every import on every case
(`json` alone doubles the cost of a small scorer), hence neither `pathlib`, `typing` nor
`dataclasses`.
"""

import json
import os
import sys

# Read as true by type checkers; the name is set here because importing `typing` costs more than this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Failure = tuple[str, str] | tuple[str, str, str]

PROTOCOL = 1
WITH_SEVERITY = 3


class Request:
    """One case to judge: `case`, `input_dir`, `expected_dir` and the untrusted `harness_output`.

    The directories are strings relative to the working directory. `harness_output` is what
    the system under test produced: check the type of everything taken out of it. `executions`
    holds what came of the steps of the case, by name; it is empty for a case without steps.
    """

    __slots__ = ("case", "executions", "expected_dir", "harness_output", "input_dir")

    def __init__(self, document: dict[str, object]) -> None:
        if document.get("protocol") != PROTOCOL:
            raise ValueError(f"this helper speaks protocol {PROTOCOL}, the request another one")
        self.case = _expect_object(document, "case")
        self.harness_output = _expect_object(document, "harness_output")
        self.executions = _expect_object(document, "executions") if "executions" in document else {}
        self.input_dir = str(document["input_dir"])
        self.expected_dir = str(document["expected_dir"])


class _AnswerChannel:
    """The descriptor that the answer goes to; None before `read_case` and after `emit`."""

    descriptor: int | None = None


def read_case() -> Request:
    """Read the one request from standard input, and keep standard output for the answer.

    Raises ValueError or TypeError if the request is not one; a rubric should let that end it.
    """
    sys.stdout.flush()  # what was printed earlier goes where it was meant to go, not by chance elsewhere
    _AnswerChannel.descriptor = os.dup(1)
    os.dup2(2, 1)  # also holds for C code and for programs that the rubric starts
    sys.stdout = sys.stderr  # in the order in which it was written, so a traceback stays the last thing
    document = json.loads(sys.stdin.buffer.read())
    if not isinstance(document, dict):
        raise TypeError("the request is not a JSON object")
    return Request(document)


def emit(
    *,
    passed: bool,
    score: float,
    breakdown: "Mapping[str, float] | None" = None,
    failures: "Iterable[Failure]" = (),
) -> None:
    """Write the answer: exactly one JSON document, complete when this returns.

    A failure is `(code, detail)` or `(code, severity, detail)`. The severity is a suggestion
    (the bench's taxonomy decides) and defaults to `block`. Raises RuntimeError when there is
    nothing to answer to: before `read_case`, or a second time.
    """
    answer = {
        "passed": passed,
        "score": score,
        "breakdown": dict(breakdown or {}),
        "failure_modes": [_failure_mode(failure) for failure in failures],
    }
    # allow_nan: better an error here, with the rubric's line in it, than an answer that is refused.
    unwritten = memoryview(json.dumps(answer, allow_nan=False).encode("ascii"))
    descriptor = _AnswerChannel.descriptor
    if descriptor is None:
        raise RuntimeError("call read_case before emit, and emit only once")
    _AnswerChannel.descriptor = None
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]
    os.close(descriptor)


def returned(reply: object, expected: object) -> bool:
    """Say whether a call returned exactly this value: 1, 1.0 and True are three values.

    `reply` is one of the `replies` of a step. An exception and no answer are not a value.
    """
    return isinstance(reply, dict) and "value" in reply and same_value(reply["value"], tagged(expected))


def same_value(one: object, other: object) -> bool:
    """Compare two tagged values. An object equals nothing, not even itself; the order of a dict is free."""
    spelled = _spelled(one)
    return spelled is not None and spelled == _spelled(other)


def tagged(value: "Any") -> object:  # noqa: ANN401 - any plain data
    """Return a value of Python as replies and arguments of calls spell it, by its exact type.

    Raises TypeError for a value that is not plain data.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return {"int": str(value)}
    if kind is float or kind is bytes:
        return {kind.__name__: value.hex()}
    if kind is dict:
        return {"dict": [[tagged(key), tagged(each)] for key, each in value.items()]}
    if kind is list or kind is tuple or kind is set:
        return {kind.__name__: [tagged(each) for each in value]}
    raise TypeError(f"{kind.__name__} is not plain data")


def _spelled(value: object) -> "str | None":
    """Return a tagged value as a text in which order does not matter where it has no meaning."""
    if not isinstance(value, dict):
        return json.dumps(value)
    [(tag, content)] = value.items()
    if tag == "object":
        return None
    if not isinstance(content, list):
        return json.dumps(value)
    parts = []
    for each in content:
        part = _spelled({"tuple": each} if tag == "dict" else each)
        if part is None:
            return None
        parts.append(part)
    return f"{tag}{json.dumps(sorted(parts) if tag in ('dict', 'set') else parts)}"


def _failure_mode(failure: "Failure") -> dict[str, str]:
    severity = failure[1] if len(failure) == WITH_SEVERITY else "block"
    return {"code": failure[0], "severity": severity, "detail": failure[-1]}


def _expect_object(document: dict[str, object], key: str) -> dict[str, object]:
    value = document[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} in the request is not a JSON object")
    return value
