"""What every test shares: no log in the working tree, coverage that is measured once, commands in forks."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import environment
from tests.support.forked_commands import SERVERS
from tests.support.measuring import keep_what_was_measured, measure_no_children, not_measured


def pytest_configure(config: pytest.Config) -> None:
    """Have the tests measured, and not the commands that they start.

    The process that only hands out tests still has its children measured, because these are its workers.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        measure_no_children()
        SERVERS.allow(environment())


def pytest_sessionfinish() -> None:
    """Stop what tests shared, and keep what was measured."""
    SERVERS.stop()
    keep_what_was_measured()


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[None]:
    """Measure no branches in the tests of a module."""
    with not_measured():
        yield


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a path for the log of each test. A run makes the directory: most tests run nothing."""
    directory = tmp_path_factory.mktemp("logs")
    return (directory / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_log(logs: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegenie.eval.runner.DEFAULT_OUT_DIR", str(next(logs)))
