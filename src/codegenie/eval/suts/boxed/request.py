"""Which agent is asked for, and how: the options of the command line, read and not yet looked up."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from codegenie.eval.models import SutNetwork
from codegenie.eval.suts.agent_spec.records import AgentSpec

SutIsolation = Literal["auto", "namespace", "landlock", "subprocess"]


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """An agent that is a program."""

    # As the user named it with --sut.
    named: str
    spec: AgentSpec
    # Where its `files` and a relative program are, and where the command was called.
    directory: Path
    called_in: Path
    secrets: tuple[str, ...] = ()
    # Directories of the harness that are secret and may not exist yet.
    kept_in: tuple[Path, ...] = ()
    version: str | None = None
    model: str | None = None
    network: SutNetwork | None = None
    isolation: SutIsolation = "auto"
    pass_names: tuple[str, ...] = ()
    # Of the log, for the fingerprints of the variables that are passed on.
    salt: bytes = field(default=b"", repr=False)
    preset_revision: str | None = None


@dataclass(frozen=True, slots=True)
class PythonRequest:
    """An agent that is a function of a Python module."""

    # As in --sut, without `python:`.
    reference: str
    # Real path of the directory in which the command was called, from which the module is imported.
    directory: str
    secrets: tuple[str, ...] = ()
    kept_in: tuple[Path, ...] = ()
    version: str | None = None
    network: SutNetwork | None = None
    isolation: SutIsolation = "auto"
    pass_names: tuple[str, ...] = ()
    salt: bytes = field(default=b"", repr=False)
    # As the user named it with --sut-python; None for the one that runs the harness.
    interpreter: str | None = None
