"""Coverage counts the branches that tests take, and never those of a command that a test starts."""

import subprocess
import sys
from pathlib import Path

from tests.hostile.engine.stage import unmeasured

ROOT = Path(__file__).resolve().parents[2]

# As `make test-all` measures a worker, by the settings of the project.
MEASURED_WORKER = """\
import os
import coverage
from tests.support.measuring import measure_no_children, not_measured

measuring = coverage.Coverage(config_file="pyproject.toml", data_file=None)
measuring.start()
print("COVERAGE_PROCESS_CONFIG" in os.environ)
measure_no_children()
with not_measured():
    print(measuring._started)
print(measuring._started, "COVERAGE_PROCESS_CONFIG" in os.environ)
"""

STARTS = """\
import subprocess, sys

def test_it():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass"])
"""


def test_a_module_that_is_not_measured_leaves_the_commands_of_the_next_unmeasured() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED_WORKER],
        cwd=ROOT,
        env={**unmeasured(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )

    assert done.stdout.splitlines() == ["True", "False", "True False"]


def test_what_a_test_and_its_children_take_of_the_processors_is_told_by_file(tmp_path: Path) -> None:
    (tmp_path / "test_starting.py").write_text(STARTS, encoding="utf-8")
    (tmp_path / "test_waiting.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    # Its temporary directories lie below our own, and not among those of whole suites.
    alone = ("-c", "/dev/null", "--rootdir", ".", f"--basetemp={tmp_path / 'tests'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *alone, "-p", "tests.support.costs"],
        cwd=tmp_path,
        env={**unmeasured(), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    lines = [line.split() for line in done.stdout.splitlines() if line[:1] == " "]
    assert [name for _, name in lines] == ["all", "test_starting.py", "test_waiting.py"]
    everything, starting, waiting = (float(seconds) for seconds, _ in lines)
    assert starting >= 0.3
    assert starting > waiting
    assert everything >= starting
