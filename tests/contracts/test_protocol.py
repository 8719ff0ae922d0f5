"""The messages between the processes are declared in one module, and its table lists every one of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegenie.eval.system import protocol

SOURCE = Path(protocol.__file__).parents[1]
SPEAKERS = [
    "system/supervisor.py",
    "system/supervisor_program.py",
    "isolation/zygote_client.py",
    "isolation/confinement/guardian_program.py",
    "isolation/confinement/zygote.py",
    "boxes/box_server_program.py",
    "boxes/box.py",
    "boxes/init.py",
    "boxes/launching.py",
]
WORDS = {name: value for name, value in vars(protocol).items() if name.isupper() and isinstance(value, str)}
RECORDS = {name for name, value in vars(protocol).items() if hasattr(value, "__required_keys__")}


def test_the_table_lists_every_message_and_nothing_else() -> None:
    cells = re.findall(r"^\|[^|]+\|[^|]+\|([^|]+)\|", protocol.__doc__ or "", re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}

    assert len(listed) > 10
    assert listed == RECORDS | set(WORDS.values()) - {protocol.SECONDS, protocol.ERROR}


def test_every_request_and_every_failure_is_told_by_its_word() -> None:
    assert protocol.SECONDS in protocol.Run.__required_keys__ & protocol.RunConfined.__required_keys__
    assert protocol.ERROR in protocol.Failed.__required_keys__
    assert not {protocol.SECONDS, protocol.ERROR} & protocol.Ended.__annotations__.keys()


def spelled_keys(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what a program uses as the key of a mapping: in a literal, in brackets, before `in`, in `get`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Compare) and type(node.ops[0]).__name__.endswith("In"):
            yield node.left
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "get":
            yield from node.args[:1]
        elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node


def is_spelled(key: ast.expr) -> bool:
    if not isinstance(key, ast.Constant):
        return False
    return key.value in WORDS.values() or (isinstance(key.value, bytes) and key.value.startswith(b'{"'))


def test_no_program_spells_a_message_itself() -> None:
    offenders = [
        f"{name}:{key.lineno}"
        for name in SPEAKERS
        for key in spelled_keys(ast.parse((SOURCE / name).read_bytes()))
        if is_spelled(key)
    ]

    assert offenders == []


@pytest.mark.parametrize(
    "specimen",
    [
        'send({"due": True})',
        'if "leave" in request: pass',
        'request["seconds"]',
        'x.get("more")',
        "send(b'{\"cancel\": true}')",
    ],
)
def test_a_spelled_message_is_found(specimen: str) -> None:
    assert any(map(is_spelled, spelled_keys(ast.parse(specimen))))
