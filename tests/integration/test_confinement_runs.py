"""Whole runs in the confined classes, of which something is killed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.models import IsolationClass
from tests.hostile.engine.stage import unmeasured
from tests.hostile.engine.table import ROOT
from tests.integration.command import PROGRAM
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.confinement import children_of, each_class, is_alive, parent_of, seconds_until, tree_below

RUBRIC = """\
import os, time
if os.path.exists("expected/hang.txt"):
    time.sleep(280)
print('{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []}')
"""
# A second and more: an ordinary case of a busy machine sleeps for less. A look at all processes costs a
# processor milliseconds, so there are few of them.
LOOKS, PAUSE = 25, 0.05
SLEEPS, REST = "b-sleeps", ("a-first", "c-then", "d-last")


def bench(directory: Path) -> None:
    cases = [CaseFiles(name) for name in REST]
    cases.append(CaseFiles(SLEEPS, {"expected/hang.txt": "x"}, {"rubric_wall_clock_seconds": 300}))
    write_bench(directory / "bench", RUBRIC, cases)
    (directory / "tmp").mkdir()


def environment(directory: Path) -> dict[str, str]:
    found = {**unmeasured(), "TMPDIR": str(directory / "tmp")}
    paths = [str(ROOT), *filter(None, [found.get("PYTHONPATH")])]
    return {**found, "PYTHONPATH": os.pathsep.join(reversed(paths))}


def command(isolation: str) -> list[str]:
    run = ["eval", "run", TASK_CLASS, "--sut", "null", "--json", "--concurrency", "1"]
    return [*PROGRAM, *run, "--isolation", isolation]


@contextmanager
def a_run(isolation: IsolationClass, directory: Path) -> "Iterator[tuple[subprocess.Popen[str], int]]":
    """Give a run of which one case sleeps, and the process in which it does."""
    bench(directory)
    process = subprocess.Popen(
        command(isolation),
        cwd=directory,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # The case that sleeps is there when one copy does nothing else for as long as no other would.
        found: list[int] = []
        under_way = seconds_until(lambda: sleeping(process.pid, found), patience=240, pause=PAUSE)
        assert under_way is not None, "never under way"
        yield process, found[-1]
    finally:
        process.kill()
        process.communicate()


def sleeping(harness: int, found: list[int]) -> bool:
    """Say whether the last looks all met the same copy, asleep; one that waits for a processor is not."""
    copies = [
        copy
        for guardian in children_of(harness)
        for zygote in children_of(guardian)
        for copy in children_of(zygote)
    ]
    found += [copy if state_of(copy) == "S" else 0 for copy in copies]
    return len(found) > LOOKS and len(set(found[-LOOKS:])) == 1 and found[-1] > 0


def state_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def scores(stdout: str) -> dict[str, Any]:
    report = json.loads(stdout)["report"]
    return dict(report["per_case"])


@each_class
@pytest.mark.parametrize("victim", ["zygote", "guardian"])
def test_a_run_whose_zygote_or_guardian_is_killed_ends_with_every_case_typed(
    isolation_class: IsolationClass, victim: str, tmp_path: Path
) -> None:
    with a_run(isolation_class, tmp_path) as (process, copy):
        zygote = parent_of(copy)
        os.kill(zygote if victim == "zygote" else parent_of(zygote), signal.SIGKILL)
        # Had nobody noticed, the case would end at its deadline, and with another code.
        stdout, stderr = process.communicate(timeout=240)

    found = scores(stdout)
    assert sorted(found) == sorted([SLEEPS, *REST]), stderr
    assert all(found[name]["passed"] for name in REST)
    [mode] = found[SLEEPS]["failure_modes"]
    assert (mode["code"], mode["detail"]) == ("rubric.malformed_output", "supervisor_killed")
    assert json.loads(stdout)["report"]["complete"]
    assert process.returncode == 0
    assert list((tmp_path / "tmp").iterdir()) == []


@each_class
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_harness_leaves_neither_process_nor_directory(
    isolation_class: IsolationClass, number: signal.Signals, tmp_path: Path
) -> None:
    with a_run(isolation_class, tmp_path) as (process, _):
        tree = tree_below(process.pid)
        assert len(tree) == 3
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=240)
        assert seconds_until(lambda: not any(map(is_alive, tree))) is not None
        assert seconds_until(lambda: not list((tmp_path / "tmp").iterdir())) is not None

    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        found = scores(stdout)
        assert sorted(found) == sorted([SLEEPS, *REST])
        assert [mode["code"] for mode in found[SLEEPS]["failure_modes"]] == ["sut.cancelled"]
