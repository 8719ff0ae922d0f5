"""The helper for rubric authors, in a real child laid out as the harness lays it out."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HELPER = Path(__file__).parents[2] / "src/codegenie/eval/bench/codegenie_rubric.py"
REQUEST = {
    "protocol": 1,
    "case": {"case_id": "one", "difficulty": "easy"},
    "input_dir": "input",
    "expected_dir": "expected",
    "harness_output": {"answer": "42"},
}
Child = subprocess.CompletedProcess[str]


def run_rubric(directory: Path, source: str, request: object = REQUEST) -> Child:
    shutil.copy(HELPER, directory)
    (directory / "rubric.py").write_text(source, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-s", "-S", "-B", "rubric.py"],
        cwd=directory,
        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_request_arrives_with_its_case_directories_and_output(tmp_path: Path) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\n"
        "r = read_case()\n"
        "print(r.case['case_id'], r.input_dir, r.expected_dir, r.harness_output['answer'])\n"
        "emit(passed=True, score=1.0)\n",
    )

    assert child.returncode == 0
    assert child.stderr == "one input expected 42\n"


def test_the_answer_has_the_four_fields_of_the_wire(tmp_path: Path) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\n"
        "read_case()\n"
        "emit(passed=False, score=0.25, breakdown={'style': 0.5},\n"
        "     failures=[('a.b', 'too short'), ('c.d', 'warn', 'caf\\u00e9 \\ud800')])\n",
    )

    assert json.loads(child.stdout) == {
        "passed": False,
        "score": 0.25,
        "breakdown": {"style": 0.5},
        "failure_modes": [
            {"code": "a.b", "severity": "block", "detail": "too short"},
            {"code": "c.d", "severity": "warn", "detail": "caf\u00e9 \ud800"},
        ],
    }


STRAY_WRITES = {
    "print": "print('stray')",
    "a write to the stdout object that the interpreter started with": "sys.__stdout__.write('stray\\n')",
    "a write to descriptor 1": "os.write(1, b'stray\\n')",
    "a program that the rubric starts": "os.system('echo stray')",
    "something that is printed when the interpreter ends": "atexit.register(print, 'stray')",
}


@pytest.mark.parametrize("statement", STRAY_WRITES.values(), ids=STRAY_WRITES.keys())
@pytest.mark.parametrize("before_the_answer", [True, False], ids=["before the answer", "after it"])
def test_a_stray_write_goes_to_stderr(tmp_path: Path, statement: str, before_the_answer: bool) -> None:
    answer = "emit(passed=True, score=1.0)"
    order = [statement, answer] if before_the_answer else [answer, statement]

    child = run_rubric(
        tmp_path,
        "\n".join(
            ["import atexit, os, sys", "from codegenie_rubric import emit, read_case", "read_case()", *order]
        ),
    )

    assert child.returncode == 0
    assert json.loads(child.stdout)["passed"] is True
    assert child.stderr == "stray\n"


@pytest.mark.parametrize("place", ["before the import", "between import and read_case"])
def test_what_is_printed_before_the_case_is_read_spoils_the_answer_as_documented(
    tmp_path: Path, place: str
) -> None:
    early = "print('too early')\n"
    imports = "from codegenie_rubric import emit, read_case\n"
    opening = early + imports if place == "before the import" else imports + early

    child = run_rubric(tmp_path, opening + "read_case()\nemit(passed=True, score=1.0)\n")

    assert child.stdout.startswith("too early\n{")
    assert "What was written **before** that\ncall is not protected" in HELPER.read_text(encoding="utf-8")


def test_a_second_emit_raises_and_leaves_one_document(tmp_path: Path) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\n"
        "read_case()\n"
        "emit(passed=False, score=0.0)\n"
        "emit(passed=True, score=1.0)\n",
    )

    assert child.returncode == 1
    assert child.stderr.splitlines()[-1].startswith("RuntimeError: call read_case before emit")
    assert json.loads(child.stdout)["passed"] is False


def test_an_emit_before_the_case_was_read_raises_and_writes_nothing(tmp_path: Path) -> None:
    child = run_rubric(tmp_path, "from codegenie_rubric import emit\nemit(passed=True, score=1.0)\n")

    assert (child.returncode, child.stdout) == (1, "")


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_score_that_is_not_finite_is_an_error_in_the_rubric_and_not_an_answer(
    tmp_path: Path, number: str
) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\n"
        f"read_case()\nemit(passed=False, score=float('{number}'))\n",
    )

    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr.splitlines()[-1].startswith("ValueError: ")


def test_an_answer_larger_than_a_pipe_arrives_whole(tmp_path: Path) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\n"
        "read_case()\n"
        "emit(passed=False, score=0.0, failures=[('a.b', 'x' * 1000)] * 500)\n",
    )

    assert len(json.loads(child.stdout)["failure_modes"]) == 500


@pytest.mark.parametrize(
    "request_document",
    [
        [],
        "text",
        {},
        {**REQUEST, "protocol": 2},
        {**REQUEST, "case": None},
        {**REQUEST, "harness_output": []},
        {key: value for key, value in REQUEST.items() if key != "expected_dir"},
    ],
)
def test_a_request_of_another_form_ends_the_rubric_without_an_answer(
    tmp_path: Path, request_document: object
) -> None:
    child = run_rubric(
        tmp_path,
        "from codegenie_rubric import emit, read_case\nread_case()\nemit(passed=True, score=1.0)\n",
        request_document,
    )

    assert (child.returncode, child.stdout) == (1, "")


def test_the_helper_costs_no_import_beyond_json_os_and_sys(tmp_path: Path) -> None:
    child = run_rubric(
        tmp_path,
        "import json, os, sys\n"
        "before = set(sys.modules)\n"
        "import codegenie_rubric\n"
        "print(sorted(set(sys.modules) - before))\n",
    )

    assert child.stdout == "['codegenie_rubric']\n"


def test_what_came_of_the_steps_is_there_and_empty_for_a_case_without_steps(tmp_path: Path) -> None:
    source = (
        "from codegenie_rubric import emit, read_case\n"
        "r = read_case()\nprint(r.executions)\nemit(passed=True, score=1.0)\n"
    )

    assert run_rubric(tmp_path, source).stderr == "{}\n"
    with_steps = {**REQUEST, "executions": {"cli": {"end": "exit:0"}}}
    assert run_rubric(tmp_path, source, with_steps).stderr == "{'cli': {'end': 'exit:0'}}\n"
