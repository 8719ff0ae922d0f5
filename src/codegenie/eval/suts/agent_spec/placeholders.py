"""Placeholders such as `{prompt}` in the texts of a sut.toml: which there are, and how they are filled.

A text is filled in one pass. What is put in is never read again, so a task that contains `{home}` stays as
it is. A brace that does not enclose one lower-case word is ordinary text: JSON and shell code need no escape.
"""

import re
from collections.abc import Callable, Collection, Iterator

_PLACEHOLDER = re.compile(r"\{([a-z_]{1,32}(?::[^{}\n]{0,255})?)\}", re.ASCII)
_INPUT = "input:"
# Components of a plain relative path. `input/` of a case holds nothing else.
_INPUT_NAME = re.compile(r"(?!/)(?:(?!\.{1,2}(?:/|$))[ -.0-\[\]-~]+(?:/|$))+(?<!/)", re.ASCII)

_OF_A_CASE = frozenset({"case_id", "task_class", "trial"})
IN_COMMAND = _OF_A_CASE | {"prompt", "model", "home", "broker", "input_files", _INPUT}
"""What an argument of the command may hold. `{input_files}` is an argument of its own."""
IN_PROMPT = _OF_A_CASE | {"model", _INPUT}
IN_ENVIRONMENT = _OF_A_CASE | {"model", "home", "broker"}
IN_HOME_FILE = frozenset({"model", "home", "broker"})
IN_BROKER_URL = frozenset({"broker"})
ONLY_MODEL = frozenset({"model"})
INPUT_FILES = "{input_files}"
"""Stands for many arguments, so it is not filled like the others."""


def placeholders(text: str) -> Iterator[str]:
    """Yield the placeholders of a text without their braces, in order: `prompt`, `input:TASK.md`."""
    return (found[1] for found in _PLACEHOLDER.finditer(text))


def holds(texts: Collection[str], name: str) -> bool:
    """Say whether one of the texts holds the placeholder of this name."""
    return any(name in set(placeholders(text)) for text in texts)


def placeholder_problem(text: str, allowed: Collection[str]) -> str | None:
    """Return why a text cannot be filled where only some placeholders are known; None if it can."""
    for found in placeholders(text):
        name, colon, rest = found.partition(":")
        known = name + colon if colon else name
        if known not in allowed:
            return f"{{{found}}} is not known here"
        if colon and not is_plain_path(rest):
            return f"{{{found}}} does not name a file of input/"
    return None


def is_plain_path(text: str) -> bool:
    """Say whether a text is a relative path of plain ASCII names without `.` and `..`."""
    return _INPUT_NAME.fullmatch(text) is not None


def substituted(text: str, value: Callable[[str], str]) -> str:
    """Fill a text in one pass. `value` is asked for each placeholder, without its braces."""
    return _PLACEHOLDER.sub(lambda found: value(found[1]), text)
