"""The body of a request to a model: one JSON object, read strictly, and the doors to the internet in it.

A server that reads JSON may fold keys: Go ignores case, Gemini takes `googleSearch` and `google_search`. So
keys are compared in a folded form, and two keys of one object that fold to the same are refused.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_NAME_CHARACTERS = 80
# Some hundred bytes of memory each: 32 MiB of empty lists would take 700 MB.
_MOST_VALUES = 1_000_000
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SEPARATORS = (b",", b"[", b"{")

# Tools that the agent's own side carries out. All others are the provider's, and reach the internet.
_CLIENT_TOOL = re.compile(r"function|custom|local_shell|apply_patch|(?:bash|text_editor)_[0-9]{8}")
_TOOL_KEYS = frozenset(
    (
        "type",
        "name",
        "description",
        "inputschema",
        "parameters",
        "strict",
        "function",
        "format",
        "cachecontrol",
        "inputexamples",
        "deferloading",
        "eagerinputstreaming",
        "maxcharacters",
    )
)
_DECLARED_FUNCTIONS = {"functiondeclarations"}
# Codex names its tools in groups, and searches among them itself where the tool says so.
_GROUP, _GROUP_KEYS = "namespace", frozenset({"type", "name", "description", "tools"})
_SEARCH, _SEARCH_KEYS = "tool_search", frozenset({"type", "execution", "description", "parameters"})
# Each lets the provider fetch, search, run or remember something for the agent.
_SERVER_SIDE = frozenset(
    (
        "mcpservers",
        "container",
        "websearchoptions",
        "background",
        "previousresponseid",
        "conversation",
        "plugins",
        "searchparameters",
        "datasources",
    )
)
# Each lets another model answer than the one that is named.
_OTHER_MODELS = frozenset({"models", "fallbacks"})
_PARTS_OF_A_TALK = frozenset({"messages", "input", "contents", "system", "systeminstruction", "instructions"})
# Arguments and results of the agent's own tools: data whose keys mean nothing to the provider.
_OWN_DATA = {"functioncall": "args", "functionresponse": "response"}
_REMOTE_SOURCES = frozenset({"url", "file"})


class Unacceptable(Exception):  # noqa: N818 - what an agent has sent
    """The body may not pass; the text says why. `is_malformed` tells nonsense from what is not allowed."""

    def __init__(self, message: str, *, is_malformed: bool = False) -> None:
        super().__init__(message)
        self.is_malformed = is_malformed


def folded(key: str) -> str:
    """Return a key as the most tolerant server reads it."""
    return key.replace("_", "").replace("-", "").lower()


def read_object(raw: bytes) -> dict[str, Any]:
    """Decode one JSON object with unique keys and finite numbers. Raises Unacceptable."""
    _check_count(raw)
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except RecursionError:
        raise Unacceptable("the body is nested too deeply", is_malformed=True) from None
    except ValueError:
        raise Unacceptable("the body is not one JSON document with unique keys", is_malformed=True) from None
    if not isinstance(value, dict):
        raise Unacceptable("the body is not a JSON object", is_malformed=True)
    return value


def _check_count(raw: bytes) -> None:
    if sum(map(raw.count, _SEPARATORS)) > _MOST_VALUES:
        bare = _STRING.sub(b"", raw)
        if sum(map(bare.count, _SEPARATORS)) > _MOST_VALUES:
            raise Unacceptable(f"the body has more than {_MOST_VALUES} values", is_malformed=True)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands there twice")
    return value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def check_top_keys(body: dict[str, Any]) -> None:
    """Check that the keys of the outermost object mean one thing to every server. Raises Unacceptable."""
    keys = [folded(key) for key in body]
    if not all(map(str.isascii, keys)) or len(set(keys)) != len(keys):
        raise Unacceptable("two keys of the body can be read as the same one", is_malformed=True)
    if "model" in keys and "model" not in body:
        raise Unacceptable("the key `model` is spelled in another way", is_malformed=True)


def names_other_models(body: dict[str, Any]) -> str | None:
    """Return the key by which another model than the named one may answer, if there is one."""
    return next((key for key in body if folded(key) in _OTHER_MODELS), None)


def check_tools(body: dict[str, Any]) -> None:
    """Check that the provider is asked to run, fetch or remember nothing. Raises Unacceptable."""
    for key, value in body.items():
        # Clients send these empty, too. An empty object can switch a search on.
        if folded(key) in _SERVER_SIDE and value is not None and value is not False:
            raise Unacceptable(f"`{key}` is a door to the internet, and server_tools is false")
        if folded(key) == "prompt" and isinstance(value, dict):
            raise Unacceptable(f"`{key}` is a text that the provider has stored, and server_tools is false")
        if folded(key) == "tools" and value is not None:
            _check_tool_list(value)
        if folded(key) in _PARTS_OF_A_TALK:
            _check_talk(value)


def _check_tool_list(tools: object) -> None:
    if not isinstance(tools, list):
        raise Unacceptable("`tools` is not a list", is_malformed=True)
    for tool in tools:
        if not isinstance(tool, dict) or not _is_client_tool(tool):
            raise Unacceptable(f"{_tool_name(tool)} is not a tool of the agent, and server_tools is false")


def _is_client_tool(tool: dict[str, Any]) -> bool:
    keys = {folded(key) for key in tool}
    if len(keys) != len(tool):
        return False
    if keys == _DECLARED_FUNCTIONS:
        return True
    kind = next(iter(_values(tool, "type") or ["custom"]))
    if kind == _GROUP:
        return keys <= _GROUP_KEYS and _is_group_of_client_tools(_values(tool, "tools"))
    if kind == _SEARCH:
        return keys <= _SEARCH_KEYS and _values(tool, "execution") == ["client"]
    return keys <= _TOOL_KEYS and isinstance(kind, str) and bool(_CLIENT_TOOL.fullmatch(kind))


def _is_group_of_client_tools(held: list[Any]) -> bool:
    """Say whether a group holds one list of tools, and no group among them."""
    tools = held[0] if held and isinstance(held[0], list) else [None]
    return all(
        isinstance(tool, dict) and _GROUP not in _values(tool, "type") and _is_client_tool(tool)
        for tool in tools
    )


def _values(holder: dict[str, Any], name: str) -> list[Any]:
    """Return what stands under a name, however it is spelled."""
    return [value for key, value in holder.items() if folded(key) == name]


def _tool_name(tool: object) -> str:
    if not isinstance(tool, dict):
        return "a tool that is not an object"
    return f"tool {str(tool.get('type', ', '.join(tool)))[:_NAME_CHARACTERS]!r}"


def _check_talk(talk: object) -> None:
    """Check that no part of a talk is an address to be fetched, and that none adds a tool of the provider."""
    for part in _objects(talk):
        for key, value in part.items():
            if folded(key) == "tools" and value is not None:
                _check_tool_list(value)
            if _is_remote(folded(key), value):
                raise Unacceptable(f"`{key}` is an address to be fetched, and server_tools is false")


def _is_remote(key: str, value: Any) -> bool:  # noqa: ANN401 - whatever the agent sent
    if key in {"fileuri", "fileurl"}:
        return value is not None
    if key == "imageurl":
        addresses = _values(value, "url") if isinstance(value, dict) else [value]
        return any(address is not None and not str(address).startswith("data:") for address in addresses)
    is_source = key == "source" and isinstance(value, dict)
    return is_source and any(str(kind) in _REMOTE_SOURCES for kind in _values(value, "type"))


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object in a talk, those aside that only the agent's tools read."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting.extend(found)
        elif isinstance(found, dict):
            yield found
            own = "input" if found.get("type") == "tool_use" else None
            waiting.extend(_without_own_data(key, item) for key, item in found.items() if key != own)


def _without_own_data(key: str, value: object) -> object:
    own = _OWN_DATA.get(folded(key))
    if own is None or not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if name != own}
