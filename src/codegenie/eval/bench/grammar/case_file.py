"""`case.toml`: its fields, and whether they are those of this case."""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from codegenie.eval.bench.grammar.problems import Problem, Reading, quoted
from codegenie.eval.decoding import decode_toml
from codegenie.eval.errors import BenchCaseIDCollision, BenchCaseLoadError, DecodingRefused
from codegenie.eval.models import BenchCase

_FILE = "case.toml"
_STEP = "execute."
_STEP_HEAD = re.compile(r"[ \t]*\[\[[ \t]*execute[ \t]*\]\]")
_COMPUTED = ("digest", "input_digest")


class CaseHead(NamedTuple):
    """The bytes of a case.toml, and the two digests that were computed with them."""

    raw: bytes
    digest: str
    input_digest: str


def inspect_case(head: CaseHead, task_class: str, case_id: str, ids: Collection[str]) -> Reading[BenchCase]:
    """Read a case; `ids` are those of the bench, so that a claim to another one's is found."""
    try:
        fields = decode_toml(head.raw)
    except DecodingRefused as refusal:
        return Reading(
            None, (Problem(BenchCaseLoadError, f"case {case_id!r}: {refusal.message}", _FILE, refusal.line),)
        )
    problems = list(_identity_problems(fields, task_class, case_id, ids))
    # What was just judged is not judged again, and what is computed cannot be declared.
    known = {"family": case_id, **fields, "case_id": case_id, "task_class": task_class}
    known |= {"digest": head.digest, "input_digest": head.input_digest}
    try:
        case = BenchCase(**known)
    except ValidationError as error:
        case = None
        problems += _field_problems(error)
    if problems:
        text = head.raw.decode()
        return Reading(case, tuple(_placed(problem, name, text) for problem, name in problems))
    return Reading(case)


def _identity_problems(
    fields: dict[str, Any], task_class: str, case_id: str, ids: Collection[str]
) -> Iterator[tuple[Problem, str]]:
    claimed = fields.get("case_id")
    if claimed != case_id:
        collides = isinstance(claimed, str) and claimed in ids
        kind = BenchCaseIDCollision if collides else BenchCaseLoadError
        yield (
            Problem(kind, f"case_id is {quoted(claimed)}, but the directory is {case_id!r}", _FILE),
            "case_id",
        )
    if fields.get("task_class") != task_class:
        message = f"case {case_id!r} says task_class = {quoted(fields.get('task_class'))}, not {task_class!r}"
        yield Problem(BenchCaseLoadError, message, _FILE), "task_class"
    for name in _COMPUTED:
        if name in fields:
            yield Problem(BenchCaseLoadError, f"{name}: is computed, not declared", _FILE), name


def _field_problems(error: ValidationError) -> Iterator[tuple[Problem, str]]:
    for problem in error.errors(include_url=False):
        place = ".".join(ascii(part).strip("'")[:80] for part in problem["loc"])
        message = f"{place or 'case'}: {problem['msg']}"
        hint = "see docs/reference/bench.md for the fields"
        yield (
            Problem(BenchCaseLoadError, message, _FILE, hint=hint),
            _field(problem["loc"]) if place else "source",
        )


def _field(place: tuple[int | str, ...]) -> str:
    """Return the field of a problem; for one in a step it is the number of that step."""
    number = place[1] if len(place) > 1 else None
    return f"{_STEP}{number}" if place[0] == "execute" and isinstance(number, int) else str(place[0])


def _line_of_step(text: str, number: int) -> int | None:
    heads = [line for line, written in enumerate(text.split("\n"), 1) if _STEP_HEAD.match(written)]
    return heads[number] if number < len(heads) else None


def _placed(problem: Problem, field: str, text: str) -> Problem:
    """Add the line on which a field is set; a missing one has none."""
    if field.startswith(_STEP):
        return replace(problem, line=_line_of_step(text, int(field.removeprefix(_STEP))))
    found = re.search(rf"^[ \t]*[\"']?{re.escape(field)}[\"']?[ \t]*=", text, re.MULTILINE)
    if found is None:
        return problem
    line = text.count("\n", 0, found.start()) + 1
    return Problem(problem.error, problem.message, problem.file, line, problem.hint)
