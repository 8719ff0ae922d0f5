"""What every test shares: no run of a test writes its log into the working tree."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_log(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory: Path = tmp_path_factory.mktemp("log")
    monkeypatch.setattr("codegenie.eval.runner.DEFAULT_OUT_DIR", str(directory))
