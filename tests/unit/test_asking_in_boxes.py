"""An agent in a box that was not started when the run ended: the call does not count."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from codegenie.eval.canonical import digest_json
from codegenie.eval.evidence import WorkItem
from codegenie.eval.ports import BoxedRunner, SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import Stop
from codegenie.eval.trial import TrialParts, run_trial
from tests.support.executing import case_with


class NeverStarted(BoxedRunner):
    """An agent that must not be asked."""

    async def prepare(self) -> None:
        """There is nothing to prepare."""

    async def ask_in_box(self, case: SutCase, seconds: float, parcel: int) -> SutAnswer | SutFault:
        raise AssertionError(f"{case} was asked for {seconds} s with {parcel}")

    def why_not_counted(self, case: SutCase) -> str | None:
        return f"{case.case_id} had not been started"

    async def close(self) -> None:
        """There is nothing to close."""


class SlowDisk:
    """A journal whose disk does not come to an end with the line."""

    def __init__(self) -> None:
        self.is_writing = asyncio.Event()
        self.void: list[str] = []

    async def asking(self, item: WorkItem) -> None:
        del item
        self.is_writing.set()
        await asyncio.Event().wait()

    def voided(self, item: WorkItem, cause: str) -> None:
        self.void.append(f"{item.case.case_id}: {cause}")


def test_a_run_that_ends_while_a_call_is_written_down_takes_the_call_back() -> None:
    disk: Any = None

    async def ended() -> None:
        nonlocal disk
        disk = SlowDisk()
        item = WorkItem(plan_digest=digest_json("test", {}), case=case_with([]), trial=0)
        parts = SimpleNamespace(
            sut=NeverStarted(),
            notices=disk,
            stop=Stop(),
            memory=SimpleNamespace(output=lambda *_: None),
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            redactor=Redactor({}),
            timeout_seconds=None,
        )
        trial = asyncio.ensure_future(run_trial(cast("TrialParts", parts), item))
        await disk.is_writing.wait()
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial

    asyncio.run(ended())

    assert disk.void == ["one: one had not been started"]
