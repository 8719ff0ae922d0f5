"""What the line asks of an executor, and the records that both know: files of a case, and what is judged."""

from dataclasses import dataclass
from typing import Protocol

from codegenie.eval.models import BenchCase


@dataclass(frozen=True, slots=True)
class Judged:
    """What a rubric judges: the output, and what came of the steps of the case if it has steps."""

    output: bytes
    executions: bytes | None = None


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One file of a case, or of a workspace that is made of it."""

    content: bytes
    executable: bool = False


class Executor(Protocol):
    """Executes the steps of a case where an agent's code can do no damage."""

    async def execute(self, case: BenchCase, output: bytes) -> bytes:
        """Return what came of each step by its name, as one JSON object.

        Raises only errors that end the run. When the call returns, or is cancelled, everything that a step
        started has ended.
        """
        ...
