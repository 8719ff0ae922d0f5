"""Executes steps as a run does: real boxes, and a case that is plain data.

Hostile code that is executed here has a pid namespace and a user of its own: that of class `namespace`, or
that in which the whole program was started. Another class is refused elsewhere, because there one `kill(-1)`
would reach processes of this machine if a wall had a hole.
"""

import datetime as dt
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from codegenie.eval.execution.opening import opened_executor
from codegenie.eval.execution.steps import BoxedExecutor
from codegenie.eval.execution_ports import CaseFile
from codegenie.eval.models import BenchCase, IsolationClass
from codegenie.eval.ports import CaseStore

Execution = dict[str, Any]


class PlainStore:
    """Gives the files of one case that a test sets before it executes."""

    def __init__(self) -> None:
        self.files: dict[str, CaseFile] = {}

    def for_execution(self, _case: BenchCase) -> dict[str, CaseFile]:
        """Return the files of `input/` and `execute/`."""
        return self.files


class Bench:
    """Executes steps for an output, one after the other."""

    def __init__(self, executor: BoxedExecutor, store: PlainStore) -> None:
        self.executor = executor
        self._store = store

    async def execute(
        self, steps: list[dict[str, Any]], files: Mapping[str, str], output: Mapping[str, Any]
    ) -> dict[str, Execution]:
        """Return what came of the steps of a case with these files."""
        self._store.files = {path: CaseFile(text.encode()) for path, text in files.items()}
        raw = await self.executor.execute(case_with(steps), json.dumps(output).encode())
        return cast("dict[str, Execution]", json.loads(raw))


@asynccontextmanager
async def opened_bench(*secrets: Path, isolation_class: IsolationClass = "namespace") -> AsyncIterator[Bench]:
    """Give an executor with one box server."""
    if isolation_class != "namespace" and os.getpid() != 1:
        raise RuntimeError(
            "hostile code without a pid namespace is executed in one that holds its harness, too"
        )
    store = PlainStore()
    hidden = tuple(map(str, secrets))
    async with opened_executor(isolation_class, cast("CaseStore", store), hidden) as executor:
        yield Bench(executor, store)


def case_with(steps: list[dict[str, Any]]) -> BenchCase:
    """Return a case with these steps."""
    day = dt.date(2026, 11, 16)
    return BenchCase(
        case_id="one",
        task_class="built-class",
        disposition="positive",
        difficulty="easy",
        source="curated",
        curation_class="held-out",
        family="one",
        added_at=day,
        last_validated_at=day,
        digest="0" * 64,
        input_digest="0" * 64,
        execute=cast("Any", steps),
    )


def calls_step(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of a step
    """Return a step that calls functions of `calc`."""
    step = {"kind": "python-calls", "name": "values", "module": "calc", "calls": "execute/calls.json"}
    return {**step, "seconds": 60, "call_seconds": 20, **fields}


def program_step(*argv: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - likewise
    """Return a step that runs a program."""
    return {"kind": "program", "name": "cli", "argv": list(argv), "seconds": 60, **fields}


def calls(*rows: tuple[str, list[Any]], mutates: bool = False) -> str:
    """Return a file of calls with tagged arguments."""
    return json.dumps([{"attribute": name, "args": args, "mutates": mutates} for name, args in rows])
