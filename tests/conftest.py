"""What every test shares: no log in the working tree, coverage that is measured once, commands in forks."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.support.commands import environment
from tests.support.forked_commands import SERVERS


def pytest_configure(config: pytest.Config) -> None:
    """Have the tests measured, and not the commands that they start.

    A measured command takes a third of a second longer, and there are thousands. The process that only hands
    out tests keeps the variable, because its workers are measured by it.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
        SERVERS.allow(environment())


def pytest_sessionfinish() -> None:
    """Write down what was measured: a worker that is slow to end after this is killed."""
    SERVERS.stop()
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.save()


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[None]:
    """Measure no branches in the tests of a module."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.stop()
    yield
    if measuring is not None:
        measuring.start()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a path for the log of each test. A run makes the directory: most tests run nothing."""
    directory = tmp_path_factory.mktemp("logs")
    return (directory / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_log(logs: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegenie.eval.runner.DEFAULT_OUT_DIR", str(next(logs)))
