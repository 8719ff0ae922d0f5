"""What the child of a Python agent says about it, read strictly, and the identity that is made of it."""

import hashlib
import json
from pathlib import Path

import pytest

from codegenie.eval.errors import SutChanged, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutIdentity
from codegenie.eval.suts.fingerprints import syntax_digest
from codegenie.eval.suts.python_look import (
    Interpreter,
    Look,
    check_unchanged,
    python_identity,
    read_interpreter,
    read_look,
    refuse_other_code,
)

PYTHON = Interpreter("cpython 3.11.9", (("bought", "1.0"),))
AGENT, HELPER = "import helper\ndef solve(case):\n    return {}\n", "x = 1\n"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def look_at(directory: Path, **modules: str) -> Look:
    """Write modules, and return what a child would find."""
    found = {}
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
        found[str(directory / f"{name}.py")] = (f"{name}.py", digest(text))
    return Look(str(directory / "agent.py"), found)


def identity(directory: Path, python: Interpreter = PYTHON, **modules: str) -> SutIdentity:
    return python_identity("python:agent:solve", None, look_at(directory, **modules), python)


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def test_a_file_that_was_found_before_the_agent_ran_stays_found() -> None:
    first = {"file": "/a.py", "modules": [["/a.py", "a.py", "1"], ["/b.py", "b.py", "2"]]}
    second = {"found": True, "modules": [["/a.py", "a.py", "9"], ["/c.py", "c.py", "3"]]}
    look, was_imported = read_look(lines(first, second))

    assert was_imported
    assert look is not None
    assert look.modules == {"/a.py": ("a.py", "1"), "/b.py": ("b.py", "2"), "/c.py": ("c.py", "3")}
    assert look.agent().known == {"/a.py": "1", "/b.py": "2", "/c.py": "3"}


def test_a_child_that_said_one_thing_could_not_import_the_agent() -> None:
    look, was_imported = read_look(lines({"file": "/a.py", "modules": []}))

    assert (look, was_imported) == (Look("/a.py", {}), False)
    assert read_look(lines({"missing": "agent"})) == (None, False)
    assert read_look(b"") == (None, False)


@pytest.mark.parametrize(
    "said",
    [
        b"not json\n",
        lines({"modules": [["/a.py", "a.py"]]}),
        lines({"modules": [["/a.py", "a.py", 1]]}),
        lines({"modules": ["/a.py"]}),
        lines({"modules": [["/a.py", "a.py", "1"]] * (LIMITS.agent_modules + 1)}),
    ],
    ids=["not json", "two parts", "a number", "a text", "too many"],
)
def test_another_word_of_a_child_is_refused(said: bytes) -> None:
    with pytest.raises(SutSpecInvalid):
        read_look(said)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (b"", "it said nothing"),
        (b"hello\nworld\n", "it said world"),
        (b'{"version": "x", "line": "", "packages": []}', "it said"),
        (
            b'{"version": [3, 10, 9], "line": "cpython 3.10.9", "packages": []}',
            "cpython 3.10.9, which is too old",
        ),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_refused_with_what_it_said(out: bytes, said: str) -> None:
    with pytest.raises(SutSpecInvalid) as refusal:
        read_interpreter("./python", out, b"")

    assert said in refusal.value.message
    assert "3.11" in str(refusal.value.hint)


def test_a_comment_in_any_module_changes_the_bytes_and_not_the_candidate(tmp_path: Path) -> None:
    before = identity(tmp_path, agent=AGENT, helper=HELPER)
    comment = identity(tmp_path, agent=AGENT, helper=HELPER + "# new\n")
    other = identity(tmp_path, agent=AGENT, helper="x = 2\n")

    assert len({before.digest, comment.digest, other.digest}) == 3
    assert before.syntax == comment.syntax != other.syntax


def test_packages_and_interpreter_change_the_agent_and_not_the_candidate(tmp_path: Path) -> None:
    found = [
        identity(tmp_path, python, agent=AGENT)
        for python in (PYTHON, Interpreter(PYTHON.line, ()), Interpreter("cpython 3.12.1", PYTHON.packages))
    ]

    assert len({each.digest for each in found}) == 3
    assert {each.syntax for each in found} == {syntax_digest(AGENT.encode())}, "as in older records"


def test_a_module_that_the_harness_cannot_parse_counts_by_its_bytes(tmp_path: Path) -> None:
    first = identity(tmp_path, agent=AGENT, helper="a new syntax\n")
    second = identity(tmp_path, agent=AGENT, helper="another new syntax\n")

    assert first.syntax != second.syntax


@pytest.mark.parametrize("deed", ["changed", "gone", "a link"])
def test_a_file_that_is_not_what_the_child_found_is_not_the_agent(tmp_path: Path, deed: str) -> None:
    look = look_at(tmp_path, agent=AGENT, helper=HELPER)
    check_unchanged("python:agent:solve", look)
    helper = tmp_path / "helper.py"
    helper.unlink()
    if deed == "changed":
        helper.write_text("x = 2\n")
    elif deed == "a link":
        helper.symlink_to("agent.py")

    with pytest.raises(SutChanged, match="has changed since the run was started") as refusal:
        check_unchanged("python:agent:solve", look)
    assert refusal.value.where == str(helper)


@pytest.mark.parametrize(
    ("said", "message"), [("changed", "has changed since"), ("unknown", "was not found before")]
)
def test_other_code_ends_the_run(said: str, message: str) -> None:
    with pytest.raises(SutChanged, match=message) as refusal:
        refuse_other_code("python:agent:solve", json.dumps({said: "/x\x1b[2J.py"}).encode())

    assert str(refusal.value.where).isprintable()


@pytest.mark.parametrize(
    "result",
    [b"", b"junk", b'{"changed": 1}', b'{"changed": "/a", "more": 1}', b'{"harness_output": {}}', b"[1]"],
)
def test_any_other_result_is_not_taken_for_other_code(result: bytes) -> None:
    refuse_other_code("python:agent:solve", result)
