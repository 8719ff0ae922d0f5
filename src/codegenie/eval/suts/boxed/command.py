"""The runner of an agent that is a program: it proves the box, keeps the key, and asks case by case."""

import asyncio
import os
import re
from contextlib import AsyncExitStack
from itertools import islice

from codegenie.eval.boxes.proof import strongest_proved
from codegenie.eval.broker.client import Broker
from codegenie.eval.broker.records import Ledger
from codegenie.eval.errors import ModelNotReached, SutChanged, SutSpecInvalid
from codegenie.eval.isolation import hiding
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import Beat, BoxedRunner, SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import Redactor, one_line
from codegenie.eval.suts.agent_spec.environment import broker_credential
from codegenie.eval.suts.boxed.attempt import Attempt, Attempted
from codegenie.eval.suts.boxed.outcome import never_reached, outcome, void_cause
from codegenie.eval.suts.boxed.request import AgentRequest
from codegenie.eval.suts.boxed.set_up import (
    broker_rules,
    identity_of,
    looked_up,
    name_of,
    network_of,
    version_of,
)
from codegenie.eval.system.folders import make_folder
from codegenie.eval.system.run_directory import run_directory

# Files that a user hands over hold some tokens. Each text is searched for each word.
_MOST_WORDS = 1_000
_LONG_WORD = re.compile(r"[^\s\"',:;{}\[\]()<>]{16,}")


class CommandSut(BoxedRunner):
    """Asks a program, in a box of the strongest class that can be proved."""

    boundary: SutBoundary = "process"

    def __init__(self, request: AgentRequest) -> None:
        self._request = request
        self._host = dict(os.environ)
        self._held = AsyncExitStack()
        self._broker: Broker | None = None
        self._was_reached = False
        # Why the provider ended the run, and no fault of the agent.
        self._ended_by: str | None = None
        self._answered: list[str] = []
        self._working: dict[SutCase, Attempt] = {}
        self._cancelled: dict[SutCase, Attempted] = {}
        self._network = self.network = network_of(request)
        broker = request.spec.broker
        if self.network == "broker" and broker is not None:
            self.upstream = broker.upstream.partition("://")[2]
            # Now, so that a key that is missing is refused before anything is started.
            broker_credential(request.spec, self._host)
        with looked_up(request, self._host) as found:
            # Of the log's name of it; the digest follows when its version is known.
            self.identity = SutIdentity(spec=name_of(request, {}), version=request.version)
            texts = [content.decode("utf-8", "replace") for content in found.setup.handed_over.values()]
            words = dict.fromkeys(word for text in texts for word in _LONG_WORD.findall(text))
            self.secrets = {f"handed over {n}": word for n, word in enumerate(islice(words, _MOST_WORDS))}
        self._redactor = Redactor({**self._host, **self.secrets})

    async def prepare(self) -> None:
        """Prove the box, look the agent up, ask for its version and start its broker."""
        held, request = self._held, self._request
        # A box can hide only what exists, and the directory of a log may lie in one that the box shows.
        for folder in request.kept_in:
            make_folder(folder)
        directory = held.enter_context(run_directory())
        notes: list[str] = []
        with hiding.seen():
            self._boxes, self.proof = await strongest_proved(
                request.isolation, directory, self._network, notes.append
            )
        self.notes = tuple(notes)
        held.push_async_callback(self._boxes.close)
        self.boundary = (
            "process" if self._boxes.isolation_class == "subprocess" else self._boxes.isolation_class
        )
        self._found = held.enter_context(looked_up(request, self._host))
        version = await version_of(self._boxes, self._found, self._redactor)
        self.identity = identity_of(request, self._found, version)
        if self.network == "broker":
            credential = broker_credential(request.spec, self._host)
            self._broker = await Broker.start(broker_rules(request), credential)
            held.push_async_callback(self._broker.close)

    async def ask_in_box(self, case: SutCase, seconds: float, parcel: int) -> SutAnswer | SutFault:
        """Run the agent, again from a clean copy while the harness itself failed."""
        seconds = min(seconds, self._request.spec.limits.seconds)
        attempts: list[Attempted] = []
        while len(attempts) < LIMITS.attempts:
            self._found.check_directories()
            attempt = self._working[case] = Attempt(self._found.setup, self._boxes, self._broker)
            try:
                attempts.append(await attempt.run(case, seconds, parcel))
            except asyncio.CancelledError:
                self._cancelled[case] = attempt.made
                raise
            except SutSpecInvalid:
                # What could be shown before the first case cannot be shown any more.
                self._found.check_directories()
                raise
            finally:
                del self._working[case]
            if void_cause(attempts[-1]) is None:
                break
        self._note_models(attempts[-1].ledger)
        missed = never_reached(attempts[-1].ledger, before=self._was_reached)
        if missed is not None and not self._was_reached:
            self._ended_by = missed.why if missed.void else None
            raise ModelNotReached(
                f"the agent's model was not reached: {missed.why}",
                where=f"case {case.case_id}",
                hint="check the key, the network, the model and where the agent gets the broker's address;"
                " the same command resumes the run",
                void=missed.void,
            )
        self._was_reached = True
        produced = outcome(attempts, self._request.spec, seconds, self._redactor)
        if missed is None:
            return produced
        return SutFault(
            "sut.cancelled",
            f"not measured: {missed.why}",
            produced.cost_usd,
            void=missed.void,
            account=produced.account,
            left_behind=produced.left_behind,
        )

    def _note_models(self, ledger: Ledger | None) -> None:
        """Note it when the provider answers with another model than before: then two agents were measured."""
        answered = () if ledger is None else ledger.answered_models
        new = [model for model in answered if model not in self._answered]
        if ledger is not None and new and self._answered:
            asked = ", ".join(ledger.asked_models)
            text = f"the model changed during the run: {asked} was asked for, and {new[0]} answered, too"
            self.notes = (*self.notes, one_line(text))
        self._answered += new

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

    async def settle(self) -> None:
        """Check, after the last case, that the agent is still what it was. Raises SutChanged."""
        self._found.check_directories()
        version = await version_of(self._boxes, self._found, self._redactor)
        if identity_of(self._request, self._found, version) != self.identity:
            raise SutChanged(
                f"{self.identity.spec} has changed since the run was started",
                where=self._found.needs.executed,
                hint="start the run again, and do not update the agent during the run",
            )

    async def close(self) -> None:
        """End the broker and the box server, and remove their directory."""
        await self._held.aclose()
