"""A plugin of pytest that says how much time of the processors each file of tests takes.

`make test-costs` loads it. On a busy machine a test takes longer but not much more of the processors, so this
is the figure to compare. It holds what a test computes itself, what its children took, and the commands in
forks, which are children of their server. A process that outlives its parent is not counted.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from tests.support.forked_commands import seconds_of_forks

_NAME = "seconds of a processor"
_LINES = 30
_noted = 0.0


def _taken() -> float:
    times = os.times()
    return sum(times[:4]) + seconds_of_forks()


def pytest_runtest_logstart() -> None:
    """Note what was taken before the first fixture of a test."""
    global _noted  # noqa: PLW0603 - there is one test at a time
    _noted = _taken()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write into each report what its part of the test took; a worker hands it on with the report."""
    global _noted
    report = yield
    before, _noted = _noted, _taken()
    report.user_properties.append((_NAME, _noted - before))
    return report


def by_file(reports: Iterable[Any]) -> Counter[str]:
    """Add up what the tests of each file took."""
    seconds: Counter[str] = Counter()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == _NAME:
                seconds[report.nodeid.partition("::")[0]] += value
    return seconds


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest has no public type
    """Write what all tests took, and the files that took most."""
    stored = terminalreporter.stats.values()
    seconds = by_file(report for reports in stored for report in reports)
    terminalreporter.section("seconds of a processor")
    terminalreporter.write_line(f"{seconds.total():8.1f}  all")
    for file, taken in seconds.most_common(_LINES):
        terminalreporter.write_line(f"{taken:8.1f}  {file}")
