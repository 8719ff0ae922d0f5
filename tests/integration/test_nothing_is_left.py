"""A hundred failing and a hundred passing children, or five times as many, counted from outside and inside.

The harness is a process of its own. It tells, over a pipe, when it begins and when it has ended its run;
in between and afterwards this test counts its children, descriptors, zombies and directories in /proc.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import supervisors_for, wait_until, working_below
from tests.support.benches import write_bench
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

FAILURES = (100, 500)
HARNESS = """\
import gc, json, os, sys, threading
sys.path.insert(0, {root!r})
from pathlib import Path
from codegenie.eval.suts.builtin import NullSut
from tests.support.benches import run_bench

def facts():
    gc.collect()
    return {{
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "left": os.listdir({tmp!r}),
    }}

bench = Path({bench!r})
run_bench(bench, NullSut(), only=["p000"])
print(json.dumps({{"before": facts()}}), flush=True)
sys.stdin.readline()
report = run_bench(bench, NullSut(), concurrency=4)
print(json.dumps({{"after": facts(), "report": report.model_dump(mode="json")}}), flush=True)
sys.stdin.readline()
"""
# Cheap on purpose, and each fails in its own way; every tenth leaves a process behind.
RUBRIC = """\
import os, signal, sys
request = sys.stdin.read()
at = request.index('"case_id": "') + 12
kind, number = request[at], int(request[at + 1 : at + 4])
if kind == "f":
    deed = number % 10
    if deed == 0 and os.fork() == 0:
        os.setsid()
        import time
        time.sleep(30)
    if deed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == 2:
        os._exit(1)
    if deed == 3:
        raise ValueError("no")
    if deed == 4:
        os.mkdir("locked"); open("locked/file", "w").close(); os.chmod("locked", 0); os._exit(3)
    if deed == 5:
        os.closerange(0, 10); os._exit(0)
    if deed in (6, 7):
        print("nonsense"); os._exit(0)
    if deed == 8:
        os.abort()
end = "}" if kind == "p" else ""
sys.stdout.write('{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []' + end)
"""


@dataclass(frozen=True)
class Seen:
    failures: int
    before: dict[str, Any]
    after: dict[str, Any]
    report: dict[str, Any]
    children_before: list[str]
    children_after: list[str]
    most_children: int
    survivors: list[int]
    left: list[str]
    seconds: float


def children_of(pid: int) -> list[str]:
    """Return the state of every child of a process: `Z` is a zombie."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == pid:
                found.append(state)
    return found


def answers(process: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


@pytest.fixture(scope="module", params=sampled(FAILURES, min(FAILURES).__eq__))
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    failures: int = request.param
    base = tmp_path_factory.mktemp("counted")
    (base / "tmp").mkdir()
    names = [f"{kind}{number:03}" for kind in "fp" for number in range(failures)]
    bench = write_bench(base / "bench", RUBRIC, names)
    script = HARNESS.format(root=str(Path(__file__).parents[2]), bench=str(bench), tmp=str(base / "tmp"))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(base / "tmp")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    lines = answers(process)
    before = next(lines)["before"]
    children_before = children_of(process.pid)
    started = time.monotonic()
    process.stdin.write("go\n")
    process.stdin.flush()
    assert wait_until(lambda: children_of(process.pid))
    most_children = len(children_of(process.pid))
    told = next(lines)
    seconds = time.monotonic() - started
    result = Seen(
        failures=failures,
        before=before,
        after=told["after"],
        report=told["report"],
        children_before=children_before,
        children_after=children_of(process.pid),
        most_children=most_children,
        survivors=[pid for pid in [*working_below(base), *supervisors_for(base)] if pid != process.pid],
        left=os.listdir(base / "tmp"),
        seconds=seconds,
    )
    process.communicate("done\n", timeout=120)
    assert process.returncode == 0
    return result


def test_every_child_was_counted(seen: Seen) -> None:
    report = seen.report

    assert (report["scored_count"], report["bench_fault_count"]) == (seen.failures, seen.failures)
    assert report["passed_count"] == seen.failures
    details = {
        score["failure_modes"][0]["detail"].split(":")[0] for _, score in report["per_case"][: seen.failures]
    }
    assert details == {"process_leak", "signal", "exit", "stdout"}


def test_no_process_and_no_zombie_is_left(seen: Seen) -> None:
    assert seen.most_children > 0, "nothing was ever seen: the test proves nothing"
    assert seen.children_before == seen.children_after == []
    assert seen.survivors == []


def test_no_descriptor_thread_or_directory_is_left(seen: Seen) -> None:
    assert seen.after == seen.before
    assert seen.left == seen.before["left"] == []


def test_that_many_children_take_no_longer_than_they_should(seen: Seen) -> None:
    assert seen.seconds < 120
