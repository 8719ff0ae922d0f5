"""The steps of a case: what the harness executes of an agent's work before the rubric judges it.

A step is plain data of `case.toml`. It names files below `execute/`, which neither the agent nor the executed
code can change.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from codegenie.eval.record_base import FrozenMap, Record, is_nothing

MOST_STEPS = 16
EXECUTE = "execute/"
"""The part of a case that holds what its steps need."""

_MOST_PLACED = 64
_MOST_OUTPUTS = 16
_MOST_ARGUMENTS = 256
_PATH_CHARACTERS = 512
_ODD = re.compile(r"[^\x20-\x7e]|\\")


def is_plain_path(path: str) -> bool:
    """Say whether a path stays below the directory it is relative to, and has only plain characters."""
    if not path or len(path) > _PATH_CHARACTERS or _ODD.search(path):
        return False
    return all(part.strip() == part and part not in {"", ".", ".."} for part in path.split("/"))


def _in_the_workspace(path: str) -> str:
    if not is_plain_path(path):
        raise ValueError("it is not a plain path below the workspace")
    return path


def _in_execute(path: str) -> str:
    if not path.startswith(EXECUTE) or not is_plain_path(path):
        raise ValueError("it is not a plain path below execute/")
    return path


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument holds a NUL")
    return text


StepName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
ModuleName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=200)
]
WorkPath = Annotated[str, AfterValidator(_in_the_workspace)]
StepFile = Annotated[str, AfterValidator(_in_execute)]
Argument = Annotated[str, StringConstraints(max_length=4_096), AfterValidator(_without_nul)]
Seconds = Annotated[int, Field(ge=1, le=300)]
Placed = Annotated[
    dict[WorkPath, StepFile], Field(max_length=_MOST_PLACED, exclude_if=is_nothing), AfterValidator(FrozenMap)
]
"""Files below `execute/` by the path that they get. They win over files of the agent."""


class PythonCalls(Record):
    """Calls functions of the agent's module, each with plain data, and takes down what they return."""

    kind: Literal["python-calls"]
    name: StepName
    module: ModuleName
    calls: StepFile
    # Each call in a process of its own.
    fresh: bool = False
    place: Placed = Field(default_factory=FrozenMap)
    seconds: Seconds = 10
    call_seconds: Seconds = 2


class Program(Record):
    """Runs a program in the agent's workspace, and takes down what it writes."""

    kind: Literal["program"]
    name: StepName
    # A list in TOML, which a strict tuple would refuse.
    argv: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=_MOST_ARGUMENTS, strict=False)]
    stdin: Annotated[StepFile | None, Field(exclude_if=is_nothing)] = None
    place: Placed = Field(default_factory=FrozenMap)
    outputs: Annotated[
        tuple[WorkPath, ...], Field(max_length=_MOST_OUTPUTS, strict=False, exclude_if=is_nothing)
    ] = ()
    seconds: Seconds = 30


ExecuteStep = Annotated[PythonCalls | Program, Field(discriminator="kind")]


def step_files(step: PythonCalls | Program) -> tuple[str, ...]:
    """Name the files of the case that a step needs."""
    own = (step.calls,) if isinstance(step, PythonCalls) else () if step.stdin is None else (step.stdin,)
    return (*own, *step.place.values())
