"""Looks a Python agent up before the first case: its interpreter, and what its box shows."""

import marshal
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path

import codegenie
from codegenie.eval.boxes import layout
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import BoxView
from codegenie.eval.boxes.users import can_be_entered
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, SutNetwork
from codegenie.eval.ports import SutCase
from codegenie.eval.suts.agent_spec.checks import looks_like_a_key, passed_name_problem
from codegenie.eval.suts.agent_spec.environment import (
    Surroundings,
    agent_environment,
    home_of,
    passed_variables,
)
from codegenie.eval.suts.agent_spec.filling import CaseTexts
from codegenie.eval.suts.agent_spec.needs import (
    AGENT_DIRECTORY,
    SYSTEM_DIRECTORIES,
    Needs,
    Places,
    find_needs,
    is_inside,
    is_too_broad,
)
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.suts.boxed.attempt import Start, moved
from codegenie.eval.suts.boxed.invoking_directory import refuse_directory, withheld
from codegenie.eval.suts.boxed.request import PythonRequest
from codegenie.eval.suts.boxed.secret_paths import shipped_answers
from codegenie.eval.suts.python_agent import (
    CHILD_FLAGS,
    CHILD_PROGRAM,
    INTERPRETER_PROGRAM,
    FoundAgent,
    PythonCall,
)
from codegenie.eval.suts.raised import RAISED_BYTES
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, packed

_SOURCES = Path(codegenie.__file__).parents[1]
# All that the child imports. An agent may import SutResult from there.
_CHILD_FILES = (
    "codegenie/__init__.py",
    "codegenie/eval/__init__.py",
    "codegenie/eval/limits.py",
    "codegenie/eval/ports.py",
    "codegenie/eval/suts/__init__.py",
    *(
        f"codegenie/eval/suts/{name}.py"
        for name in ("interpreter_program", "own_modules", "python_child", "raised", "result_writer")
    ),
)
_A_WEEK = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class PythonSetup:
    """A Python agent: what is the same in every call of a run."""

    call: PythonCall
    spec: AgentSpec
    view: BoxView
    program: str
    agent_files: int
    # None as long as it is only looked up.
    found: FoundAgent | None = None
    passed: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    # The result, and what describes an exception.
    further_streams: tuple[int, ...] = (LIMITS.sut_output_bytes + 1, RAISED_BYTES)

    def start(self, box: Box, case: SutCase, parcel: int, isolation: IsolationClass) -> Start:
        """Return how the child is started, and what it is told."""
        del parcel
        # Where the agent works: what it writes there is not a part of it.
        private = (box.workspace_path, box.home_path, box.tmp_path)
        stdin = self.call.looking(private)
        if self.found is not None:
            stdin = self.call.asking(self.found, replace(case, input_dir=box.workspace_path), private)
        surroundings = Surroundings(box.home_path, box.tmp_path, self.view.readable, isolation)
        texts = CaseTexts(case.case_id, case.task_class, case.trial, (), lambda _: None)
        environment = agent_environment(self.host, surroundings, texts, self.passed)
        argv = tuple(moved(each, box.agent_path) for each in (*self.command(CHILD_PROGRAM),))
        return Start(argv, environment, stdin)

    def command(self, program: Path) -> tuple[str, ...]:
        """Return the command that runs a program of ours on the interpreter of the agent."""
        inside = f"{AGENT_DIRECTORY}/{program.relative_to(_SOURCES)}"
        return (self.program, *CHILD_FLAGS, inside)

    def interpreter_command(self) -> tuple[str, ...]:
        """Return the command that says which interpreter it is."""
        return self.command(INTERPRETER_PROGRAM)


@contextmanager
def python_setup(request: PythonRequest, host: Mapping[str, str]) -> Iterator[PythonSetup]:
    """Look an agent up and pack what its child needs. Raises SutSpecInvalid if no box can show it."""
    home = home_of(host)
    directory = request.directory
    refuse_directory(directory, home, request.secrets)
    needs = _interpreter(request.interpreter, directory, host)
    network = network_of(request)
    shown = tuple(sorted({directory, *needs.shown}))
    # A harness may be installed beside the agent, with the answers of its benches.
    own = withheld(directory, home, needs.shown)
    secrets = tuple(sorted({*request.secrets, *shipped_answers(shown), *own}))
    view = BoxView(readable=shown, secrets=secrets, network=network)
    try:
        layout.check(view)
    except SutSpecInvalid as refusal:
        raise SutSpecInvalid(
            refusal.message,
            hint="run the command from another directory, with a Python that is installed elsewhere, or use"
            " --sut-isolation subprocess, which confines nothing",
        ) from None
    with stream_file() as parcel:
        packer = Packer(parcel)
        packer.ready(*packed(_child_files()))
        packer.close()
        yield PythonSetup(
            call=PythonCall.of(request.reference, directory),
            spec=_spec(needs.program),
            view=view,
            program=needs.program,
            agent_files=parcel,
            passed=_passed(request, network, host),
            host=host,
        )


