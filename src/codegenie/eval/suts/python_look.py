"""Which Python agent was measured: what its child found, read strictly, and hashed by the harness itself."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from blake3 import blake3

from codegenie.eval.canonical import digest_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutIdentity
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.fingerprints import syntax_digest
from codegenie.eval.suts.python_agent import FoundAgent, PythonCall, changed, unknown
from codegenie.eval.system.files import UnsafeTree, read_whole_file

LOOK_BYTES = 4 * 1024 * 1024
"""What a child may say about the files of an agent."""
_LEAST_PYTHON = [3, 11]
_VERSION_CHARACTERS = 200
_REFUSED_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The version line of a Python, and the packages that it has, by name and version."""

    line: str
    packages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What a child found: the files of the agent by path, each with its name and its digest."""

    file: str
    modules: dict[str, tuple[str, str]]

    def agent(self) -> FoundAgent:
        """Return what the child of a call has to know."""
        return FoundAgent(self.file, {file: digest for file, (_, digest) in self.modules.items()})


def read_interpreter(named: str, out: bytes, err: bytes) -> Interpreter:
    """Read what an interpreter said about itself. Raises SutSpecInvalid if no agent can run on it."""
    hint = "name a Python of version 3.11 or later"
    try:
        told = decode_json(out, LOOK_BYTES)
        version, line = [int(part) for part in told["version"]], told["line"]
        packages = tuple(sorted((str(name), str(number)) for name, number in told["packages"]))
        plain = one_line(line, _VERSION_CHARACTERS)
    except (DecodingRefused, TypeError, ValueError, LookupError, AttributeError):
        last = (err or out).decode("utf-8", "replace").strip().rpartition("\n")[2]
        said = one_line(last, _VERSION_CHARACTERS) or "nothing"
        raise SutSpecInvalid(f"{named} is not a Python that can be used: it said {said}", hint=hint) from None
    if version < _LEAST_PYTHON:
        raise SutSpecInvalid(f"{named} is {plain}, which is too old", hint=hint)
    return Interpreter(plain, packages)


def read_look(raw: bytes) -> tuple[Look | None, bool]:
    """Read what a child found, and whether it could import the agent; no look if there is no module.

    The first line was written before any code of the agent ran, and no later one takes a file away from it.
    Raises SutSpecInvalid for anything else.
    """
    found: Look | None = None
    for number, line in enumerate(raw.split(b"\n")[:2]):
        told = _told(line) if line else {}
        if "modules" not in told:
            return found, False
        modules = _modules(told["modules"])
        if number == 0:
            found = Look(str(told.get("file")), modules)
        elif found is not None:
            found = Look(found.file, {**modules, **found.modules})
    return found, found is not None and raw.count(b"\n") > 1


def no_such_module(call: PythonCall) -> SutSpecInvalid:
    """Return the refusal for a module that was not found."""
    return SutSpecInvalid(
        f"there is no module {call.module!r} to import",
        where=call.import_from,
        hint="run from the directory that holds it, or install it",
    )


def _told(line: bytes) -> dict[str, object]:
    try:
        told = decode_json(line, LOOK_BYTES)
    except DecodingRefused as refusal:
        raise SutSpecInvalid(f"the files of the agent cannot be listed: {refusal.message}") from None
    return told if isinstance(told, dict) else {}


def _modules(listed: object) -> dict[str, tuple[str, str]]:
    entries = listed if isinstance(listed, list) else []
    if len(entries) > LIMITS.agent_modules:
        raise SutSpecInvalid(
            f"the agent has more than {LIMITS.agent_modules} modules of its own",
            hint="install what is not part of the agent as a package",
        )
    found = {}
    for entry in entries:
        if not isinstance(entry, list) or [type(text) for text in entry] != [str, str, str]:
            raise SutSpecInvalid("the files of the agent cannot be listed: an entry is not one of a file")
        file, name, digest = entry
        found[file] = (name, digest)
    return found


def refuse_other_code(spec: str, result: bytes) -> None:
    """Raise SutChanged if a child says that code was loaded which is not the agent that was looked up."""
    if len(result) > _REFUSED_BYTES:
        return
    try:
        told = decode_json(result, _REFUSED_BYTES)
    except DecodingRefused:
        return
    if isinstance(told, dict) and len(told) == 1:
        for key, error in (("changed", changed), ("unknown", unknown)):
            if isinstance(told.get(key), str):
                raise error(spec, one_line(told[key], LIMITS.text_characters))


def python_identity(spec: str, version: str | None, look: Look, interpreter: Interpreter) -> SutIdentity:
    """Return the identity of an agent. Raises SutChanged if a file is not what the child found there."""
    contents = dict(_contents(spec, look))
    code = sorted((look.modules[file][0], blake3(source).hexdigest()) for file, source in contents.items())
    parts = {"modules": code, "python": interpreter.line, "packages": interpreter.packages}
    return SutIdentity(
        spec=spec,
        version=version,
        digest=digest_json("python-agent.v1", parts),
        syntax=_syntax(look, contents),
    )


def check_unchanged(spec: str, look: Look) -> None:
    """Raise SutChanged if a file of the agent is no longer what was found."""
    for _ in _contents(spec, look):
        pass


def _contents(spec: str, look: Look) -> Iterable[tuple[str, bytes]]:
    total = 0
    for file, (_, digest) in sorted(look.modules.items()):
        try:
            content = read_whole_file(os.path.realpath(file), LIMITS.agent_code_bytes)
        except (OSError, UnsafeTree):
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise changed(spec, file)
        total += len(content)
        if total > LIMITS.agent_code_bytes:
            raise SutSpecInvalid(
                f"the modules of the agent have more than {LIMITS.agent_code_bytes} bytes",
                hint="put data into other files, and install what is not part of the agent as a package",
            )
        yield file, content


def _syntax(look: Look, contents: dict[str, bytes]) -> str | None:
    """Hash the meaning of the whole agent: a comment in any of its modules makes no other agent."""
    entry = contents.get(look.file)
    main = syntax_digest(entry) if entry is not None and look.file.endswith(".py") else None
    if main is None or len(contents) == 1:
        # As in records that were made when an agent was one module.
        return main
    trees = sorted((look.modules[file][0], _tree(file, source)) for file, source in contents.items())
    return digest_json("python-syntax.v1", {"modules": trees})


def _tree(file: str, source: bytes) -> str:
    tree = syntax_digest(source) if file.endswith(".py") else None
    return tree or blake3(source).hexdigest()
