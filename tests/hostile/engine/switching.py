"""Turns one defense off in a copy of the production code, and plays an attack there.

A copy, because the harness has no switch that an attacker could find: a defense that can be turned off in
production is none (ADR-0018). The edits are exact: a switch whose place has moved fails instead of doing
nothing.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.engine.stage import Outcome, unmeasured
from tests.hostile.engine.table import ROOT, SOURCE, Scenario, Switch

# Far more than the slowest attack takes, and what a hanging one is given before its harm is certain.
PATIENCE_SECONDS = 240.0
HANG_SECONDS = 5.0


@dataclass(frozen=True)
class SwitchedSource:
    """A copy of the package with one defense less."""

    path: Path

    def environment(self) -> dict[str, str]:
        """Return our environment, in which a child finds the copy before the real package."""
        return {**unmeasured(), "PYTHONPATH": os.pathsep.join([str(self.path), str(ROOT)])}


def switched_source(switch: Switch | None, directory: Path) -> SwitchedSource:
    """Copy the package below `directory`, without the defense of `switch`."""
    package = directory / "codegenie"
    shutil.copytree(SOURCE.parent, package)
    for edit in () if switch is None else switch.edits:
        file = package / "eval" / edit.file
        text = file.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{switch and switch.name}: {edit.file} matches {text.count(edit.old)} times")
        file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()
    return SwitchedSource(directory)


def play_without_defense(scenario: Scenario, switch: Switch, directory: Path) -> Outcome:
    """Play an attack in a process of its own that runs the switched copy."""
    source = switched_source(switch, directory / "source")
    room = directory / "room"
    room.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.engine.play", scenario.surface, scenario.name, str(room)],
        cwd=ROOT,
        env=source.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=HANG_SECONDS if scenario.hangs else PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome("no end", f"still busy after {HANG_SECONDS:g} s" if scenario.hangs else None)
    if process.returncode != 0:
        # A crash that loses a report is a harm of its own; only the attack can say so, and it did not.
        return Outcome(f"crashed: {stderr.strip().splitlines()[-1:]}")
    answer = json.loads(stdout)
    if not answer["package"].startswith(str(source.path)):
        raise RuntimeError("the attack met the real package")
    return Outcome(answer["met"], answer["harm"])
