"""What every test shares: no run writes its log into the working tree, and coverage is measured once."""

import os
from pathlib import Path

import coverage
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Have the tests measured, and not the commands that they start.

    A measured command takes a third of a second longer, and there are thousands. The process that only hands
    out tests keeps the variable, because its workers are measured by it.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


def pytest_sessionfinish() -> None:
    """Write down what was measured: a worker that is slow to end after this is killed."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.save()


@pytest.fixture(autouse=True)
def _own_log(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory: Path = tmp_path_factory.mktemp("log")
    monkeypatch.setattr("codegenie.eval.runner.DEFAULT_OUT_DIR", str(directory))
