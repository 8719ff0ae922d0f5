"""Opens the system under test that `--sut SPEC` names, and says which runners are trusted."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RunPlan, SutBoundary, SutIdentity, SutNetwork
from codegenie.eval.ports import SutRunner, SystemUnderTest
from codegenie.eval.sanitising import printable
from codegenie.eval.suts.agent_spec.needs import is_inside
from codegenie.eval.suts.agent_spec.reading import command_spec, preset, preset_revision, read_agent_spec
from codegenie.eval.suts.boxed.command import CommandSut
from codegenie.eval.suts.boxed.python import BoxedPythonSut
from codegenie.eval.suts.boxed.request import AgentRequest, PythonRequest, SutIsolation
from codegenie.eval.suts.boxed.secret_paths import kept_in, secret_paths, secrets_of
from codegenie.eval.suts.builtin import NullSut, OracleSut
from codegenie.eval.suts.fingerprints import log_salt
from codegenie.eval.suts.identity import SUT_ENV, SUT_PYTHON, boundary_problem, is_agent_file
from codegenie.eval.suts.in_process import ForeignSut, InProcessSut
from codegenie.eval.suts.python import PythonSut
from codegenie.eval.suts.replay import ReplaySut, open_replay

OWN_RUNNERS: set[type[SutRunner]] = {
    NullSut,
    OracleSut,
    ReplaySut,
    PythonSut,
    BoxedPythonSut,
    CommandSut,
    InProcessSut,
}
"""The runners whose claim about where a system runs is trusted. A subclass is a caller's code, and is not."""


@dataclass(frozen=True, slots=True)
class SutRequest:
    """The options of the command line about the system under test."""

    spec: str
    version: str | None = None
    pass_names: tuple[str, ...] = ()
    model: str | None = None
    network: SutNetwork | None = None
    isolation: SutIsolation = "auto"
    interpreter: str | None = None
    # Files and directories that an agent must not see, beside those that the plan names.
    secrets: tuple[Path, ...] = ()


def open_sut(request: SutRequest, plan: RunPlan) -> SutRunner:
    """Return the system under test that was asked for. Raises SutSpecInvalid if a part of it is wrong."""
    texts = (request.spec, request.version, request.model, request.interpreter, *request.pass_names)
    for text in filter(None, texts):
        if len(text) > LIMITS.text_characters // 2:
            raise SutSpecInvalid(
                f"{text[:40]!r}… has {len(text)} characters, but a record of the log holds at most"
                f" {LIMITS.text_characters // 2}"
            )
    kind, _, rest = request.spec.partition(":")
    if kind != "python" and request.interpreter:
        raise SutSpecInvalid(f"{request.spec!r} takes no --sut-python", hint="use it with python:module:attr")
    if (kind in {"command", "preset"} and rest) or is_agent_file(request.spec):
        return CommandSut(_agent(request, plan))
    if kind == "python" and rest:
        return _python(request, rest, plan)
    return _own(request, plan)


def _own(request: SutRequest, plan: RunPlan) -> SutRunner:
    """Return a system of the harness itself: nothing, the solution, or what was recorded."""
    kind, _, rest = request.spec.partition(":")
    if request.model or request.network or request.isolation != "auto":
        raise SutSpecInvalid(
            f"{request.spec!r} takes neither --sut-model nor --sut-network nor --sut-isolation",
            hint="use them with command:…, preset:… or a sut.toml",
        )
    replayed = rest if kind == "replay" else ""
    if request.spec not in {"null", "oracle"} and not replayed:
        raise SutSpecInvalid(
            f"{request.spec!r} is not a system under test",
            hint="use null, oracle, replay:DIR, python:module:attr, command:'./agent.sh', preset:NAME or a"
            " sut.toml",
        )
    if request.pass_names or request.version:
        raise SutSpecInvalid(
            f"{request.spec!r} takes neither --sut-env nor --sut-version: it is the harness's own"
        )
    if replayed:
        return open_replay(replayed, plan)
    if request.spec == "null":
        return NullSut()
    return OracleSut(plan.task_class.directory / "cases", {case.case_id: case.digest for case in plan.cases})


