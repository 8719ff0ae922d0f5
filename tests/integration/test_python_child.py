"""The child's side of `python:module:attr`: one request on descriptor 0, one result on descriptor 3."""

import hashlib
import json
import os
import py_compile
from pathlib import Path

import pytest

from codegenie.eval.system.child_files import read_head, stream_file
from tests.integration.forked import run_program

MODULE = """\
import asyncio, sys

class Holder:
    @staticmethod
    def inner(case):
        return {"trial": case.trial}

async def slowly(case):
    await asyncio.sleep(0)
    return {"case": case.case_id}

class System:
    def __call__(self, case):
        return {"input": case.input_dir}

def leaves(case):
    raise SystemExit(CODE)

number = 3
CODE = 0
"""
CASE = {"case_id": "a", "task_class": "t", "input_dir": "/in", "trial": 4}


def serve(
    directory: Path,
    attribute: str,
    case: dict[str, object] | None,
    source: str = MODULE,
    hashed: str | None = None,
) -> tuple[int, bytes, str]:
    """Run the child in a fork, which was told the hash of `hashed`; return exit code, result and log."""
    hashed = source if hashed is None else hashed
    (directory / "agent.py").write_text(source)
    request = {
        "module": "agent",
        "attribute": attribute,
        "import_from": str(directory),
        "file": str(directory / "agent.py"),
        "sha256": hashlib.sha256(hashed.encode()).hexdigest(),
        "case": case,
    }
    log = os.open(directory / "log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with stream_file(json.dumps(request).encode()) as stdin, stream_file() as answer, stream_file() as told:
        code = run_program("suts/python_child.py", [stdin, log, log, answer, told])
        result, _ = read_head(answer, 1_000)
    os.close(log)
    return code, result, (directory / "log").read_text()


@pytest.mark.parametrize(
    ("attribute", "output"),
    [("slowly", {"case": "a"}), ("System", {"input": "/in"}), ("Holder.inner", {"trial": 4})],
)
def test_what_is_returned_is_written_as_one_document(
    tmp_path: Path, attribute: str, output: dict[str, object]
) -> None:
    code, result, _ = serve(tmp_path, attribute, CASE)

    assert code == 0
    assert json.loads(result) == {"harness_output": output, "cost_usd": None, "usage": None}


def test_without_a_case_it_only_says_that_there_is_something_to_call(tmp_path: Path) -> None:
    assert serve(tmp_path, "slowly", None)[:2] == (0, b"found")


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("number", "TypeError: agent:number is not callable"), ("nothing", "AttributeError")],
)
def test_what_cannot_be_called_is_refused(tmp_path: Path, attribute: str, said: str) -> None:
    code, result, log = serve(tmp_path, attribute, None)

    assert (code, result) == (1, b"")
    assert said in log


@pytest.mark.parametrize(
    ("value", "code", "log"), [("0", 0, ""), ("5", 5, ""), ("None", 0, ""), ("'bye'", 1, "bye\n")]
)
def test_a_system_that_exits_has_no_result(tmp_path: Path, value: str, code: int, log: str) -> None:
    source = MODULE.replace("CODE = 0", f"CODE = {value}")

    assert serve(tmp_path, "leaves", CASE, source) == (code, b"", log)


def test_a_file_that_is_not_the_one_that_was_hashed_is_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    source = f"open({str(witness)!r}, 'w').close()\n{MODULE}"

    assert serve(tmp_path, "slowly", CASE, source, hashed=MODULE) == (0, b"changed", "")
    assert not witness.exists()


def test_a_compiled_file_beside_the_source_is_not_run(tmp_path: Path) -> None:
    lying = tmp_path / "agent.py"
    lying.write_text(MODULE.replace("case.case_id", "'compiled'"))
    py_compile.compile(str(lying), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)

    code, result, _ = serve(tmp_path, "slowly", CASE)

    assert (code, json.loads(result)["harness_output"]) == (0, {"case": "a"})


def test_a_name_that_is_taken_by_the_child_itself_is_refused(tmp_path: Path) -> None:
    request = {
        "module": "json",
        "attribute": "dumps",
        "import_from": str(tmp_path),
        "file": str(tmp_path / "json.py"),
        "sha256": "",
        "case": None,
    }
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    with stream_file(json.dumps(request).encode()) as stdin, stream_file() as answer, stream_file() as told:
        code = run_program("suts/python_child.py", [stdin, log, log, answer, told])
    os.close(log)

    assert code == 1
    assert "json is imported already" in (tmp_path / "log").read_text()
