"""The child's side of `python:module:attr`: import, call, write the result to descriptor 3.

A description of an exception is written to descriptor 4.

This file is a program; it is run by path in its own process, and no module imports it. Standard output and
error belong to the system under test. The result has its own descriptor, so no printed text is taken for it.
Any interpreter may run it, so what it imports needs the standard library only.
"""

import importlib
import inspect
import json
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from types import ModuleType
from typing import Any

# First, so that another version of the harness among the packages of the agent is not taken for this one.
sys.path.insert(0, str(Path(__file__).parents[3]))

from codegenie.eval.ports import SutCase
from codegenie.eval.suts.own_modules import Following, Own, OwnModules
from codegenie.eval.suts.raised import OwnCode, attempted, describe, guarded
from codegenie.eval.suts.result_writer import NothingReturned, encode_result

# At the end of the path: an agent needs it only where the harness is not installed.
sys.path.append(sys.path.pop(0))

_RESULT = 3
_RAISED = 4


def _import(name: str) -> ModuleType:
    if name in sys.modules:
        raise ImportError(f"{name} is imported already, from elsewhere; give your module another name")
    return importlib.import_module(name)


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
    own = Own(request["import_from"], request["private"])
    following = Following(own)
    top = following.spec_of(request["module"].partition(".")[0])
    if top is not None:
        own.claim_package(top)
    own.entry = request["file"]
    if request["known"] is None:
        _look(request, following)
    modules = OwnModules(own, request["known"])
    sys.meta_path.insert(0, modules)
    result, error = attempted(lambda: _called(request))
    if modules.refused is None:
        _, late = attempted(modules.check_all)
        error = error or late
    if modules.refused is not None:
        # What came before it does not matter, since it came from another agent.
        why, file = modules.refused
        _write(_RESULT, json.dumps({why: file}).encode())
    elif error is not None:
        raise error
    elif result is not None:
        _write(_RESULT, result)
    else:
        _look_again(modules, following)


def _called(request: dict[str, Any]) -> bytes | None:
    """Import the module and call its attribute; None if it is only looked up."""
    system = _resolve(_import(request["module"]), request["attribute"])
    if not callable(system):
        raise TypeError(f"{request['module']}:{request['attribute']} is not callable")
    if request["case"] is None:
        return None
    return encode_result(_answer(system, SutCase(**request["case"])))


def _look(request: dict[str, Any], following: Following) -> None:
    """Find the files of the agent before any of them runs, and say which they are."""
    name: str = request["module"]
    spec = following.spec_of(name)
    origin = None if spec is None or not spec.has_location else spec.origin
    if not origin or not os.path.isfile(origin):
        _say({"missing": name})
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    request["file"] = following.own.entry = os.path.realpath(origin)
    parts = name.split(".")
    following.follow([".".join(parts[: depth + 1]) for depth in range(len(parts))])
    _say({"file": request["file"], "modules": _listed(following.own, following.files)})


def _look_again(modules: OwnModules, following: Following) -> None:
    """Say which files a loaded agent has: it may have set the path, or computed the name of a module."""
    again = Following(following.own)
    again.follow(list(modules.named()))
    files = {**again.files, **modules.loaded, **following.files}
    _say({"found": True, "modules": _listed(following.own, files)})


def _listed(own: Own, files: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(file, own.name_of(file), digest) for file, digest in sorted(files.items())]


def _say(document: dict[str, Any]) -> None:
    _write(_RESULT, json.dumps(document).encode() + b"\n")


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
