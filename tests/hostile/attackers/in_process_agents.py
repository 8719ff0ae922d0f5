"""Agents in the harness's process, for the attacks of several surfaces."""

import asyncio
from pathlib import Path
from typing import Any, cast

from codegenie.eval.models import BenchRunReport
from codegenie.eval.ports import SutCase, SystemUnderTest
from tests.hostile.attackers.hostile_bench import HONEST, HOSTILE, judged, run_cases
from tests.hostile.engine.stage import Outcome
from tests.support.benches import HONEST_RUBRIC, right_answer

Deed = Any  # what an agent does on the hostile case: a function of the case, or of nothing that is typed


def agent_that(deed: Deed) -> SystemUnderTest:
    """Return an agent that does this on the hostile case and answers the others rightly."""

    async def system(case: SutCase) -> Any:  # noqa: ANN401 - nonsense is the point
        if case.case_id == HONEST:
            return await right_answer(case)
        returned = deed(case)
        return await returned if asyncio.iscoroutine(returned) else returned

    return cast("SystemUnderTest", system)


def measured(room: Path, deed: Deed, **options: Any) -> BenchRunReport:  # noqa: ANN401 - any of RunOptions
    """Measure such an agent on the hostile and the honest case."""
    return run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), agent_that(deed), **options)


def answers(case: SutCase) -> dict[str, str]:
    """Answer rightly, as every twin does in the end."""
    return {"answer": f"it is {case.case_id}"}


def passed(room: Path, deed: Deed, **options: Any) -> Outcome:  # noqa: ANN401 - any of RunOptions
    """Play a twin."""
    outcome = judged(measured(room, deed, **options))
    return Outcome(outcome.met, None, outcome.sibling)
