"""Makes the executor of a run, if the run has steps to execute and a class in which they may be executed."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from codegenie.eval.boxes.proof import proved
from codegenie.eval.errors import IsolationUnavailable
from codegenie.eval.execution.steps import BoxedExecutor
from codegenie.eval.models import IsolationClass, RunPlan
from codegenie.eval.ports import CaseStore
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.boxed.secret_paths import secret_paths
from codegenie.eval.system.run_directory import run_directory


@asynccontextmanager
async def executor_of(
    plan: RunPlan, isolation_class: IsolationClass, store: CaseStore
) -> AsyncIterator[BoxedExecutor | None]:
    """Give the executor of a run; None if no case of it has steps.

    Raises IsolationUnavailable if only class `subprocess` is there and the user has not asked for it.
    """
    if not any(case.execute for case in plan.cases):
        yield None
        return
    refuse_unconfined(isolation_class, plan.options.sut_isolation)
    async with opened_executor(isolation_class, store, _hidden_from_code(plan)) as executor:
        yield executor


@asynccontextmanager
async def opened_executor(
    isolation_class: IsolationClass, store: CaseStore, secrets: Sequence[str]
) -> AsyncIterator[BoxedExecutor]:
    """Give an executor in boxes that were proved and do not show `secrets`.

    Raises IsolationUnavailable if the kernel lacks the class, and IsolationNotProved if the proof fails.
    """
    # A directory of its own: the user of boxes may walk through it, and that of rubrics may not.
    with run_directory() as directory:
        boxes, _ = await proved(isolation_class, directory, "none")
        try:
            yield BoxedExecutor(boxes, store, Redactor(os.environ), tuple(secrets))
        finally:
            await boxes.close()


def refuse_unconfined(isolation_class: IsolationClass, asked_for: str) -> None:
    """Raise IsolationUnavailable if an agent's code would run unconfined without being asked for."""
    if isolation_class == "subprocess" and asked_for != "subprocess":
        raise IsolationUnavailable(
            "the cases have steps that execute an agent's code, and class 'subprocess' does not confine it",
            hint="run where `codegenie eval doctor` proves a stronger class; with --sut-isolation subprocess"
            " the code has all rights of your user, and the run is not evidence",
        )


def _hidden_from_code(plan: RunPlan) -> tuple[str, ...]:
    return secret_paths(plan, Path.cwd())
