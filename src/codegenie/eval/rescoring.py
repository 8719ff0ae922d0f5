"""Run rubrics again on stored outputs and name every answer that is not the one in the log."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Literal

from codegenie.eval.evidence import Answer, TrialEvidence
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, TaskClass
from codegenie.eval.ports import CaseStore, RubricRunner
from codegenie.eval.sanitising import Redactor
from codegenie.eval.trial import judge_in_room
from codegenie.eval.validation import bounded, judge

Kind = Literal["differs", "nondeterministic"]

# A rubric that tosses a coin agrees with itself this often in one of 32 cases.
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One trial whose rubric now says something else."""

    case_id: str
    trial: int
    kind: Kind
    stored: float
    now: float


@dataclass(frozen=True, slots=True)
class Rescorer:
    """Judges stored outputs with the bench on disk, where whoever checks them lets rubrics run."""

    task_class: TaskClass
    cases: dict[str, BenchCase]
    store: CaseStore
    rubrics: RubricRunner
    redactor: Redactor
    answer_bytes: int = LIMITS.answer_bytes

    async def differences(self, outputs: Iterable[tuple[TrialEvidence, bytes]]) -> AsyncIterator[Difference]:
        """Yield what differs; a rubric that differs from itself is named as such."""
        for trial, output in outputs:
            now = await self._judge(trial, output)
            if now != trial.answer:
                kind: Kind = "nondeterministic" if await self._wavers(trial, output, now) else "differs"
                yield Difference(trial.case_id, trial.trial, kind, trial.answer.score, now.score)

    async def _wavers(self, trial: TrialEvidence, output: bytes, now: Answer) -> bool:
        for _ in range(_REPEATS):
            if await self._judge(trial, output) != now:
                return True
        return False

    async def _judge(self, trial: TrialEvidence, output: bytes) -> Answer:
        case = self.cases[trial.case_id]
        run = await judge_in_room(self.store, self.rubrics, case, output)
        return bounded(judge(run, self.task_class, self.redactor), self.answer_bytes)
