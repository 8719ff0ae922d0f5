"""The child's side of `python:module:attr`: import, call, write the result to descriptor 3.

A program, run by path in a process of its own and imported by nobody. Standard output and error belong to
the system under test; the result has a descriptor of its own, so no print can be taken for it.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from pathlib import Path

# Behind everything else: where the harness is not installed, it is still found.
sys.path.append(str(Path(__file__).parents[3]))

from codegenie.eval.ports import SutCase
from codegenie.eval.suts.encoding import encode_result

_RESULT = 3


def _resolve(module_name: str, attribute: str) -> object:
    found: object = importlib.import_module(module_name)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found() if inspect.isclass(found) else found


async def _answer(system: object, case: object) -> object:
    result = system(case)  # type: ignore[operator]
    return await result if inspect.isawaitable(result) else result


def _write(raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(_RESULT, view) :]


def main() -> int:
    """Serve the one request on standard input; any exit but 0 with a result is a fault of the SUT."""
    request = json.load(sys.stdin)
    sys.path.insert(0, request["import_from"])
    system = _resolve(request["module"], request["attribute"])
    if not callable(system):
        raise TypeError(f"{request['module']}:{request['attribute']} is not callable")
    if request["case"] is None:
        _write(b"found")
        return 0
    result = asyncio.run(_answer(system, SutCase(**request["case"])))
    _write(encode_result(result))
    return 0


def _leave(code: int) -> None:
    """End at once: threads that the system under test left running must not hold back its result."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        _leave(main())
    except SystemExit as leaving:
        # The system under test called exit itself. Whatever the number, there is no result.
        if not isinstance(leaving.code, int | None):
            sys.stderr.write(f"{leaving.code}\n")
        _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
