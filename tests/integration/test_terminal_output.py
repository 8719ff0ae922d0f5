"""What reaches a terminal: our own few control sequences, and nothing that a bench or a SUT wrote."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from codegenie.eval.cli import run_command_line
from tests.integration.command import PROGRAM, run
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import without_a_box
from tests.support.sampling import one_worker
from tests.support.terminal import HOSTILE, OWN_SEQUENCE, STEERING, on_a_terminal

pytestmark = one_worker(__name__)

RUBRIC = f"""\
import json, sys
HOSTILE = {HOSTILE!a}
request = json.load(sys.stdin)
case_id = request["case"]["case_id"]
sys.stderr.write(HOSTILE)
answer = {{"passed": True, "score": 1, "breakdown": {{}}, "failure_modes": []}}
if case_id == "b-detail":
    answer["failure_modes"] = [{{"code": "answer.wrong", "detail": HOSTILE}}]
elif case_id == "c-code":
    answer["failure_modes"] = [{{"code": HOSTILE}}]
elif case_id == "d-key":
    answer["breakdown"] = {{HOSTILE: 1}}
elif case_id == "e-field":
    answer[HOSTILE] = 1
elif case_id == "f-stderr":
    sys.exit(3)
elif case_id == "g-stdout":
    sys.stdout.write(HOSTILE)
elif case_id == "h-twice":
    print("{{" + json.dumps(HOSTILE) + ": 1, " + json.dumps(HOSTILE) + ": 2}}")
    sys.exit(0)
try:
    open("/dev/tty", "w").write(HOSTILE)
except OSError:
    pass
json.dump(answer, sys.stdout)
"""
CASES = ["a-fine", "b-detail", "c-code", "d-key", "e-field", "f-stderr", "g-stdout", "h-twice", "i-agent"]
AGENT = f"""\
import sys
HOSTILE = {HOSTILE!a}

def solve(case):
    for stream in (sys.stdout, sys.stderr):
        stream.write(HOSTILE)
    if case.case_id == "i-agent":
        raise ValueError(HOSTILE)
    return {{"text": HOSTILE}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("terminal")
    write_bench(directory / "bench", RUBRIC, CASES)
    (directory / "agent.py").write_text(AGENT, encoding="utf-8")
    return directory


ARGUMENTS = ["eval", *without_a_box("run", TASK_CLASS, "--sut", "python:agent:solve")]
NO_AGENT = ["eval", "run", TASK_CLASS, "--sut", "null"]


@pytest.mark.parametrize(
    ("environment", "live", "agent"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, True),
        ({"TERM": ""}, False, False),
    ],
    ids=["live", "live without colour", "dumb", "empty TERM"],
)
def test_nothing_that_a_bench_or_a_sut_wrote_steers_the_terminal(
    place: Path, environment: Mapping[str, str], live: bool, agent: bool
) -> None:
    code, written = on_a_terminal(ARGUMENTS if agent else NO_AGENT, place, environment)

    assert code == 0
    assert (OWN_SEQUENCE in written) == live
    assert STEERING.findall(written.replace(OWN_SEQUENCE, "")) == []
    assert "\x1b[" not in written.replace(OWN_SEQUENCE, "")
    assert not any(line.startswith("PASSED") for line in written.splitlines())
    assert f"blocked          {8 if agent else 7} cases" in written
    assert "gnp" in written, "the hostile text never came near the terminal: the test proves nothing"


def test_plain_lines_where_there_is_no_terminal(place: Path) -> None:
    code, stdout, stderr = run(ARGUMENTS, place)

    assert code == 0
    assert STEERING.findall(stdout + stderr) == []
    assert sorted(line.split("] ")[1].split(":")[0] for line in stderr.splitlines()) == CASES
    assert stdout.splitlines()[0].endswith("complete")


@pytest.mark.parametrize("extra", [[], ["--quiet"]])
def test_json_is_exactly_one_document_on_stdout(place: Path, extra: list[str]) -> None:
    code, stdout, stderr = run([*NO_AGENT, "--json", *extra], place)
    document = json.loads(stdout)

    assert code == 0
    keys = ["schema", "report", "chain_head", "verdict", "notes", "mean_over_units"]
    keys += ["steadiness", "usage", "durations"]
    assert list(document) == keys
    assert document["schema"] == "codegenie.eval.run/1"
    assert document["report"]["schema"] == "codegenie.eval.report/2"
    assert len(document["chain_head"]) == 64
    assert document["verdict"] is None
    assert [case_id for case_id, _ in document["report"]["per_case"]] == CASES
    assert stdout.isascii()
    assert len(stderr.splitlines()) == (0 if extra else len(CASES))


