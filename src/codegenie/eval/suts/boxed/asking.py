"""What every agent in a box has: a proof of the box, attempts, signs of life, and calls that do not count."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.proof import strongest_proved
from codegenie.eval.broker.client import Broker
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.isolation import hiding
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutBoundary, SutNetwork
from codegenie.eval.ports import Beat, BoxedRunner, SutCase
from codegenie.eval.suts.boxed.attempt import AgentProgram, Attempt, Attempted
from codegenie.eval.suts.boxed.outcome import void_cause
from codegenie.eval.suts.boxed.request import SutIsolation
from codegenie.eval.suts.boxed.shown_directories import ShownDirectories
from codegenie.eval.system.folders import make_folder
from codegenie.eval.system.run_directory import run_directory


class AgentInBox(BoxedRunner):
    """Asks an agent in boxes of the strongest class that can be proved."""

    boundary: SutBoundary = "process"
    # Only an agent with a broker has one.
    _broker: Broker | None = None

    def __init__(self) -> None:
        self._held = AsyncExitStack()
        # Why the provider ended the run, and no fault of the agent.
        self._ended_by: str | None = None
        self._working: dict[SutCase, Attempt] = {}
        self._cancelled: dict[SutCase, Attempted] = {}
        # Set when the agent was looked up.
        self._shown = ShownDirectories()

    async def _proved_boxes(
        self, isolation: SutIsolation, network: SutNetwork, kept_in: tuple[Path, ...]
    ) -> Boxes:
        """Prove the box. Raises IsolationUnavailable or IsolationNotProved."""
        # A box can hide only what exists, and the directory of a log may lie in one that the box shows.
        for folder in kept_in:
            make_folder(folder)
        directory = self._held.enter_context(run_directory())
        notes: list[str] = []
        with hiding.seen():
            boxes, self.proof = await strongest_proved(isolation, directory, network, notes.append)
        self.notes = tuple(notes)
        self._held.push_async_callback(boxes.close)
        self.boundary = "process" if boxes.isolation_class == "subprocess" else boxes.isolation_class
        return boxes

    async def _attempts(
        self, setup: AgentProgram, boxes: Boxes, case: SutCase, seconds: float, parcel: int
    ) -> list[Attempted]:
        """Run the agent, again from a clean copy while the harness itself failed."""
        attempts: list[Attempted] = []
        while len(attempts) < LIMITS.attempts:
            self._shown.check()
            attempt = self._working[case] = Attempt(setup, boxes, self._broker)
            try:
                attempts.append(await attempt.run(case, seconds, parcel))
            except asyncio.CancelledError:
                self._cancelled[case] = attempt.made
                raise
            except SutSpecInvalid:
                # What could be shown before the first case cannot be shown any more.
                self._shown.check()
                raise
            finally:
                del self._working[case]
            if void_cause(attempts[-1]) is None:
                break
        return attempts

    def beats(self) -> tuple[Beat, ...]:
        """Return a sign of life of every agent that works now."""
        return tuple(attempt.beat(case) for case, attempt in self._working.items())

    def why_not_counted(self, case: SutCase) -> str | None:
        """Return why a cancelled call does not count: it had not begun, or its provider ended the run.

        A call that the user ended counts, although its model had not answered: an agent may work without it.
        """
        made = self._cancelled.pop(case, None)
        if made is None or not made.was_started:
            return "the agent had not been started"
        unanswered = made.ledger is not None and not made.ledger.successes
        return self._ended_by if unanswered else None

    async def close(self) -> None:
        """End the broker and the box server, and remove their directory."""
        await self._held.aclose()