@cache
def _child_files() -> list[tuple[str, bytes]]:
    """Return what the child imports, and the same compiled for the Python of the harness.

    Compiling takes longer than all else that the child does. Another Python takes the sources.
    """
    files = [(name, (_SOURCES / name).read_bytes()) for name in _CHILD_FILES]
    return [*files, *((cache_from_source(name), _compiled(name, source)) for name, source in files)]


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, f"{AGENT_DIRECTORY}/{name}", "exec", dont_inherit=True)
    # A file by its hash that is not compared: there is no time of a file that could be.
    head = MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(source)
    return head + marshal.dumps(code)


def network_of(request: PythonRequest) -> SutNetwork:
    """Return what the agent can reach. Raises SutSpecInvalid for a broker, which a function cannot name."""
    if request.network == "broker":
        raise SutSpecInvalid(
            "--sut-network broker: the agent has no [broker]", hint="write a sut.toml with [broker]"
        )
    return request.network or "none"


def _interpreter(named: str | None, directory: str, host: Mapping[str, str]) -> Needs:
    """Find the interpreter, and the directories that it needs in the box."""
    home = home_of(host)
    try:
        found = find_needs(named or sys.executable, Places((directory,), host.get("PATH", ""), home))
    except SutSpecInvalid as refusal:
        if named is None:
            raise
        raise SutSpecInvalid(
            f"--sut-python {named}: {refusal.message}", hint="give the path of a Python"
        ) from None
    # A Python that is not part of the system has its standard library beside the directory of the program.
    prefix = os.path.dirname(os.path.dirname(found.executed))
    if is_inside(prefix, SYSTEM_DIRECTORIES) or is_too_broad(prefix, home):
        return found
    return replace(found, shown=tuple(sorted({*found.shown, prefix})))


def _passed(request: PythonRequest, network: SutNetwork, host: Mapping[str, str]) -> dict[str, str]:
    for name in request.pass_names:
        problem = passed_name_problem(name, network)
        if problem and looks_like_a_key(name):
            raise SutSpecInvalid(
                f"--sut-env {problem[0]}",
                hint="--sut-network host hands it over; such a run does not count for gold",
            )
        if problem:
            raise SutSpecInvalid(f"--sut-env {problem[0]}", hint=problem[1])
    return passed_variables(_spec("python"), network, request.pass_names, host)


def _spec(program: str) -> AgentSpec:
    """Return the limits of a Python agent. How long it may take, its case says."""
    fields = {"schema": 1, "name": "python", "command": (program,), "limits": {"seconds": _A_WEEK}}
    return AgentSpec.model_validate(fields)


def refuse_closed_paths(setup: PythonSetup, isolation: IsolationClass) -> None:
    """Raise SutSpecInvalid if the user of a box cannot enter what the box shows.

    Root's boxes belong to another user. In a namespace a closed directory is shown by its entries. Without
    one the modes of every directory on the way matter.
    """
    if os.geteuid() != 0 or isolation != "landlock":
        return
    for path in (setup.call.import_from, *setup.view.readable):
        above = [str(each) for each in Path(path).parents]
        closed = next((each for each in (*reversed(above), path) if not _is_open(each, path)), None)
        if closed is not None:
            raise SutSpecInvalid(
                f"the user of the box cannot enter {closed}, which is closed to other users",
                where=path,
                hint="`chmod o+rx` it, move the agent, name another Python with --sut-python, or use"
                " --sut-isolation namespace",
            )


def _is_open(directory: str, shown: str) -> bool:
    if os.path.isdir(directory):
        return layout.is_open(directory) if directory == shown else can_be_entered(directory)
    return bool(os.stat(directory).st_mode & stat.S_IROTH)
