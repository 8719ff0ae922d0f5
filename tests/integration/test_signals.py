"""SIGINT, SIGTERM and SIGKILL to a real `codegenie eval run`, looked at from outside."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import start, supervisors_for, wait_until, working_below
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import without_a_box

FINISHED, REST = "a-finished", ("b-under-way", "c-under-way", "d-never", "e-never")

RUBRIC = """\
import json, os, sys, time
request = json.load(sys.stdin)
if os.path.exists("expected/hang.txt"):
    os.fork()
    with open(UNDER_WAY, "a") as file:
        file.write(request["case"]["case_id"] + "\\n")
    time.sleep(60)
print('{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []}')
"""
AGENT = """\
import signal, subprocess, time

def solve(case):
    if case.case_id != "a-finished":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        with open(UNDER_WAY, "a") as file:
            file.write(case.case_id + "\\n")
        time.sleep(60)
    return {}
"""


def begin(directory: Path, phase: str, *extra: str) -> "subprocess.Popen[bytes]":
    """Start a run of which the first case finishes and the next ones hang in `phase`."""
    under_way = directory / "under-way"
    definition = f"UNDER_WAY = {str(under_way)!r}\n"
    hanging = {"expected/hang.txt": "x"} if phase == "rubric" else {}
    cases = [CaseFiles(FINISHED), *(CaseFiles(name, files=hanging) for name in REST)]
    write_bench(directory / "bench", definition + RUBRIC, cases)
    (directory / "agent.py").write_text(definition + AGENT)
    sut = "null" if phase == "rubric" else "python:agent:solve"
    how = ["--sut", sut, "--isolation", "subprocess"]  # its rubric writes outside, to be seen
    process = start(["eval", *without_a_box("run", TASK_CLASS, *how, *extra)], directory)
    assert wait_until(lambda: under_way.exists() and len(set(under_way.read_text().split())) >= 2), (
        "never under way"
    )
    return process


def ended_well(directory: Path) -> bool:
    return (
        not working_below(directory)
        and not supervisors_for(directory)
        and not any((directory / "tmp").iterdir())
    )


@pytest.mark.parametrize("phase", ["sut", "rubric"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_in_seconds_with_everything_finished_kept(
    tmp_path: Path, number: signal.Signals, code: int, phase: str
) -> None:
    process = begin(tmp_path, phase, "--json")
    sent = time.monotonic()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)

    assert time.monotonic() - sent < 40
    assert process.returncode == code
    assert b"Traceback" not in stderr
    report: dict[str, Any] = json.loads(stdout)["report"]
    scores = dict(report["per_case"])
    assert not report["complete"]
    assert scores[FINISHED]["passed"]
    assert sorted(scores) == [FINISHED, *REST]
    for case_id in REST:
        [mode] = scores[case_id]["failure_modes"]
        assert (mode["code"], mode["detail"]) == ("sut.cancelled", f"ended by {number.name}")
    assert ended_well(tmp_path)


def test_a_second_signal_changes_nothing_but_the_mood(tmp_path: Path) -> None:
    process = begin(tmp_path, "rubric")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
    stdout, stderr = process.communicate(timeout=120)

    assert process.returncode == 130
    assert b"INCOMPLETE" in stdout
    assert b"Traceback" not in stderr
    assert ended_well(tmp_path)


def test_a_signal_while_the_agent_is_imported_ends_the_run_too(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    (tmp_path / "agent.py").write_text(
        f"import time\nopen({str(tmp_path / 'importing')!r}, 'w').close()\ntime.sleep(60)\n"
    )
    process = start(
        ["eval", *without_a_box("run", TASK_CLASS, "--sut", "python:agent:solve", "--json")], tmp_path
    )
    assert wait_until((tmp_path / "importing").exists)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=120)

    assert process.returncode == 143
    assert not json.loads(stdout)["report"]["complete"]
    assert ended_well(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_says_so_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(["eval", "demo"], tmp_path)
    assert wait_until(lambda: supervisors_for(tmp_path))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)

    assert process.returncode == code
    assert stderr == b"codegenie: interrupted\n"
    assert ended_well(tmp_path)


@pytest.mark.parametrize("phase", ["sut", "rubric"])
def test_a_harness_that_is_killed_takes_trees_supervisors_and_directory_with_it(
    tmp_path: Path, phase: str
) -> None:
    process = begin(tmp_path, phase)
    assert working_below(tmp_path / "tmp")
    assert supervisors_for(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)

    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: ended_well(tmp_path), 40)


def test_a_harness_that_is_killed_before_its_first_rubric_leaves_no_directory(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    (tmp_path / "agent.py").write_text(
        f"import time\n\n\ndef solve(case):\n    open({str(tmp_path / 'asked')!r}, 'w').close()\n"
        "    time.sleep(60)\n"
    )
    process = start(
        ["eval", *without_a_box("run", TASK_CLASS, "--sut", "python:agent:solve", "--concurrency", "1")],
        tmp_path,
    )
    assert wait_until((tmp_path / "asked").exists)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)

    assert wait_until(lambda: ended_well(tmp_path), 40)
