"""One case passes between the rooms of the harness a bounded number of times."""

import re
import subprocess
import sys

from tests.hostile.engine.table import ROOT

MOST = 500


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "scripts.trace_rooms", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_a_trace_of_one_case_passes_between_rooms_at_most_five_hundred_times() -> None:
    said = trace("--most", str(MOST))

    assert said.returncode == 0, said.stdout + said.stderr
    counts = re.findall(r"from (file to file|room to room): (\d+)", said.stdout)
    assert [name for name, count in counts if int(count) > 100] == ["file to file", "room to room"]


def test_a_trace_with_more_hand_offs_than_allowed_fails() -> None:
    assert trace("--most", "100").returncode == 1
