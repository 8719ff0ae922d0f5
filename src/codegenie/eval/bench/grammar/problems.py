"""What a file of a bench says that it may not say: all of it, and the first of it as a refusal.

The loader raises the first problem, the fence shows every one, and both read with the same readers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from codegenie.eval.errors import BenchInvalid

T = TypeVar("T")

Topic = Literal["form", "banned_word", "runner_code", "encoding"]
"""What kind of promise is broken, where one file makes more than one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file, and its line where there is one."""

    error: type[BenchInvalid]
    message: str
    file: str
    line: int | None = None
    hint: str | None = None
    topic: Topic = "form"

    def refusal(self) -> BenchInvalid:
        """Return it as the exception that the loader raises."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return self.error(self.message, where=where, hint=self.hint)


class Refused(Exception):  # noqa: N818 - never leaves this package
    """Ends the reading of one part; what is read beside it goes on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Problems:
    """Collects the problems of one file, in the order in which they are met."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Note the refusal of the part that is read inside, and go on after it."""
        try:
            yield
        except Refused as refused:
            self.found.append(refused.problem)


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What a file says, as far as it could be understood, and everything that is wrong with it."""

    value: T | None
    problems: tuple[Problem, ...] = ()

    def or_refuse(self) -> T:
        """Return the value, or raise the first problem; there is a value where there is none."""
        if self.value is None or self.problems:
            raise self.problems[0].refusal()
        return self.value


def quoted(text: object) -> str:
    """Quote a bench's text for a message: ASCII, and not all of it."""
    return ascii(text)[:80]
