"""`python:module:attr` as a plain process: each call imports and runs it in a process of its own.

It has all rights of its user. In a box it runs as `boxed.python` does.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SutRunner
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.python_agent import (
    CHILD_FLAGS,
    CHILD_PROGRAM,
    INTERPRETER_PROGRAM,
    FoundAgent,
    PythonCall,
    python_name,
)
from codegenie.eval.suts.python_look import (
    LOOK_BYTES,
    Interpreter,
    Look,
    check_unchanged,
    no_such_module,
    python_identity,
    read_interpreter,
    read_look,
    refuse_other_code,
)
from codegenie.eval.suts.raised import RAISED_BYTES
from codegenie.eval.suts.result_reader import read_raised, read_result
from codegenie.eval.system.child_files import read_head, stream_file
from codegenie.eval.system.processes import ProcessEnd, ProcessRequest
from codegenie.eval.system.run_directory import run_directory
from codegenie.eval.system.supervisor_pool import plain_supervisors

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


@dataclass(frozen=True, slots=True)
class _Called:
    """The result, the log and the end of one call."""

    end: ProcessEnd
    result: bytes
    raised: bytes
    log: bytes


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
        interpreter: str | None = None,
    ) -> None:
        self._call_of = PythonCall.of(reference, os.path.realpath(os.getcwd()))
        self._environment = dict(os.environ)
        self._pass_names = tuple(pass_names)
        handed = sut_environment(self._pass_names, self._environment, "/")
        self._python = sys.executable if interpreter is None else _program(interpreter)
        # The digest follows when the agent was looked up.
        self.identity = SutIdentity(
            spec=python_name(reference, interpreter, handed, self._pass_names, salt), version=version
        )
        self._look: Look | None = None
        self._agent = FoundAgent("", {})
        self._redactor = Redactor(os.environ)
        self._supervisors = plain_supervisors(None, _PROCESS_LIMITS)

    async def prepare(self) -> None:
        """Find out, in a child, what the agent is. Raises SutSpecInvalid if it cannot be imported."""
        with run_directory() as home:
            # These supervisors know the directory: they remove it if we are killed while a library loads.
            self._supervisors = plain_supervisors(home, _PROCESS_LIMITS)
            interpreter = await self._interpreter(str(home))
            called = await self._call(self._call_of.looking([str(home)]), str(home), LIMITS.sut_check_seconds)
        look, was_imported = read_look(called.result)
        if look is None and called.result:
            raise no_such_module(self._call_of)
        if look is None or not was_imported:
            problem = "took too long" if called.end.timed_out else self._last_words(called)
            raise SutSpecInvalid(
                f"cannot import {self.identity.spec}: {problem or 'ended by itself'}",
                where=self._call_of.import_from,
            )
        self.identity = python_identity(self.identity.spec, self.identity.version, look, interpreter)
        self._look, self._agent = look, look.agent()

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Return what the function returned in time, or a fault."""
        directory = os.path.dirname(case.input_dir)
        request = self._call_of.asking(self._agent, case, [directory])
        called = await self._call(request, directory, seconds)
        end, log = called.end, called.log
        refuse_other_code(self.identity.spec, called.result)
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

    async def settle(self) -> None:
        """Check, after the last case, that the files of the agent are still what they were."""
        if self._look is not None:
            check_unchanged(self.identity.spec, self._look)

    async def _interpreter(self, directory: str) -> Interpreter:
        with stream_file() as stdin, stream_file() as out, stream_file() as err:
            async with self._supervisors.borrowed() as supervisor:
                await supervisor.run(
                    ProcessRequest(
                        argv=(self._python, *CHILD_FLAGS, str(INTERPRETER_PROGRAM)),
                        directory=directory,
                        environment=sut_environment((), self._environment, directory),
                        streams=(stdin, out, err),
                        seconds=LIMITS.sut_check_seconds,
                    )
                )
            said, complained = read_head(out, LOOK_BYTES)[0], read_head(err, LOOK_BYTES)[0]
        return read_interpreter(self._python, said, complained)

    async def _call(self, request: bytes, directory: str, seconds: float) -> _Called:
        with (
            stream_file(request) as stdin,
            stream_file() as answer,
            stream_file() as raised,
            _drained_pipe() as (log, tail),
        ):
            async with self._supervisors.borrowed() as supervisor:
                end = await supervisor.run(
                    ProcessRequest(
                        argv=(self._python, *CHILD_FLAGS, str(CHILD_PROGRAM)),
                        directory=directory,
                        environment=sut_environment(self._pass_names, self._environment, directory),
                        streams=(stdin, log, log, answer, raised),
                        seconds=seconds,
                    )
                )
            result, _ = read_head(answer, LIMITS.sut_output_bytes + 1)
            told, _ = read_head(raised, RAISED_BYTES)
        return _Called(end, result, told, bytes(tail))

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


def _program(interpreter: str) -> str:
    """Return the path of the interpreter that was named. Raises SutSpecInvalid if there is none."""
    found = shutil.which(interpreter)
    if found is None:
        raise SutSpecInvalid(
            f"--sut-python {interpreter}: there is no such program", hint="give the path of a Python"
        )
    return os.path.abspath(found)


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
