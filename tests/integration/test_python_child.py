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
    called: str,
    case: dict[str, object] | None,
    source: str = MODULE,
    hashed: str | None = None,
) -> tuple[int, bytes, str]:
    """Run the child in a fork, which was told the hash of `hashed`; return exit code, result and log.

    Without a case it is told nothing, and finds out what the agent is.
    """
    hashed = source if hashed is None else hashed
    module, _, attribute = called.rpartition(":")
    module = module or "agent"
    file = directory / f"{module}.py"
    file.write_text(source)
    request = {
        "module": module,
        "attribute": attribute,
        "import_from": str(directory),
        "file": "" if case is None else str(file),
        "known": None if case is None else {str(file): hashlib.sha256(hashed.encode()).hexdigest()},
        "private": [str(directory / "room")],
        "case": case,
    }
    log = os.open(directory / "log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with stream_file(json.dumps(request).encode()) as stdin, stream_file() as answer, stream_file() as told:
        code = run_program("suts/python_child.py", [stdin, log, log, answer, told])
        result, _ = read_head(answer, 100_000)
    os.close(log)
    return code, result, (directory / "log").read_text()


def looked_up(directory: Path, source: str) -> list[set[str]]:
    """Return the names of the files that the child found before and after it ran the agent."""
    code, result, log = serve(directory, "solve", None, source)
    assert code == 0, log
    return [{name for _, name, _ in json.loads(line)["modules"]} for line in result.splitlines()]


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


def test_without_a_case_it_says_of_which_files_the_agent_consists(tmp_path: Path) -> None:
    code, result, _ = serve(tmp_path, "slowly", None)
    first, second = (json.loads(line) for line in result.splitlines())
    digest = hashlib.sha256(MODULE.encode()).hexdigest()

    assert code == 0
    assert first == {"file": str(tmp_path / "agent.py"), "modules": second["modules"]}
    assert second == {"found": True, "modules": [[str(tmp_path / "agent.py"), "agent.py", digest]]}


AGENT = "def solve(case):\n    return {}\n"
PARTS = {
    "an import at the top": ("import helper\n", {"helper.py"}),
    "an import in a function": ("def later():\n    import helper\n", {"helper.py"}),
    "a package and a part of it": (
        "def later():\n    from parts import first\n",
        {"parts/__init__.py", "parts/first.py"},
    ),
    "what a part imports by its place": (
        "def later():\n    import parts.second\n",
        {"parts/__init__.py", "parts/second.py", "parts/first.py", "helper.py"},
    ),
    "a name in a text": (
        "import importlib\ndef later():\n    importlib.import_module('parts.first')\n",
        {"parts/__init__.py", "parts/first.py"},
    ),
    "the standard library": ("import csv\ndef later():\n    import sqlite3.dbapi2\n", set()),
    "an installed package": (
        "import sys, os\nsys.path.append(os.path.dirname(__file__) + '/lib/site-packages')\nimport bought\n",
        set(),
    ),
}


def write_parts(directory: Path) -> None:
    for name, text in {
        "helper.py": "x = 1\n",
        "parts/__init__.py": "",
        "parts/first.py": "",
        "parts/second.py": "from . import first\ndef later():\n    import helper\n",
        "lib/site-packages/bought.py": "",
        "hidden/inner.py": "",
        "unused.py": "",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.mark.parametrize("what", PARTS)
def test_the_files_of_an_agent_are_found_before_any_of_them_runs(tmp_path: Path, what: str) -> None:
    source, names = PARTS[what]
    write_parts(tmp_path)
    before, after = looked_up(tmp_path, source + AGENT)

    assert before == after == {"agent.py", *names}


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\nimportlib.import_module('hid' + 'den.inner')\n",
        "import sys, os\nsys.path.append(os.path.dirname(__file__) + '/hidden')\nimport inner\n",
        (
            "import sys, os\nsys.path.append(os.path.dirname(__file__) + '/hidden')\n"
            "def later():\n    import inner\n"
        ),
        (
            "import importlib.util as u, os\n"
            "spec = u.spec_from_file_location('odd', os.path.dirname(__file__) + '/hidden/inner.py')\n"
            "module = u.module_from_spec(spec)\nimport sys\nsys.modules['odd'] = module\n"
        ),
    ],
    ids=["a name that is computed", "another path", "another path and a function", "by its file"],
)
def test_a_file_that_only_the_running_agent_names_is_found_when_it_is_imported(
    tmp_path: Path, source: str
) -> None:
    write_parts(tmp_path)
    before, after = looked_up(tmp_path, source + AGENT)

    assert before == {"agent.py"}
    assert {name.rpartition("/")[2] for name in after} == {"agent.py", "inner.py"}


