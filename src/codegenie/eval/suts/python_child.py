"""The child's side of `python:module:attr`: import, call, write the result to descriptor 3.

A description of an exception is written to descriptor 4.

This file is a program; it is run by path in its own process, and no module imports it. Standard output and
error belong to the system under test. The result has its own descriptor, so no printed text is taken for it.
"""

import hashlib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# At the end of the path: it is needed only where the harness is not installed.
sys.path.append(str(Path(__file__).parents[3]))

from codegenie.eval.ports import SutCase
from codegenie.eval.suts.raised import OwnCode, attempted, describe, guarded
from codegenie.eval.suts.result_writer import NothingReturned, encode_result

_RESULT = 3
_RAISED = 4


class _Changed(Exception):  # noqa: N818 - says that there is nothing to run
    """The file is not the one whose digest the log has."""


class _HashedSource(SourceFileLoader):
    """Runs exactly the bytes that it hashed: no compiled file, and no bytes that were written later."""

    sha256 = ""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - importlib's signature
        try:
            source = self.get_data(self.path)
        except OSError:
            raise _Changed from None
        if hashlib.sha256(source).hexdigest() != self.sha256:
            raise _Changed
        code: CodeType = self.source_to_code(source, self.path)
        return code


class _OneModule:
    """Finds one module, where the harness found it; leaves all others to the next finder."""

    def __init__(self, request: dict[str, str]) -> None:
        self._request = request

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the one module's spec."""
        file = self._request["file"]
        if fullname != self._request["module"] or not file.endswith(".py"):
            return None
        loader = _HashedSource(fullname, file)
        loader.sha256 = self._request["sha256"]
        return spec_from_file_location(fullname, file, loader=loader)


def _import(request: dict[str, str]) -> ModuleType:
    name, file = request["module"], request["file"]
    if name in sys.modules:
        raise ImportError(f"{name} is imported already, from elsewhere; give your module another name")
    sys.meta_path.insert(0, _OneModule(request))
    module = importlib.import_module(name)
    compiled = not file.endswith(".py")
    if compiled and hashlib.sha256(Path(file).read_bytes()).hexdigest() != request["sha256"]:
        raise _Changed
    return module


def _resolve(module: ModuleType, attribute: str) -> object:
    found: object = module
    for name in attribute.split("."):
        found = getattr(found, name)
    return found() if inspect.isclass(found) else found


def _answer(system: object, case: object) -> object:
    result = system(case)  # type: ignore[operator]
    return _awaited(result) if inspect.isawaitable(result) else result


def _awaited(result: Awaitable[object]) -> object:
    # Half of the start of this program was this import, and a plain function has no use for it.
    import asyncio

    async def whole() -> object:
        return await result

    return asyncio.run(whole())


def _write(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]


def _serve(request: dict[str, Any]) -> None:
    sys.path.insert(0, request["import_from"])
    try:
        system = _resolve(_import(request), request["attribute"])
    except _Changed:
        _write(_RESULT, b"changed")
        return
    if not callable(system):
        raise TypeError(f"{request['module']}:{request['attribute']} is not callable")
    if request["case"] is None:
        _write(_RESULT, b"found")
        return
    result = _answer(system, SutCase(**request["case"]))
    _write(_RESULT, encode_result(result))


def _tell(error: BaseException, request: dict[str, Any]) -> None:
    """Report what ended the call: in full in the log, and in short where the harness reads it."""
    own = OwnCode(request["import_from"], request["file"])
    # A script that has done its work ends with `sys.exit(0)`.
    nothing = isinstance(error, NothingReturned) or (isinstance(error, SystemExit) and not error.code)
    raised = describe(error, own, returned_nothing=nothing)
    guarded(lambda: _write(_RAISED, raised.encoded()), None)
    if isinstance(error, NothingReturned):
        # No failure yet: the harness looks for the agent's work in its copy of the case.
        return
    if not isinstance(error, SystemExit):
        guarded(lambda: sys.excepthook(type(error), error, error.__traceback__), None)
    elif not isinstance(error.code, int | None):
        guarded(lambda: sys.stderr.write(f"{error.code}\n"), 0)


def main() -> int:
    """Serve the one request on standard input. Every end but exit 0 with a result is a fault of the SUT."""
    request = json.load(sys.stdin)
    _, error = attempted(lambda: _serve(request))
    if error is None:
        return 0
    _tell(error, request)
    code = error.code if isinstance(error, SystemExit) else 1
    # The exit code does not matter: there is no result.
    return code if isinstance(code, int) else int(code is not None)


def _leave(code: int) -> None:
    """End at once: threads that the system under test left running must not delay its result."""
    guarded(sys.stdout.flush, None)
    guarded(sys.stderr.flush, None)
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
