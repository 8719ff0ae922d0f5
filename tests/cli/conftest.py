"""Desks to work at: one with a recorded run, made once and copied, and one where nothing was measured yet."""

from pathlib import Path

import pytest

from tests.support.benches import TASK_CLASS
from tests.support.commands import call, eval_argv
from tests.support.proved_once import set_up_and_proved_once
from tests.support.working_directory import Desk, copied, furnish


@pytest.fixture(autouse=True)
def _class_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegenie.eval.isolation.proof._set_up_and_proved", set_up_and_proved_once)


@pytest.fixture(scope="session")
def measured_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("measured")
    furnish(directory)
    agent = ("--sut", "python:agents:right", "--sut-version", "1")
    done = call(eval_argv("run", TASK_CLASS, *agent, "--quiet"), directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def desk(measured_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(copied(measured_directory, tmp_path / "desk"), capsys)


@pytest.fixture
def fresh_desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    directory = tmp_path / "desk"
    directory.mkdir()
    furnish(directory, units=2)
    return Desk(directory, capsys)
