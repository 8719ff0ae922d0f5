"""One attempt of an agent on one case: a fresh box, the program in it, and what it left, as data."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from typing import Protocol

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxRequest, BoxView
from codegenie.eval.broker.client import Broker, BrokerLine
from codegenie.eval.broker.records import Ledger
from codegenie.eval.collection.collecting import collect
from codegenie.eval.collection.records import Collected, CollectOptions, original_of
from codegenie.eval.errors import BoxFailed, ExecFailed
from codegenie.eval.models import IsolationClass
from codegenie.eval.ports import Beat, SutCase
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import to_its_end
from codegenie.eval.suts.agent_output import StatedUsage, UsageReader
from codegenie.eval.suts.agent_spec.environment import Surroundings, agent_environment, broker_variables
from codegenie.eval.suts.agent_spec.filling import BoxPlaces, CaseTexts, filled
from codegenie.eval.suts.agent_spec.needs import AGENT_DIRECTORY
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.suts.boxed.account import Spent, cost_of, spent
from codegenie.eval.suts.boxed.home import read_home_file, write_home
from codegenie.eval.suts.boxed.streams import Beginning, Capture, drained_pipe
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import content_of, files_of, paths_of

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """How a program is started in one box, and what it reads on its standard input."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stdin: bytes = b""


class AgentProgram(Protocol):
    """What is the same in every attempt of a run: an agent, what its box shows, and how it is started."""

    @property
    def spec(self) -> AgentSpec:
        """What the agent is, with its limits."""
        ...

    @property
    def view(self) -> BoxView:
        """What its box shows."""
        ...

    @property
    def agent_files(self) -> int | None:
        """The parcel of the files that its box has in /agent."""
        ...

    @property
    def further_streams(self) -> tuple[int, ...]:
        """How many bytes are kept of what it writes to descriptor 3, 4 and so on."""
        ...

    def start(self, box: Box, case: SutCase, parcel: int, isolation: IsolationClass) -> Start:
        """Return how it is started on a case, and write its home. `parcel` is the packed `input/`."""
        ...


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """An agent that is a program of its own."""

    spec: AgentSpec
    view: BoxView
    # The resolved program, which takes the place of the first word of the command.
    program: str
    model: str | None = None
    agent_files: int | None = None
    # Variables of the host that the agent gets, and files that its user hands over.
    passed: Mapping[str, str] = field(default_factory=dict)
    handed_over: Mapping[str, bytes] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    further_streams: tuple[int, ...] = ()

    def start(self, box: Box, case: SutCase, parcel: int, isolation: IsolationClass) -> Start:
        """Fill the texts of the agent for this case and this box, and write its home."""
        texts_of_case = CaseTexts(
            case.case_id,
            case.task_class,
            case.trial,
            tuple(paths_of(parcel)),
            # Read from the parcel each time: hundreds of agents may work at once, and each case may be large.
            lambda name: content_of(parcel, name),
        )
        network = self.view.network
        url = None if box.broker_port is None else f"http://127.0.0.1:{box.broker_port}"
        if network == "host" and self.spec.broker is not None:
            # Then the agent has its key, and talks to the provider itself.
            url = self.spec.broker.upstream
        texts = filled(self.spec, texts_of_case, self.model, BoxPlaces(box.home_path, url))
        write_home(box.home, {**texts.home, **self.handed_over})
        surroundings = Surroundings(box.home_path, box.tmp_path, self.view.readable, isolation)
        variables = {**texts.variables, **broker_variables(self.spec, network), **self.passed}
        environment = agent_environment(self.host, surroundings, texts_of_case, variables)
        # Without a mount namespace the files of the agent are at another place.
        argv = tuple(moved(each, box.agent_path) for each in (self.program, *texts.argv[1:]))
        return Start(argv, environment, texts.stdin)


