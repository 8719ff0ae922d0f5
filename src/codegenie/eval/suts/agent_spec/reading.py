"""Reads what names an agent that is a program: a sut.toml, a preset, or the text after `command:`."""

import difflib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_toml
from codegenie.eval.errors import DecodingRefused, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.suts.agent_spec.checks import findings, key_line
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.system.files import UnsafeTree, read_whole_file

PRESETS = ("aider", "claude-code", "codex", "gemini-cli", "mini-swe-agent")
"""The agents that are shipped as data."""
_PRESET_DIRECTORY = Path(__file__).parents[1] / "presets"
_PAGE = "docs/reference/sut-toml.md"
_KEY_HINT = "name the variable that holds the key; neither the key nor a path to it belongs into this file"
_HINTS = {
    "schema": "write schema = 1",
    "name": "use 1 to 64 lower-case letters, digits and hyphens, such as my-agent",
    "command": 'write the words of the command, such as command = ["my-agent", "{prompt}"]',
    "environment.pass": _KEY_HINT,
    "broker.credential": _KEY_HINT,
    "workspace.exclude": "name entries of the top directory, such as .aider*",
}


def read_agent_spec(path: Path) -> AgentSpec:
    """Read a sut.toml. Raises SutSpecInvalid with what is wrong, where, and what to do."""
    try:
        raw = read_whole_file(path, LIMITS.toml_bytes)
    except UnsafeTree as unsafe:
        raise SutSpecInvalid(
            f"the file {unsafe.problem}", where=str(path), hint="a sut.toml is a small regular file"
        ) from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "it is not a path"
        raise SutSpecInvalid(f"cannot read the file: {problem}", where=ascii(str(path))) from None
    if raw is None:
        raise SutSpecInvalid("there is no such file", where=str(path), hint="name the path of a sut.toml")
    return decoded_spec(raw, str(path))


def decoded_spec(raw: bytes, where: str) -> AgentSpec:
    """Make a record from the bytes of a sut.toml. Raises SutSpecInvalid."""
    try:
        fields = decode_toml(raw)
    except DecodingRefused as refusal:
        raise SutSpecInvalid(refusal.message, where=_at(where, refusal.line), hint=refusal.hint) from None
    text = raw.decode()
    # First of all: no later message may quote a part of a key.
    line = key_line(text)
    if line is not None:
        raise SutSpecInvalid(
            "the file holds something that looks like a key", where=_at(where, line), hint=_KEY_HINT
        )
    try:
        # As JSON, because only there a strict record takes a list where it holds a tuple.
        spec = AgentSpec.model_validate_json(canonical_json(fields))
    except TypeError:
        raise SutSpecInvalid(
            "the file holds a date or a time", where=where, hint="put it in quotes"
        ) from None
    except ValidationError as error:
        raise _form_refusal(error, text, where) from None
    return _checked(spec, text, where)


def _checked(spec: AgentSpec, text: str, where: str) -> AgentSpec:
    for finding in findings(spec):
        message = f"{finding.key}: {finding.problem}"
        raise SutSpecInvalid(
            message, where=_at(where, _line_of(finding.key.split("."), text)), hint=finding.hint
        )
    return spec


def _form_refusal(error: ValidationError, text: str, where: str) -> SutSpecInvalid:
    """Describe the first value of a wrong form. The value itself is not quoted: it may be a key."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    words = [str(part) for part in problem["loc"] if not isinstance(part, int)]
    key = ".".join(ascii(word).strip("'")[:80] for word in words)
    hint = next((hint for start, hint in _HINTS.items() if key.startswith(start)), f"see {_PAGE}")
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "this key is not known"
        near = difflib.get_close_matches(words[-1][:80], _known_keys(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"the keys are listed in {_PAGE}"
    elif problem["type"] == "missing":
        message = "this key is missing"
    elif problem["type"] == "string_pattern_mismatch":
        message = "the value does not have the form that is asked for here"
    return SutSpecInvalid(f"{key}: {message}", where=_at(where, _line_of(words, text)), hint=hint)


def _known_keys() -> set[str]:
    schema = AgentSpec.model_json_schema()
    tables = [schema, *schema["$defs"].values()]
    return {key for table in tables for key in table.get("properties", ())}


def _at(where: str, line: int | None) -> str:
    return where if line is None else f"{where}:{line}"


def _line_of(words: Sequence[str], text: str) -> int | None:
    """Return the line on which a key is set, or that of the table around it; None if neither is there."""
    start = 0
    for word in words:
        name = re.escape(word)
        set_here = rf"^[ \t]*\[[^\]\n]*(?<![\w-]){name}\]|(?<![\w-])[\"']?{name}[\"']?[ \t]*="
        found = re.compile(set_here, re.MULTILINE).search(text, start)
        if found is None:
            break
        # White space at the beginning of a line belongs to the line before it.
        start = found.end() - 1
    return text.count("\n", 0, start) + 1 if start else None


def preset(name: str) -> AgentSpec:
    """Return the agent that is shipped under this name. Raises SutSpecInvalid if there is none."""
    return decoded_spec(_preset_bytes(name), f"preset:{name}")


def preset_revision(name: str) -> str:
    """Return the digest of a shipped file: another revision of a preset is another agent."""
    return blake3(_preset_bytes(name)).hexdigest()


def _preset_bytes(name: str) -> bytes:
    if name not in PRESETS:
        raise SutSpecInvalid(
            f"{name[:80]!a} is not a preset", hint=f"use one of {', '.join(PRESETS)}, or write a sut.toml"
        )
    return (_PRESET_DIRECTORY / f"{name}.toml").read_bytes()


def command_spec(text: str) -> AgentSpec:
    """Return the agent of `command:TEXT`: words as in a shell, and no shell. Raises SutSpecInvalid."""
    where = "command:"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SutSpecInvalid(
            f"the command has no end: {error}", where=where, hint="close the quote"
        ) from None
    if not words or not words[0].strip():
        raise SutSpecInvalid("the command is empty", where=where, hint="write command:'./agent.sh'")
    if key_line(text) is not None:
        raise SutSpecInvalid("the command holds something that looks like a key", where=where, hint=_KEY_HINT)
    fields: dict[str, Any] = {"schema": 1, "name": _name_of(words[0]), "command": words}
    try:
        spec = AgentSpec.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise _form_refusal(error, "", where) from None
    return _checked(spec, "", where)


def _name_of(program: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", Path(program).name.lower()).strip("-")
    return plain[:64] or "command"
