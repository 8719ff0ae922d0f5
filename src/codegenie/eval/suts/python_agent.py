"""What names an agent that is a Python function, and what its child is told."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from codegenie.eval.errors import SutChanged, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutCase
from codegenie.eval.suts.fingerprints import variable_fingerprint
from codegenie.eval.suts.identity import SUT_ENV, SUT_PYTHON

# -u: output that waits in a buffer is lost if the agent hangs or is killed.
CHILD_FLAGS = ("-u", "-s", "-P", "-B")
CHILD_PROGRAM = Path(__file__).with_name("python_child.py")
INTERPRETER_PROGRAM = Path(__file__).with_name("interpreter_program.py")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class PythonCall:
    """What is called: an attribute of a module that is found from a directory."""

    module: str
    attribute: str
    import_from: str

    @classmethod
    def of(cls, reference: str, import_from: str) -> "PythonCall":
        """Read `module:attr`. Raises SutSpecInvalid, also for a second name of the same agent."""
        module, separator, attribute = reference.partition(":")
        if not separator or not _DOTTED.fullmatch(module) or not _DOTTED.fullmatch(attribute):
            raise SutSpecInvalid(f"'python:{reference}' is not python:module:attr")
        # `solve.__call__`, `solve.__call__.__call__` and so on are `solve`: one agent would be many
        # candidates.
        special = [name for name in attribute.split(".") if name.startswith("__") and name.endswith("__")]
        if special:
            raise SutSpecInvalid(
                f"'python:{reference}' goes through {special[0]}, so one agent would have many names",
                hint="name the function, the class or the object itself",
            )
        return cls(module, attribute, import_from)

    def looking(self, private: Iterable[str]) -> bytes:
        """Return the request to find out what the agent is. `private` is where it may write."""
        return self._request({"file": "", "known": None, "case": None, "private": [*private]})

    def asking(self, found: "FoundAgent", case: SutCase, private: Iterable[str]) -> bytes:
        """Return the request to call the agent, as it was found."""
        return self._request(
            {"file": found.file, "known": dict(found.known), "case": asdict(case), "private": [*private]}
        )

    def _request(self, more: Mapping[str, object]) -> bytes:
        return json.dumps({**asdict(self), **more}).encode()


@dataclass(frozen=True, slots=True)
class FoundAgent:
    """The file of the module, and the SHA-256 of every file of the agent."""

    file: str
    known: Mapping[str, str]


def python_name(
    reference: str, interpreter: str | None, handed: Mapping[str, str], pass_names: Sequence[str], salt: bytes
) -> str:
    """Return the name of an agent in a log. Raises SutSpecInvalid if a record cannot hold it."""
    # A variable that is passed on can decide what is measured, for example the model. So it is part of
    # the name.
    names = [
        f"{SUT_ENV}{name}:{variable_fingerprint(salt, name, handed[name])}"
        for name in sorted(set(pass_names))
    ]
    python = "" if interpreter is None else f"{SUT_PYTHON}{interpreter}"
    spec = "".join([f"python:{reference}", python, *names])
    if len(spec) > LIMITS.text_characters:
        raise SutSpecInvalid(
            f"--sut-env: the name of an agent with {len(names)} variables has {len(spec)} characters,"
            f" and a record takes {LIMITS.text_characters}",
            hint="pass one variable that names a file, and put the others into that file",
        )
    return spec


def changed(spec: str, file: str) -> SutChanged:
    """Return the error for a file of the agent that is not what was looked up."""
    return SutChanged(
        f"{spec} has changed since the run was started",
        where=file,
        hint="start the run again, and do not change the files of the agent during the run",
    )


def unknown(spec: str, file: str) -> SutChanged:
    """Return the error for a module that belongs to the agent and was not found before the first case."""
    return SutChanged(
        f"{spec} loaded a module that was not found before the run was started",
        where=file,
        hint="import it by its name, in any module of the agent or in a function, so that it can be a part of"
        " what is measured",
    )
