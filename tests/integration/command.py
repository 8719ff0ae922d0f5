"""Starts `codegenie` as its users do: a process of its own, with its own temporary directory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.commands import call
from tests.support.commands import environment as ours

PROGRAM = (sys.executable, "-m", "codegenie")


def start(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start the command in `directory`, its temporary directory being `directory`/tmp."""
    (directory / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory / "tmp"), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the command to its end; return exit code, stdout and stderr."""
    (directory / "tmp").mkdir(exist_ok=True)
    surroundings = {"TMPDIR": str(directory / "tmp"), **(environment or {})}
    done = call([*PROGRAM, *arguments], directory, ours(**surroundings))
    return done.returncode, done.stdout, done.stderr


def working_below(directory: Path) -> list[int]:
    """Return every process on the machine that was started to work below `directory`."""
    mark = f"TMPDIR={directory}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if mark in environment:
                found.append(int(name))
    return found


def supervisors_for(directory: Path) -> list[int]:
    """Return every supervisor that was told of a run directory below `directory`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                arguments = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"supervisor_program.py" in arguments and str(directory).encode() in arguments:
                found.append(int(name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Wait for something to become true; say whether it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
