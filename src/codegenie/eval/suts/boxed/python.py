"""The runner of `python:module:attr` in a box: it finds out what the agent is, and calls it case by case."""

import os
from collections.abc import Sequence
from dataclasses import replace

from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import BoxRequest
from codegenie.eval.collection.in_place import TAIL_CHARACTERS, with_changes, words_of
from codegenie.eval.errors import BoxFailed, ExecFailed, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.agent_spec.environment import home_of, search_path
from codegenie.eval.suts.agent_spec.needs import missing_in_the_box
from codegenie.eval.suts.boxed.account import Spent
from codegenie.eval.suts.boxed.asking import AgentInBox
from codegenie.eval.suts.boxed.attempt import Attempt, Attempted
from codegenie.eval.suts.boxed.outcome import fault_of_the_end, how_it_ended, with_account
from codegenie.eval.suts.boxed.python_setup import (
    PythonSetup,
    network_of,
    python_setup,
    refuse_closed_paths,
)
from codegenie.eval.suts.boxed.request import PythonRequest
from codegenie.eval.suts.boxed.set_up import said_in_box
from codegenie.eval.suts.boxed.shown_directories import ShownDirectories
from codegenie.eval.suts.python_agent import PythonCall, changed, python_name
from codegenie.eval.suts.python_look import (
    Interpreter,
    Look,
    check_unchanged,
    no_such_module,
    python_identity,
    read_interpreter,
    read_look,
    refuse_other_code,
)
from codegenie.eval.suts.result_reader import read_raised, read_result
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer


class BoxedPythonSut(AgentInBox):
    """Calls a function of a module, each time in a fresh interpreter in a box of its own."""

    def __init__(self, request: PythonRequest) -> None:
        super().__init__()
        self._request = request
        self._host = dict(os.environ)
        self._redactor = Redactor(os.environ)
        self._network = self.network = network_of(request)
        self._call = PythonCall.of(request.reference, request.directory)
        with python_setup(request, self._host) as setup:
            name = python_name(
                request.reference, request.interpreter, setup.passed, request.pass_names, request.salt
            )
        # The digest follows when the agent was looked up.
        self.identity = SutIdentity(spec=name, version=request.version)

    async def prepare(self) -> None:
        """Prove the box, and find out in boxes what the agent is. Raises SutSpecInvalid if it cannot run."""
        request = self._request
        boxes = self._boxes = await self._proved_boxes(request.isolation, self._network, request.kept_in)
        setup = self._held.enter_context(python_setup(request, self._host))
        self._shown = ShownDirectories(setup.view.readable)
        refuse_closed_paths(setup, boxes.isolation_class)
        self._interpreter = await _asked_interpreter(boxes, setup, request.interpreter)
        self._look = await self._looked_up(boxes, setup)
        self.identity = python_identity(
            self.identity.spec, self.identity.version, self._look, self._interpreter
        )
        self._setup = replace(setup, found=self._look.agent())

    async def _looked_up(self, boxes: Boxes, setup: PythonSetup) -> Look:
        """Import the module once, in a box. Raises SutSpecInvalid if that fails, since a run would fail."""
        with stream_file() as empty:
            Packer(empty).close()
            case = SutCase("", "", "", 0)
            made = await Attempt(setup, boxes, None).run(case, LIMITS.sut_check_seconds, empty)
        if made.void is not None:
            raise BoxFailed(f"the agent could not be looked up: {made.void}")
        result, raised = (each.kept() for each in made.further)
        look, was_imported = read_look(result)
        if look is None and result:
            raise no_such_module(self._call)
        if look is None or not was_imported:
            fault = read_raised(raised, self._redactor)
            problem = fault.detail if fault is not None else self._redactor.detail(made.stderr.last_line())
            problem = "took too long" if made.end.timed_out else problem or "ended by itself"
            raise SutSpecInvalid(
                f"cannot import {self.identity.spec}: {problem}",
                where=self._call.import_from,
                hint="in a box it sees its directory and the packages of its Python, and has no network",
            )
        return look

    async def ask_in_box(self, case: SutCase, seconds: float, parcel: int) -> SutAnswer | SutFault:
        """Return what the function returned in time, or what it changed, or a fault."""
        attempts = await self._attempts(self._setup, self._boxes, case, seconds, parcel)
        refuse_other_code(self.identity.spec, attempts[-1].further[0].kept())
        return python_outcome(attempts, seconds, self._redactor)

    async def settle(self) -> None:
        """Check, after the last case, that the agent is still what it was. Raises SutChanged."""
        self._shown.check()
        check_unchanged(self.identity.spec, self._look)
        if await _asked_interpreter(self._boxes, self._setup, self._request.interpreter) != self._interpreter:
            raise changed(self.identity.spec, self._setup.program)


async def _asked_interpreter(boxes: Boxes, setup: PythonSetup, named: str | None) -> Interpreter:
    """Ask the interpreter for its version and its packages, in a box without network."""
    request = BoxRequest(
        view=replace(setup.view, network="none"), workspace=-1, agent_files=setup.agent_files
    )
    home = home_of(setup.host)
    path = search_path(setup.host.get("PATH", ""), setup.view.readable)
    try:
        _, out, err = await said_in_box(boxes, request, setup.interpreter_command(), path)
    except ExecFailed as error:
        raise missing_in_the_box(error.path, home) from None
    return read_interpreter(f"--sut-python {named}" if named else setup.program, out, err)


def python_outcome(attempts: Sequence[Attempted], seconds: float, redactor: Redactor) -> SutAnswer | SutFault:
    """Return what the last call produced, with an account of all attempts."""
    made = attempts[-1]
    ended = fault_of_the_end(made, f"no result within {seconds:g} s", redactor)
    produced = _returned(made, redactor) if ended is None else ended
    if produced.cost_usd is not None:
        made.spent = Spent(cost_usd=produced.cost_usd, cost_source="agent")
    if isinstance(produced, SutAnswer):
        words = words_of(produced)
    else:
        tail = made.stdout.kept(redactor).decode("utf-8", "replace")[-TAIL_CHARACTERS:]
        words = {"exit_code": 0, "stdout_tail": tail}
    return with_account(attempts, with_changes(produced, words, made.collected), redactor)


def _returned(made: Attempted, redactor: Redactor) -> SutAnswer | SutFault:
    """Read how a call ended that ended by itself."""
    result, raised = (each.kept() for each in made.further)
    if made.end.exit_code == 0 and result:
        return read_result(result)
    fault = read_raised(raised, redactor)
    if fault is not None:
        return fault
    return read_result(b"") if made.end.exit_code == 0 else how_it_ended(made, redactor)
