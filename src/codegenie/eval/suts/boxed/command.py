"""The runner of an agent that is a program: it proves the box, keeps the key, and asks case by case."""

import os
import re
from itertools import islice

from codegenie.eval.broker.client import Broker
from codegenie.eval.broker.records import Ledger
from codegenie.eval.errors import ModelNotReached, SutChanged
from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import Redactor, one_line
from codegenie.eval.suts.agent_spec.environment import broker_credential
from codegenie.eval.suts.boxed.asking import AgentInBox
from codegenie.eval.suts.boxed.outcome import last_line, never_reached, outcome
from codegenie.eval.suts.boxed.request import AgentRequest
from codegenie.eval.suts.boxed.set_up import (
    broker_rules,
    identity_of,
    looked_up,
    name_of,
    network_of,
    version_of,
)
from codegenie.eval.suts.boxed.shown_directories import ShownDirectories

# Files that a user hands over hold some tokens. Each text is searched for each word.
_MOST_WORDS = 1_000
_LONG_WORD = re.compile(r"[^\s\"',:;{}\[\]()<>]{16,}")


class CommandSut(AgentInBox):
    """Asks a program, in a box of the strongest class that can be proved."""

    def __init__(self, request: AgentRequest) -> None:
        super().__init__()
        self._request = request
        self._host = dict(os.environ)
        self._was_reached = False
        self._answered: list[str] = []
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
        self._boxes = await self._proved_boxes(request.isolation, self._network, request.kept_in)
        self._found = held.enter_context(looked_up(request, self._host))
        self._shown = ShownDirectories(self._found.setup.view.readable)
        version = await version_of(self._boxes, self._found, self._redactor)
        self.identity = identity_of(request, self._found, version)
        if self.network == "broker":
            credential = broker_credential(request.spec, self._host)
            self._broker = await Broker.start(broker_rules(request), credential)
            held.push_async_callback(self._broker.close)

    async def ask_in_box(self, case: SutCase, seconds: float, parcel: int) -> SutAnswer | SutFault:
        """Run the agent, and return what came of it."""
        seconds = min(seconds, self._request.spec.limits.seconds)
        attempts = await self._attempts(self._found.setup, self._boxes, case, seconds, parcel)
        self._note_models(attempts[-1].ledger)
        missed = never_reached(attempts[-1].ledger, before=self._was_reached)
        if missed is not None and not self._was_reached:
            self._ended_by = missed.why if missed.void else None
            # What it said instead of asking is all that a user has to go by.
            said = last_line(attempts[-1], self._redactor) if missed.unasked else ""
            raise ModelNotReached(
                f"the agent's model was not reached: {missed.why}"
                + (f"; its last line: {one_line(said)}" if said else ""),
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

    async def settle(self) -> None:
        """Check, after the last case, that the agent is still what it was. Raises SutChanged."""
        self._shown.check()
        version = await version_of(self._boxes, self._found, self._redactor)
        if identity_of(self._request, self._found, version) != self.identity:
            raise SutChanged(
                f"{self.identity.spec} has changed since the run was started",
                where=self._found.needs.executed,
                hint="start the run again, and do not update the agent during the run",
            )