@dataclass(slots=True)
class Attempted:
    """What came of one attempt. It is void if `void` says why: then the harness itself failed."""

    stdout: Capture
    stderr: Capture
    end: BoxEnd = field(default_factory=BoxEnd)
    void: str | None = None
    was_started: bool = False
    collected: Collected = field(default_factory=Collected)
    agent_file: bytes | None = None
    ledger: Ledger | None = None
    spent: Spent = field(default_factory=Spent)
    notes: tuple[str, ...] = ()
    # The cap in USD at which it was ended.
    over_cost: float | None = None
    # What it wrote to descriptor 3, 4 and so on.
    further: tuple[Beginning, ...] = ()

    def artifacts(self, redactor: Redactor, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield what is kept of it, by name."""
        yield f"{prefix}sut_stdout", self.stdout.kept(redactor)
        yield f"{prefix}sut_stderr", self.stderr.kept(redactor)
        if self.ledger is not None:
            ledger = asdict(self.ledger) | {"last_activity": None}
            yield f"{prefix}broker_ledger", json.dumps(ledger, sort_keys=True, indent=1).encode()
        if self.agent_file is not None:
            yield f"{prefix}agent_file", self.agent_file


class Attempt:
    """Makes one attempt. All of its state ends with it."""

    def __init__(self, setup: AgentProgram, boxes: Boxes, broker: Broker | None) -> None:
        self._setup = setup
        self._boxes = boxes
        self._broker = broker
        self._line: BrokerLine | None = None
        self._credited = 0.0
        self._started = time.monotonic()
        self._limit_seconds = setup.spec.limits.seconds
        self._usage = UsageReader(setup.spec.output)
        further = tuple(Beginning(size) for size in setup.further_streams)
        self.made = Attempted(Capture(self._usage.feed), Capture(), further=further)

    async def run(self, case: SutCase, seconds: float, parcel: int) -> Attempted:
        """Run the agent to its end. Raises only errors that end the run.

        If the call is cancelled, the agent is asked to end and has its grace; a second cancellation ends it.
        """
        setup = self._setup
        request = BoxRequest(
            view=setup.view,
            workspace=parcel,
            agent_files=setup.agent_files,
            git=setup.spec.workspace.git == "init",
        )
        self._limit_seconds = seconds
        try:
            async with await self._boxes.open(request) as box:
                await self._run_in(box, case, seconds, parcel)
        except (BoxFailed, ExecFailed) as error:
            self.made.void = error.message
            self.made.end = BoxEnd(wall_seconds=time.monotonic() - self._started)
        return self.made

    async def _run_in(self, box: Box, case: SutCase, seconds: float, parcel: int) -> None:
        setup, made = self._setup, self.made
        async with AsyncExitStack() as held:
            if self._broker is not None and box.listener is not None:
                self._line = await self._broker.listen(box.listener)
                held.push_async_callback(self._close_line)
            start = setup.start(box, case, parcel, self._boxes.isolation_class)
            made.end = await self._ended(box, start, min(seconds, setup.spec.limits.seconds))
            await box.end_all()
        if made.end.lost:
            made.void = "the first process of the box was lost"
        made.agent_file = self._agent_file(box)
        # In a thread: it may take seconds, and other agents need the event loop.
        made.collected = await to_its_end(asyncio.to_thread(self._collected, box, parcel))
        stated = self._stated()
        prices = None if setup.spec.broker is None else setup.spec.broker.prices
        made.spent = spent(made.ledger, stated, prices)
        made.notes = (*stated.notes, *made.collected.notes)

    async def _ended(self, box: Box, start: Start, seconds: float) -> BoxEnd:
        grace = self._setup.spec.limits.grace_seconds
        with ExitStack() as pipes:
            source = pipes.enter_context(stream_file(start.stdin))
            heard: tuple[Capture | Beginning, ...] = (
                self.made.stdout,
                self.made.stderr,
                *self.made.further,
            )
            streams = (source, *(pipes.enter_context(drained_pipe(each)) for each in heard))
            told = AgentStart(start.argv, start.environment, streams, seconds, grace)
            self.made.was_started = True
            running = asyncio.ensure_future(box.run(told, extend=lambda: self._credit(seconds)))
            watching = asyncio.ensure_future(self._watch(box))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await self._let_it_end(box, running, grace)
                raise
            finally:
                watching.cancel()
                await box.end_all()
                await asyncio.wait([running])

    @staticmethod
    async def _let_it_end(box: Box, running: "asyncio.Future[BoxEnd]", seconds: float) -> None:
        """Ask the agent to end, and wait for its grace. A second cancellation ends the wait."""
        await box.ask_to_end()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([running], timeout=seconds)

    def _credit(self, seconds: float) -> float:
        """Return the seconds that the agent waited for its provider and that it has not been given yet."""
        waited = 0.0 if self._line is None else self._line.waited_seconds()
        more = min(waited, seconds) - self._credited
        self._credited += max(more, 0.0)
        return max(more, 0.0)

    async def _watch(self, box: Box) -> None:
        """Read the ledger once a second; end the agent when it has cost more than the cap of one case."""
        cap = self._setup.spec.limits.cost_usd
        while self._line is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            self.made.ledger = await self._line.ledger()
            cost = self._cost_so_far()
            if cap is not None and cost is not None and cost >= cap:
                self.made.over_cost = cap
                await box.end_all()
                return

    def _cost_so_far(self) -> float | None:
        broker, ledger = self._setup.spec.broker, self.made.ledger
        if broker is None or broker.prices is None or ledger is None:
            return None
        return cost_of(ledger, broker.prices)

    def beat(self, case: SutCase) -> Beat:
        """Return a sign of life: the last output, or the last traffic of the broker."""
        made, now = self.made, time.monotonic()
        ledger = made.ledger
        heard = [
            moment
            for moment in (
                self._started,
                made.stdout.last_heard,
                made.stderr.last_heard,
                None if ledger is None else ledger.last_activity,
            )
            if moment is not None
        ]
        return Beat(
            case_id=case.case_id,
            trial=case.trial,
            seconds=now - self._started,
            limit_seconds=self._limit_seconds,
            events=made.stdout.pieces + made.stderr.pieces,
            silent_seconds=max(0.0, now - max(heard)),
            input_tokens=None if ledger is None else ledger.input_tokens,
            output_tokens=None if ledger is None else ledger.output_tokens,
            cost_usd=self._cost_so_far(),
        )

    async def _close_line(self) -> None:
        if self._line is not None:
            self.made.ledger = await self._line.close()

    def _collected(self, box: Box, parcel: int) -> Collected:
        options = CollectOptions(exclude=self._setup.spec.workspace.exclude)
        return collect(box.workspace, original_of(files_of(parcel)), options)

    def _agent_file(self, box: Box) -> bytes | None:
        name = self._setup.spec.output.file
        return None if name is None else read_home_file(box.home, name.removeprefix("{home}/"))

    def _stated(self) -> StatedUsage:
        return self._usage.usage(self.made.agent_file)


def moved(argument: str, agent_path: str) -> str:
    """Return an argument with the place where the files of the agent are in this box."""
    inside = argument.removeprefix(AGENT_DIRECTORY)
    return agent_path + inside if inside != argument and inside.startswith("/") else argument
