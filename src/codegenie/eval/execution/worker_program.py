"""Runs in a box: imports a module of the agent, makes the calls it is asked for, and says what they returned.

Standard library only. Requests come on descriptor 3, and replies go to descriptor 4. A frame is its length in
four bytes, then JSON. The agent's code runs in this process and can do with it what it wants. That is why the
harness believes a reply as a value, and never as a verdict: this program learns no expected value.
"""

import importlib
import json
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

_REQUESTS, _REPLIES = 3, 4
_LENGTH = struct.Struct(">I")
_LARGEST_REPLY = 1 << 20
_MOST_LEVELS = 13
_MOST_VALUES = 50_000
_MOST_DIGITS = 1_234
_NAME_CHARACTERS = 200
_NAME_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.<>")
# Says that a process with one call has sent its reply.
_REPLIED = 77


class _TooMuchError(Exception):
    """A value has too many parts to be sent."""


def _encoded(value: Any, room: list[int], levels: int = _MOST_LEVELS) -> object:  # noqa: ANN401 - any value
    kind = type(value)
    room[0] -= 1
    if room[0] < 0:
        raise _TooMuchError
    if value is None or kind is bool:
        return value
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if kind not in _CONTAINERS or not levels:
        return _object(kind)
    if kind is dict:
        return {"dict": [[_encoded(each, room, levels - 1) for each in pair] for pair in value.items()]}
    members = [_encoded(each, room, levels - 1) for each in value]
    return {kind.__name__: sorted(members, key=json.dumps) if kind is set else members}


def _encoded_text(value: str) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:
        return _object(str)
    return value


def _encoded_integer(value: int) -> object:
    try:
        digits = str(value)
    except ValueError:
        return _object(int)
    return {"int": digits} if len(digits) <= _MOST_DIGITS else _object(int)


def _object(kind: type) -> dict[str, str]:
    return {"object": _plain(f"{kind.__module__}.{kind.__qualname__}")}


def _plain(name: str) -> str:
    return "".join(each if each in _NAME_LETTERS else "_" for each in name[:_NAME_CHARACTERS])


_SCALARS: dict[type, Callable[[Any], object]] = {
    str: _encoded_text,
    int: _encoded_integer,
    float: lambda value: {"float": value.hex()},
    bytes: lambda value: {"bytes": value.hex()},
}
_CONTAINERS = (list, tuple, set, dict)


def _decoded(value: Any) -> Any:  # noqa: ANN401 - any value
    if not isinstance(value, dict):
        return value
    [(tag, content)] = value.items()
    if tag == "dict":
        return {_decoded(key): _decoded(each) for key, each in content}
    return _BUILDERS[tag](content)


_BUILDERS: dict[str, Callable[[Any], object]] = {
    "int": int,
    "float": float.fromhex,
    "bytes": bytes.fromhex,
    "list": lambda content: [_decoded(each) for each in content],
    "tuple": lambda content: tuple(_decoded(each) for each in content),
    "set": lambda content: {_decoded(each) for each in content},
}


def _sendable(value: object) -> object:
    try:
        return _encoded(value, [_MOST_VALUES])
    except _TooMuchError:
        return _object(type(value))


def _outcome(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what an act of the agent's code came to. Whatever it raises is the reply."""
    try:
        return act()
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt, too
        return {"raised": _plain(type(error).__name__) or "_"}


def _imported(name: str) -> dict[str, Any]:
    """Return the module, or the name of the exception, which is then the reply to every call."""
    return _outcome(lambda: {"module": importlib.import_module(name)})


def _called(imported: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Return what a call came to: its value, or the name of the exception."""
    if "module" not in imported:
        return imported

    def call() -> dict[str, Any]:
        target = imported["module"]
        for name in request["attribute"].split("."):
            target = getattr(target, name)
        args = [_decoded(each) for each in request["args"]]
        reply = {"value": _sendable(target(*args))}
        if request["mutates"]:
            reply["args"] = [_sendable(each) for each in args]
        return reply

    return _outcome(call)


def _reply(number: int, reply: dict[str, Any]) -> None:
    frame = json.dumps({"id": number, **reply}).encode()
    if len(frame) > _LARGEST_REPLY:
        frame = json.dumps({"id": number, "value": {"object": "too_large"}}).encode()
    unwritten = memoryview(_LENGTH.pack(len(frame)) + frame)
    while unwritten:
        unwritten = unwritten[os.write(_REPLIES, unwritten) :]


def _read(size: int) -> bytes | None:
    """Read so many bytes; None at the end of the requests."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = os.read(_REQUESTS, size - len(pieces))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _request() -> Any:  # noqa: ANN401 - what JSON holds
    length = _read(_LENGTH.size)
    if length is None:
        return None
    content = _read(_LENGTH.unpack(length)[0])
    return None if content is None else json.loads(content)


def _call_in_new_process(module: str, request: dict[str, Any]) -> None:
    """Call in a process of its own. If it ends without its reply, end too: the harness sees that at once."""
    process = os.fork()
    if process == 0:
        _reply(request["id"], _called(_imported(module), request))
        sys.stdout.flush()
        os._exit(_REPLIED)
    _, status = os.waitpid(process, 0)
    if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != _REPLIED:
        os._exit(1)


def main() -> None:
    """Answer requests until there are no more. The first one says what is to be imported."""
    hello = _request()
    # Only now: what this program needs of the standard library is loaded, and the agent cannot replace it.
    sys.path[0] = os.getcwd()
    fresh = hello["fresh"]
    imported = {} if fresh else _imported(hello["module"])
    _reply(0, {"value": None})
    while True:
        request = _request()
        if request is None:
            return
        if fresh:
            _call_in_new_process(hello["module"], request)
        else:
            _reply(request["id"], _called(imported, request))


if __name__ == "__main__":
    main()
