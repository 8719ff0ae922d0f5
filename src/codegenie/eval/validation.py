"""Turn the untrusted bytes of a rubric into a verdict, or into the typed failure that says why there is none.

The contract defines the order of the checks: how the child ended, then one JSON document, then its shape,
then its codes and keys against what the bench declared. The first failing check decides. Nothing is repaired.
"""

import errno
from typing import Annotated

from pydantic import Field, ValidationError

from codegenie.eval.breakdown import banned_part
from codegenie.eval.decoding import decode_json, unquoted
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.evidence import Answer, answer_weight
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RESERVED_PREFIXES, FailureMode, Record, Severity, Share, TaskClass
from codegenie.eval.ports import RubricRun
from codegenie.eval.sanitising import Redactor, one_line

_LIMIT_SIGNALS = {"XCPU": "cpu", "XFSZ": "file_size"}
# Python turns two limits into exceptions, so they are visible only in the last line of a traceback.
_LIMIT_ERRORS = {"MemoryError": "memory", f"OSError: [Errno {errno.EFBIG}]": "file_size"}


class _AnsweredFailure(Record):
    """A failure mode as a rubric writes it. Its severity is a suggestion that the runner ignores."""

    code: str
    severity: str | None = None
    detail: str | None = None


class _Answer(Record):
    """The one document that a rubric may print."""

    passed: bool
    score: Share
    breakdown: Annotated[dict[str, Share], Field(max_length=LIMITS.breakdown_keys)]
    failure_modes: Annotated[list[_AnsweredFailure], Field(max_length=LIMITS.failure_modes)]
    # Accepted and ignored: the runner measured both values itself.
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    wall_clock_ms: Annotated[float, Field(ge=0)] | None = None


def failed(code: str, detail: str | None = None) -> Answer:
    """Return the answer for a trial that has none: not passed, score 0, one typed failure that blocks."""
    return Answer(passed=False, score=0.0, failure_modes=(blocking(code, detail),))


def blocking(code: str, detail: str | None = None) -> FailureMode:
    """Make a failure of severity `block`. `detail` is cut to one printable line."""
    return FailureMode(
        code=code, severity=Severity.BLOCK, detail=None if detail is None else one_line(detail)
    )


def bounded(answer: Answer, room: int) -> Answer:
    """Return the answer, or a failure if the answer weighs more than its share of the record.

    The answer is not cut, because only the bench knows which of its failures a reader can do without.
    """
    weight = answer_weight(answer)
    if weight <= room:
        return answer
    return failed("rubric.malformed_output", f"answer: weighs {weight} bytes, and {room} can be recorded")


def judge(run: RubricRun, task_class: TaskClass, redactor: Redactor) -> Answer:
    """Turn what a rubric child left behind into a verdict on its case."""
    if run.timed_out:
        return failed("rubric.timeout")
    problem = _how_it_ended(run, redactor)
    if problem:
        return failed("rubric.malformed_output", problem)
    try:
        answer = _Answer.model_validate(decode_json(run.stdout, LIMITS.rubric_stdout_bytes))
    except DecodingRefused as refusal:
        problem = unquoted(refusal) if run.stdout.strip() else "empty"
        return failed("rubric.malformed_output", redactor.detail(f"stdout: {problem}"))
    except ValidationError as error:
        return failed("rubric.malformed_output", f"answer: {_first_problem(error, redactor)}")
    if answer.passed and not answer.score:
        return failed("rubric.malformed_output", "answer: passed with score 0")
    return _weigh(answer, task_class, redactor)


def _how_it_ended(run: RubricRun, redactor: Redactor) -> str | None:
    if run.stdout_truncated:
        return "resource_limit:stdout"
    if run.signal is not None:
        limit = _LIMIT_SIGNALS.get(run.signal)
        return f"resource_limit:{limit}" if limit else f"signal:{run.signal}"
    if run.exit_code is None:
        return "supervisor_killed"
    if run.exit_code != 0:
        return _exit_detail(run.exit_code, run.stderr, redactor)
    return "process_leak" if run.leaked_processes else None


def _exit_detail(exit_code: int, stderr: bytes, redactor: Redactor) -> str:
    text = stderr.decode("utf-8", "replace")
    cut = len(stderr) >= LIMITS.rubric_stderr_bytes
    # Redacted as a whole before it is split, because a secret may span lines.
    cleaned = redactor.clean_tail(text) if cut else redactor.clean(text)
    lines = [line for line in cleaned.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    limit = next((name for start, name in _LIMIT_ERRORS.items() if last.startswith(start)), None)
    if limit is not None:
        return f"resource_limit:{limit}"
    return one_line(f"exit:{exit_code}: {last}") if last else f"exit:{exit_code}"


def _first_problem(error: ValidationError, redactor: Redactor) -> str:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(redactor.detail(str(part))[:64] for part in problem["loc"])
    return f"{place}: {problem['msg']}"


def _weigh(answer: _Answer, task_class: TaskClass, redactor: Redactor) -> Answer:
    """Check every code and key against what the bench declared. A failure that blocks sets the score to 0."""
    declared = frozenset(task_class.breakdown_keys)
    breakdown: dict[str, float] = {}
    unknown_keys: list[str] = []
    for key, value in sorted(answer.breakdown.items()):
        if key in declared and banned_part(key) is None:
            breakdown[key] = value
        else:
            unknown_keys.append(key)
    modes = [
        blocking("rubric.unknown_breakdown_key", redactor.detail(key))
        for key in unknown_keys[: LIMITS.unknown_keys_reported]
    ]
    modes += [_known_mode(mode, task_class, redactor) for mode in answer.failure_modes]
    weighed = Answer(
        passed=answer.passed,
        score=answer.score,
        breakdown=breakdown,
        failure_modes=tuple(dict.fromkeys(modes)),
    )
    return bounded(weighed, LIMITS.answer_bytes)


def _known_mode(mode: _AnsweredFailure, task_class: TaskClass, redactor: Redactor) -> FailureMode:
    if mode.code.startswith(RESERVED_PREFIXES):
        return blocking("rubric.unknown_failure_mode", redactor.detail(f"reserved_code:{mode.code}"))
    spec = task_class.taxonomy.get(mode.code)
    if spec is None:
        return blocking("rubric.unknown_failure_mode", redactor.detail(mode.code))
    detail = None if mode.detail is None else redactor.detail(mode.detail)
    return FailureMode(code=mode.code, severity=spec.severity, detail=detail)
