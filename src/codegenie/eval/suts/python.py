"""`python:module:attr` as system under test: each call imports and runs it in a process of its own."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from blake3 import blake3

from codegenie.eval.errors import SutChanged, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SutRunner
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.fingerprints import syntax_digest, variable_fingerprint
from codegenie.eval.suts.identity import SUT_ENV
from codegenie.eval.suts.raised import RAISED_BYTES
from codegenie.eval.suts.result_reader import read_raised, read_result
from codegenie.eval.system.child_files import read_head, stream_file
from codegenie.eval.system.processes import ProcessEnd, ProcessRequest
from codegenie.eval.system.run_directory import run_directory
from codegenie.eval.system.supervisor_pool import plain_supervisors

_CHILD_PROGRAM = Path(__file__).with_name("python_child.py")
_PROCESS_LIMITS = {"RLIMIT_CORE": 0}
_LOCALE = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+")


def sut_environment(names: Sequence[str], environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Build a SUT's environment: PATH, locale, a private home, and the variables that were named.

    Raises SutSpecInvalid if such a variable is not set, or is one that a SUT has of its own.
    """
    allowed = {
        name: value for name, value in environment.items() if name == "PATH" or _LOCALE.fullmatch(name)
    }
    private = {"HOME": home, "TMPDIR": home}
    for name in names:
        if name in private:
            raise SutSpecInvalid(
                f"--sut-env {name}: the harness sets this variable for every system under test"
            )
        if name not in environment:
            raise SutSpecInvalid(
                f"--sut-env {name}: there is no such variable", hint="export it, or leave it out"
            )
        allowed[name] = environment[name]
    return {**allowed, **private}


def find_module_file(module: str, import_from: str) -> Path:
    """Find the file that would be imported, without importing a parent: no code of a SUT runs here.

    Raises SutSpecInvalid if there is no such module.
    """
    search: Sequence[str] | None = [import_from, *sys.path]
    spec = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        if not search:
            break
        spec = PathFinder.find_spec(".".join(parts[:depth]), list(search))
        if spec is None:
            break
        search = spec.submodule_search_locations
    if spec is None or spec.name != module or not spec.origin or not Path(spec.origin).is_file():
        raise SutSpecInvalid(
            f"there is no module {module!r} to import",
            where=import_from,
            hint="run from the directory that holds it, or install it",
        )
    return Path(spec.origin)


@dataclass(frozen=True, slots=True)
class _Called:
    """The result, the log and the end of one call."""

    end: ProcessEnd
    result: bytes
    raised: bytes
    log: bytes


_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def _parts(reference: str) -> tuple[str, str]:
    """Return module and attribute, and refuse a second name of the same agent."""
    module, separator, attribute = reference.partition(":")
    if not separator or not _DOTTED.fullmatch(module) or not _DOTTED.fullmatch(attribute):
        raise SutSpecInvalid(f"'python:{reference}' is not python:module:attr")
    # `solve.__call__`, `solve.__call__.__call__` and so on are `solve`: one agent would be many candidates.
    special = [name for name in attribute.split(".") if name.startswith("__") and name.endswith("__")]
    if special:
        raise SutSpecInvalid(
            f"'python:{reference}' goes through {special[0]}, so one agent would have many names",
            hint="name the function, the class or the object itself",
        )
    return module, attribute


