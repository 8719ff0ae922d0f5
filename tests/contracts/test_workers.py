"""Tests that share a group share a worker: what `one_machine` promises depends on two packages together."""

import subprocess
import sys
from pathlib import Path

from tests.hostile.engine.stage import unmeasured

SUITE = """\
import pathlib, time
import pytest

GROUPS = [pytest.param(n, marks=pytest.mark.xdist_group(f"g{n % 3}")) for n in range(12)]

@pytest.mark.parametrize("number", GROUPS)
def test_number(number, worker_id):
    time.sleep(0.02)
    pathlib.Path(f"{number % 3}-{worker_id}").touch()
"""


def test_a_group_of_tests_is_run_by_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    # The other plugins that are installed would be imported by each worker, and have no part in it.
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-q",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        "-n",
        "3",
    ]
    done = subprocess.run(
        [*argv, "--dist", "loadgroup", "test_suite.py"],
        cwd=tmp_path,
        env={**unmeasured(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert sorted(path.name[0] for path in tmp_path.glob("?-gw*")) == ["0", "1", "2"]
