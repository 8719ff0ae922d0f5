"""A model that mends calc.py, in the words of whichever agent asks.

It asks an agent with a shell to write the file and to look for the key of the user around it, and any other
agent, such as aider, to write the file itself. What a command prints comes back with the next request, so the
provider is the witness of what an agent could see.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.fake_answers import Call
from tests.support.fake_model import Answer

RIGHT = "def add(a, b):\n    return a + b\n"
KEY_ABSENT, KEY_PRESENT = "key-absent", "key-present"
_THOUGHT, _END = "I mend calc.py.", "It is done."
_LAST_COMMAND_OF_MINI = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# The items of a talk in which the result of a tool stands, one for each API.
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")


def mending_command(key: str) -> str:
    """Return a command that mends the file and prints whether the key lies around.

    It holds neither the key nor what it prints in one piece, since agents keep the commands that they run. It
    empties its files and does not remove them: Codex refuses a command with `rm -f`.
    """
    half = len(key) // 2
    pattern, seen = '"${TMPDIR:-/tmp}/.pattern"', '"${TMPDIR:-/tmp}/.seen"'
    return (
        f"printf '{RIGHT.encode('unicode_escape').decode()}' > calc.py; "
        f"printf '%s%s' '{key[:half]}' '{key[half:]}' > {pattern}; "
        f"cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' > {seen}; env >> {seen}; "
        f"if grep -qsF -f {pattern} {seen} || "
        f'grep -rqsF --exclude=.pattern -f {pattern} "$HOME" "$PWD"; '
        f"then printf 'key%s\\n' -present; else printf 'key%s\\n' -absent; fi; : > {pattern}; : > {seen}"
    )


@dataclass(frozen=True)
class Coder:
    """Answers the requests of one agent, whose real key it knows."""

    key: str

    def __call__(self, path: str, asked: dict[str, Any]) -> Answer:
        """Answer one request: with a call of a tool, or with the last word after its result."""
        offered = set(_tool_names(asked))
        is_answered = any(_is_result(part) for part in _parts(asked))
        if path == "/v1/chat/completions":
            return self._completed(offered, is_answered=is_answered)
        if is_answered or not offered:
            return Answer(_END)
        return Answer(_THOUGHT, self._call(offered))

    def _call(self, offered: set[str]) -> Call:
        command = mending_command(self.key)
        if "Bash" in offered:
            return Call("Bash", {"command": command, "description": "mend calc.py"})
        if "run_shell_command" in offered:
            return Call("run_shell_command", {"command": command})
        if "exec_command" in offered:
            return Call("exec_command", {"cmd": command})
        if "exec" in offered:
            # Codex has some models write JavaScript that uses the tools.
            source = f"text((await tools.exec_command({json.dumps({'cmd': command})})).output)"
            return Call("exec", source=source)
        raise ValueError(f"no known shell among the tools {sorted(offered)}")

    def _completed(self, offered: set[str], *, is_answered: bool) -> Answer:
        if "bash" not in offered:
            return Answer(f"calc.py\n```\n{RIGHT}```\n")
        command = _LAST_COMMAND_OF_MINI if is_answered else mending_command(self.key)
        return Answer(_THOUGHT, Call("bash", {"command": command}))


def _is_result(part: dict[str, Any]) -> bool:
    return part.get("type") in _RESULTS or part.get("role") == "tool" or "functionResponse" in part


def _parts(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every message of a talk and the parts of it."""
    for message in [*asked.get("messages", []), *asked.get("input", []), *asked.get("contents", [])]:
        yield message
        held = message.get("parts") or message.get("content")
        yield from (part for part in held if isinstance(part, dict)) if isinstance(held, list) else ()


def _tool_names(asked: dict[str, Any]) -> Iterator[str]:
    """Yield the names of all tools that a request offers: at its top, in groups, and within the talk."""
    waiting = [asked, *asked.get("input", [])]
    while waiting:
        holder = waiting.pop()
        named = holder.get("function", holder)
        if "name" in named:
            yield named["name"]
        waiting += [*holder.get("tools", []), *holder.get("functionDeclarations", [])]