class PythonSut(SutRunner):
    """Calls a function of a module in a fresh interpreter for each case."""

    boundary: SutBoundary = "process"
    wants_input = True

    def __init__(
        self,
        reference: str,
        *,
        version: str | None = None,
        pass_names: Sequence[str] = (),
        salt: bytes = b"",
    ) -> None:
        module, attribute = _parts(reference)
        self._import_from = str(Path.cwd())
        self._environment = dict(os.environ)
        self._pass_names = tuple(pass_names)
        handed = sut_environment(self._pass_names, self._environment, "/")
        file = find_module_file(module, self._import_from)
        source = file.read_bytes()
        # A variable that is passed on can decide what is measured, for example the model. So it is part of
        # the name.
        names = [
            f"{SUT_ENV}{name}:{variable_fingerprint(salt, name, handed[name])}"
            for name in sorted(set(pass_names))
        ]
        spec = "".join([f"python:{reference}", *names])
        if len(spec) > LIMITS.text_characters:
            raise SutSpecInvalid(
                f"--sut-env: the name of an agent with {len(names)} variables has {len(spec)} characters,"
                f" and a record takes {LIMITS.text_characters}",
                hint="pass one variable that names a file, and put the others into that file",
            )
        self.identity = SutIdentity(
            spec=spec,
            version=version,
            digest=blake3(source).hexdigest(),
            syntax=syntax_digest(source) if file.suffix == ".py" else None,
        )
        self._request = {
            "module": module,
            "attribute": attribute,
            "import_from": self._import_from,
            "file": str(file),
            "sha256": hashlib.sha256(source).hexdigest(),
        }
        self._redactor = Redactor(os.environ)
        self._supervisors = plain_supervisors(None, _PROCESS_LIMITS)

    async def prepare(self) -> None:
        """Import the module once, in a child. Raises SutSpecInvalid if that fails, since a run would fail."""
        with run_directory() as home:
            # These supervisors know the directory: they remove it if we are killed while a library loads.
            self._supervisors = plain_supervisors(home, _PROCESS_LIMITS)
            called = await self._call(None, str(home), LIMITS.sut_check_seconds)
        self._check_unchanged(called.result)
        if called.result != b"found":
            problem = "took too long" if called.end.timed_out else self._last_words(called)
            raise SutSpecInvalid(
                f"cannot import {self.identity.spec}: {problem or 'ended by itself'}",
                where=self._import_from,
            )

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return what the function returned in time, or a fault."""
        called = await self._call(case, os.path.dirname(case.input_dir), seconds)
        end, log = called.end, called.log
        self._check_unchanged(called.result)
        if end.timed_out:
            return SutFault("sut.timeout", f"no result within {seconds:g} s", log=log)
        if end.exit_code == 0 and called.result:
            return replace(read_result(called.result), log=log)
        raised = read_raised(called.raised, self._redactor)
        if raised is not None:
            return replace(raised, log=log)
        if end.exit_code == 0:
            return replace(read_result(b""), log=log)
        how = "supervisor_killed" if end.lost else f"exit:{end.exit_code}"
        if end.signal:
            how = f"signal:{end.signal}"
        last = self._last_line(log)
        return SutFault("sut.exception", f"{how}: {last}" if last else how, log=log)

    async def _call(self, case: SutCase | None, directory: str, seconds: float) -> _Called:
        request = {**self._request, "case": None if case is None else asdict(case)}
        with (
            stream_file(json.dumps(request).encode()) as stdin,
            stream_file() as answer,
            stream_file() as raised,
            _drained_pipe() as (log, tail),
        ):
            async with self._supervisors.borrowed() as supervisor:
                end = await supervisor.run(
                    ProcessRequest(
                        # -u: output that waits in a buffer is lost if the agent hangs or is killed.
                        argv=(sys.executable, "-u", "-s", "-P", "-B", str(_CHILD_PROGRAM)),
                        directory=directory,
                        environment=sut_environment(self._pass_names, self._environment, directory),
                        streams=(stdin, log, log, answer, raised),
                        seconds=seconds,
                    )
                )
            result, _ = read_head(answer, LIMITS.sut_output_bytes + 1)
            told, _ = read_head(raised, RAISED_BYTES)
        return _Called(end, result, told, bytes(tail))

    def _check_unchanged(self, result: bytes) -> None:
        if result == b"changed":
            raise SutChanged(
                f"{self.identity.spec} has changed since the run was started",
                where=self._request["file"],
                hint="start the run again, and do not change the file of the agent during the run",
            )

    def _last_words(self, called: _Called) -> str:
        raised = read_raised(called.raised, self._redactor)
        return self._redactor.detail(self._last_line(called.log)) if raised is None else raised.detail

    def _last_line(self, log: bytes) -> str:
        text = log.decode("utf-8", "replace")
        cleaned = (
            self._redactor.clean_tail(text)
            if len(log) >= LIMITS.sut_log_bytes
            else self._redactor.clean(text)
        )
        lines = [line.strip() for line in cleaned.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    async def close(self) -> None:
        """End the supervisors."""
        await self._supervisors.close()


@contextmanager
def _drained_pipe() -> Iterator[tuple[int, bytearray]]:
    """Give a pipe's write end and the tail of what is written to it.

    The harness does not wait for its end: it is read while the child runs and closed when the tree has ended.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    tail = bytearray()
    loop = asyncio.get_running_loop()

    def drain() -> None:
        with contextlib.suppress(BlockingIOError):
            tail.extend(os.read(reading, 65_536))
            del tail[: -LIMITS.sut_log_bytes]

    loop.add_reader(reading, drain)
    try:
        yield writing, tail
    finally:
        loop.remove_reader(reading)
        os.close(writing)
        for _ in range(LIMITS.sut_log_bytes // 65_536):
            drain()
        os.close(reading)
