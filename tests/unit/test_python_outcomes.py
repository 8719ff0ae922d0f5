"""From how a Python agent ended in its box to its answer or its fault."""

import json

import pytest

from codegenie.eval.boxes.request import BoxEnd
from codegenie.eval.collection.records import Collected
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.boxed.attempt import Attempted
from codegenie.eval.suts.boxed.python import python_outcome
from codegenie.eval.suts.boxed.streams import Beginning, Capture
from codegenie.eval.suts.raised import RAISED_BYTES, Raised

ENDED = BoxEnd(exit_code=0, wall_seconds=1.0)
EDITED = Collected(files={"a.txt": "new"})


def returned(output: object, cost: float | None = None) -> bytes:
    return json.dumps({"harness_output": output, "cost_usd": cost, "usage": None}).encode()


def produced(
    result: bytes = b"", raised: bytes = b"", end: BoxEnd = ENDED, collected: Collected | None = None
) -> SutAnswer | SutFault:
    further = (Beginning(LIMITS.sut_output_bytes + 1), Beginning(RAISED_BYTES))
    made = Attempted(Capture(), Capture(), end=end, further=further)
    made.collected = collected or Collected()
    made.stdout.feed(b"a line\n")
    for stream, content in zip(further, (result, raised), strict=True):
        stream.feed(content)
    return python_outcome([made], 3.0, Redactor({}))


def output_of(answer: SutAnswer | SutFault) -> object:
    assert isinstance(answer, SutAnswer), answer
    return json.loads(answer.output)


def test_what_it_returned_is_its_output_and_its_cost_is_its_own_word() -> None:
    answer = produced(returned({"files": {"b.txt": "b"}}, 0.5), collected=EDITED)

    assert output_of(answer) == {"files": {"b.txt": "b"}}
    assert (answer.cost_usd, answer.work) == (0.5, None)
    assert answer.account is not None
    assert (answer.account.cost_source, answer.account.attempts[0].cost_usd) == ("agent", 0.5)


def test_what_it_changed_is_its_output_if_it_returned_no_files() -> None:
    words = output_of(produced(returned({"note": "done"}), collected=EDITED))
    nothing = Raised("NothingReturned", "returned None", "", returned_nothing=True).encoded()

    assert words == {"note": "done", "files": {"a.txt": "new"}, "other": {}, "diff": ""}
    for answer in (produced(raised=nothing, collected=EDITED), produced(collected=EDITED)):
        assert output_of(answer) == {
            "exit_code": 0,
            "stdout_tail": "a line\n",
            "files": {"a.txt": "new"},
            "other": {},
            "diff": "",
        }


RAISED = Raised("ValueError", "no", "agent.py:4").encoded()
FAULTS = {
    "it raised": ({"raised": RAISED, "end": BoxEnd(exit_code=1)}, "ValueError: no (agent.py:4)"),
    "it raised after an answer": (
        {"result": returned({}), "raised": RAISED, "end": BoxEnd(exit_code=1)},
        "ValueError: no (agent.py:4)",
    ),
    "it left with an answer and a code": (
        {"result": returned({}), "end": BoxEnd(exit_code=7)},
        "exit:7: a line",
    ),
    "it was killed": ({"end": BoxEnd(signal="KILL")}, "signal:KILL: a line"),
    "it used too much memory": (
        {"end": BoxEnd(signal="KILL", ended_over="memory"), "result": returned({})},
        "ended: it used more memory than its limit",
    ),
    "it answered twice": ({"result": returned({}) * 2}, "output: not one JSON document"),
    "it answered too much": ({"result": b"[" * (LIMITS.sut_output_bytes + 9)}, "output: "),
    "it returned and changed nothing": ({}, "ended without a result"),
}


@pytest.mark.parametrize("how", FAULTS)
def test_an_end_without_an_answer_is_a_typed_fault(how: str) -> None:
    given, detail = FAULTS[how]
    fault = produced(**given)  # type: ignore[arg-type]

    assert isinstance(fault, SutFault)
    assert fault.code == "sut.exception"
    assert fault.detail.startswith(detail)
    assert (fault.void, [name for name, _ in fault.left_behind]) == (False, ["sut_stdout", "sut_stderr"])


def test_an_agent_that_is_late_has_no_answer_and_its_work_is_kept() -> None:
    fault = produced(returned({}), end=BoxEnd(signal="TERM", timed_out=True), collected=EDITED)

    assert isinstance(fault, SutFault)
    assert (fault.code, fault.detail) == ("sut.timeout", "no result within 3 s")
    assert fault.work is not None


def test_a_box_that_was_lost_is_not_the_fault_of_the_agent() -> None:
    made = Attempted(Capture(), Capture(), void="no box", further=(Beginning(9), Beginning(9)))
    fault = python_outcome([made] * LIMITS.attempts, 3.0, Redactor({}))

    assert isinstance(fault, SutFault)
    assert (fault.code, fault.void) == ("sut.cancelled", True)
    assert fault.account is not None
    assert len(fault.account.attempts) == LIMITS.attempts


def test_of_a_stream_the_beginning_is_kept() -> None:
    stream = Beginning(5)
    for piece in (b"abc", b"def", b"ghi"):
        stream.feed(piece)

    assert stream.kept() == b"abcde"