def test_json_on_a_terminal_is_not_mixed_with_styling(place: Path) -> None:
    code, written = on_a_terminal([*NO_AGENT, "--json", "--quiet"], place, {"TERM": "xterm"})

    assert code == 0
    assert json.loads(written.replace(OWN_SEQUENCE, ""))["report"]["complete"]


def test_an_incomplete_run_exits_with_four_and_says_so(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", cases=["a", "b", "c"])
    (tmp_path / "agent.py").write_text(
        "from codegenie.eval import SutResult\n\n\ndef solve(case):\n    return SutResult({}, cost_usd=1.0)\n"
    )
    arguments = [*ARGUMENTS, "--max-cost-usd", "0.5", "--concurrency", "1"]
    code, stdout, _ = run(arguments, tmp_path)

    assert code == 4
    assert stdout.splitlines()[0].endswith("INCOMPLETE")
    assert "blocked          2 cases" in stdout
    assert "sut.cancelled (cost cap of 0.5 USD reached)" in stdout


def test_a_selection_is_run_and_marked_partial(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", cases=["a1", "a2", "b1", "c1"])
    code, stdout, _ = run(
        [
            "eval",
            "run",
            TASK_CLASS,
            "--sut",
            "null",
            "--cases",
            "a*",
            "--cases",
            "c?",
            "--trials",
            "2",
            "--json",
        ],
        tmp_path,
    )
    report = json.loads(stdout)["report"]

    assert code == 0
    assert [case_id for case_id, _ in report["per_case"]] == ["a1", "a2", "c1"]
    assert report["selection"] == {"kind": "partial", "case_filter": "a*,c?", "available_cases": 4}
    assert (report["trials"], len(report["per_case"][0][1]["trials"])) == (2, 2)


WRONG_VALUES = {
    "--timeout": ["0", "-1", "nan", "inf", "soon"],
    "--max-cost-usd": ["-0.01", "nan", "inf", "much"],
    "--trials": ["0", "1001", "1.5", "x"],
    "--concurrency": ["0", "257", "x"],
    "--isolation": ["none", "SUBPROCESS"],
    "--sut-env": ["NOT_EXPORTED"],
    "--sut": ["", "nobody", "python:", "python:x", "command:x", "oracle:", "null "],
}


@pytest.mark.parametrize(
    ("flag", "value"), [(flag, value) for flag, values in WRONG_VALUES.items() for value in values]
)
def test_a_wrong_value_is_refused_before_anything_runs(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    value: str,
) -> None:
    monkeypatch.chdir(place)
    code = run_command_line([*ARGUMENTS, flag, value, "--json"])

    assert code == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"]


def test_the_harnesss_own_suts_take_no_environment_and_no_version(place: Path) -> None:
    for extra in (["--sut-env", "PATH"], ["--sut-version", "1"]):
        code, _, stderr = run(["eval", "run", TASK_CLASS, "--sut", "null", *extra], place)
        assert code == 2
        assert "neither --sut-env nor --sut-version" in stderr


@pytest.mark.parametrize("command", [["eval", "demo"], [*NO_AGENT, "--json"]])
def test_a_reader_that_leaves_early_sees_no_traceback(place: Path, command: list[str]) -> None:
    (place / "tmp").mkdir(exist_ok=True)
    line = " ".join([*PROGRAM, *command])
    done = subprocess.run(
        ["/bin/bash", "-c", f"{line} 2>&1 | head -c 20"],
        cwd=place,
        env={**os.environ, "TMPDIR": str(place / "tmp")},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == b""
    assert b"Traceback" not in done.stdout
    assert list((place / "tmp").iterdir()) == []


def test_the_demo_shows_its_three_steps(tmp_path: Path) -> None:
    code, stdout, stderr = run(["eval", "demo"], tmp_path)

    assert (code, stderr) == (0, "")
    steps = [line for line in stdout.splitlines() if re.match(r"[1-3]\. ", line)]
    assert [line[:2] for line in steps] == ["1.", "2.", "3."]
    assert "exit 3: case 'requests-2-31-0' has changed" in stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_demo_as_one_document(tmp_path: Path) -> None:
    code, stdout, _ = run(["eval", "demo", "--json"], tmp_path)
    document = json.loads(stdout)

    assert code == 0
    assert document["schema"] == "codegenie.eval.demo/1"
    assert document["oracle"]["passed_count"] == document["oracle"]["scored_count"] == 12
    assert document["null"]["passed_count"] < 6
    refused = document["refused"]
    assert refused["message"].startswith("case 'requests-2-31-0' has changed")
    assert (refused["type"], refused["exit_code"]) == ("BenchCaseDigestMismatch", 3)