def _agent(request: SutRequest, plan: RunPlan) -> AgentRequest:
    """Read what names an agent that is a program, and add what its box needs to know."""
    for text in (request.spec, request.version or ""):
        _refuse_unprintable(text)
    called_in = Path.cwd()
    directory, revision = called_in, None
    kind, _, rest = request.spec.partition(":")
    if kind == "command":
        spec = command_spec(rest)
    elif kind == "preset":
        spec, revision = preset(rest), preset_revision(rest)
    else:
        file = called_in / request.spec
        spec, directory = read_agent_spec(file), file.parent
    names = (*spec.environment.passed, *request.pass_names)
    return AgentRequest(
        named=request.spec,
        spec=spec,
        directory=directory,
        called_in=called_in,
        secrets=secret_paths(plan, called_in, request.secrets),
        kept_in=kept_in(plan),
        version=request.version,
        model=request.model,
        network=request.network,
        isolation=request.isolation,
        pass_names=request.pass_names,
        salt=log_salt(plan.out_dir, create=True) or b"" if names else b"",
        preset_revision=revision,
    )


def _refuse_unprintable(text: str) -> None:
    """Refuse a name that would add a line of its own to every report, or steer a terminal."""
    if printable(text) != text:
        raise SutSpecInvalid(
            f"{ascii(text)[:80]} holds a character that cannot be shown",
            hint="use a name without line ends and control characters",
        )


def _python(request: SutRequest, reference: str, plan: RunPlan) -> SutRunner:
    """Return a Python agent: in a box, or as a plain process if the user asked for that."""
    if request.model:
        raise SutSpecInvalid(
            f"{request.spec!r} takes no --sut-model", hint="pass a variable that names the model by --sut-env"
        )
    for text in (request.version, request.interpreter):
        _refuse_unprintable(text or "")
    salt = (log_salt(plan.out_dir, create=True) or b"") if request.pass_names else b""
    if request.isolation != "subprocess":
        directory = Path(os.path.realpath(Path.cwd()))
        return BoxedPythonSut(
            PythonRequest(
                reference=reference,
                directory=str(directory),
                secrets=_with_working_places(secret_paths(plan, directory, request.secrets), directory),
                kept_in=kept_in(plan),
                version=request.version,
                network=request.network,
                isolation=request.isolation,
                pass_names=request.pass_names,
                salt=salt,
                interpreter=request.interpreter,
            )
        )
    if request.network:
        raise SutSpecInvalid(
            "--sut-network: with --sut-isolation subprocess the agent reaches all that its user reaches",
            hint="leave one of the two out",
        )
    return PythonSut(
        reference,
        version=request.version,
        pass_names=request.pass_names,
        salt=salt,
        interpreter=request.interpreter,
    )


def _with_working_places(secrets: Iterable[str], directory: Path) -> tuple[str, ...]:
    """Add the place of private copies of cases, if it lies in a directory that the box shows."""
    temporary = os.path.realpath(tempfile.gettempdir())
    return (*secrets, *([temporary] if is_inside(temporary, (str(directory),)) else []))


def agent_on_disk(
    measured: SutIdentity, boundary: SutBoundary, out_dir: Path, secrets: Iterable[Path]
) -> SutRunner:
    """Return the agent that a log names, to be looked up where it was measured: in a box, or without one.

    `secrets` are what it must not see. Raises SutSpecInvalid if it is not there.
    """
    spec, *variables = measured.spec.split(SUT_ENV)
    names = tuple(variable.rpartition(":")[0] for variable in variables)
    spec, _, interpreter = spec.partition(SUT_PYTHON)
    kind, _, rest = spec.partition(":")
    if kind != "python":
        raise SutSpecInvalid(f"{spec!r} cannot be looked up here")
    salt = log_salt(out_dir, create=False) if names else b""
    if salt is None:
        raise SutSpecInvalid("its variables cannot be compared: the salt of the log is not here")
    if boundary == "process":
        return PythonSut(
            rest, version=measured.version, pass_names=names, salt=salt, interpreter=interpreter or None
        )
    directory = Path(os.path.realpath(Path.cwd()))
    return BoxedPythonSut(
        PythonRequest(
            reference=rest,
            directory=str(directory),
            secrets=_with_working_places(secrets_of(directory, (*secrets, out_dir)), directory),
            version=measured.version,
            # It is not called, but a key that it was given is handed over only with this network.
            network="host" if names else None,
            pass_names=names,
            salt=salt,
            interpreter=interpreter or None,
        )
    )


def trusted_runner(system: SystemUnderTest | SutRunner) -> SutRunner:
    """Return a runner whose statement about where the system runs can be trusted.

    Raises SutSpecInvalid if the system under test contradicts itself.
    """
    claimed = system if isinstance(system, SutRunner) else InProcessSut(system)
    sut = claimed if type(claimed) in OWN_RUNNERS else ForeignSut(claimed)
    for runner in (claimed, sut):
        problem = boundary_problem(runner.identity, runner.boundary)
        if problem:
            raise SutSpecInvalid(f"the system under test contradicts itself: {problem}")
    return sut