def test_a_module_that_was_not_found_before_is_refused_in_a_call_even_if_the_agent_catches_it(
    tmp_path: Path,
) -> None:
    write_parts(tmp_path)
    source = (
        "def solve(case):\n    try:\n        import helper\n    except BaseException:\n        pass\n"
        "    return {}\n"
    )
    code, result, _ = serve(tmp_path, "solve", CASE, source)

    assert (code, json.loads(result)) == (0, {"unknown": str(tmp_path / "helper.py")})


def test_a_module_that_is_loaded_by_its_file_in_a_call_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path)
    source = (
        "import importlib.util as u, os, sys\ndef solve(case):\n"
        "    spec = u.spec_from_file_location('odd', os.path.dirname(__file__) + '/helper.py')\n"
        "    sys.modules['odd'] = u.module_from_spec(spec)\n    return {}\n"
    )

    assert json.loads(serve(tmp_path, "solve", CASE, source)[1]) == {"unknown": str(tmp_path / "helper.py")}


@pytest.mark.parametrize("is_link", [False, True], ids=["a directory", "a link to one"])
def test_a_module_that_the_agent_writes_where_it_works_is_not_a_part_of_it(
    tmp_path: Path, is_link: bool
) -> None:
    if is_link:
        (tmp_path / "real").mkdir()
        (tmp_path / "room").symlink_to("real")
    else:
        (tmp_path / "room").mkdir()
    source = (
        f"import sys\ndef solve(case):\n    sys.path.insert(0, {os.path.realpath(tmp_path / 'room')!r})\n"
        f"    open({str(tmp_path / 'room' / 'made.py')!r}, 'w').write('x = 5')\n"
        "    import made\n    return {'x': made.x}\n"
    )
    code, result, _ = serve(tmp_path, "solve", CASE, source)

    assert (code, json.loads(result)["harness_output"]) == (0, {"x": 5})


def test_a_module_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    request = {"module": "gone", "attribute": "solve", "import_from": str(tmp_path), "file": ""}
    request_bytes = json.dumps({**request, "known": None, "private": [], "case": None}).encode()
    with stream_file(request_bytes) as stdin, stream_file() as out, stream_file() as told:
        run_program("suts/python_child.py", [stdin, 1, 2, out, told])
        assert read_head(out, 1_000)[0] == b'{"missing": "gone"}\n'


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("number", "TypeError: agent:number is not callable"), ("nothing", "AttributeError")],
)
def test_what_cannot_be_called_is_refused(tmp_path: Path, attribute: str, said: str) -> None:
    code, result, log = serve(tmp_path, attribute, None)

    assert (code, len(result.splitlines())) == (1, 1)
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

    assert serve(tmp_path, "slowly", CASE, source, hashed=MODULE) == (
        0,
        json.dumps({"changed": str(tmp_path / "agent.py")}).encode(),
        "",
    )
    assert not witness.exists()


def test_a_compiled_file_beside_the_source_is_not_run(tmp_path: Path) -> None:
    lying = tmp_path / "agent.py"
    lying.write_text(MODULE.replace("case.case_id", "'compiled'"))
    py_compile.compile(str(lying), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)

    code, result, _ = serve(tmp_path, "slowly", CASE)

    assert (code, json.loads(result)["harness_output"]) == (0, {"case": "a"})


def test_a_name_that_is_taken_by_the_child_itself_is_refused(tmp_path: Path) -> None:
    code, _, log = serve(tmp_path, "json:dumps", None, AGENT)

    assert code == 1
    assert "json is imported already" in log
