"""`codegenie eval doctor`: an answer on every machine, and one that does not contradict itself."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.cli import run_command_line
from codegenie.eval.isolation_proof import REQUIRED_PROBES

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_each_class_is_proved_or_says_why_not_and_what_to_do(room: Path, capsys: Capture) -> None:
    code = run_command_line(["eval", "doctor", "--json"])
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    classes = {entry["isolation_class"]: entry for entry in said["classes"]}
    proved = [name for name, entry in classes.items() if entry["proved"]]

    assert (code, said["schema"]) == (0, "codegenie.eval.doctor/1")
    assert list(classes) == ["namespace", "landlock", "subprocess"]
    assert said["isolation_class"] == said["strongest"] == proved[0]
    assert said["boxes_at_once"].keys() == {"by_processes", "by_open_files", "by_memory"}
    assert said["probes"] == classes[proved[0]]["probes"]
    for name, entry in classes.items():
        blocked = {probe["name"] for probe in entry["probes"] if probe["blocked"]}
        assert entry["proved"] == (entry["why_not"] is None)
        assert blocked >= REQUIRED_PROBES[name] if entry["proved"] else entry["remedies"]
    assert list(room.iterdir()) == []


def test_the_text_says_what_auto_takes_and_on_which_kernel(room: Path, capsys: Capture) -> None:
    assert run_command_line(["eval", "doctor"]) == 0
    said = capsys.readouterr().out

    assert "\nauto takes   " in said
    assert "\nkernel  " in said
    assert "\nlandlock_abi  " in said
    assert "\nagents at once\nprocesses  " in said
    assert list(room.iterdir()) == []
