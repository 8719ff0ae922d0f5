"""Find the Pythons of this machine that a new user of the wheel could have.

It is not enough that a name exists: the shim of a version manager can exist and still refuse to run. So each
candidate is started, and reports which Python it is, where it is installed, and whether it can make a virtual
environment.
"""

import glob
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The last version is not in the classifiers on purpose: the next Python is tried as soon as it exists.
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# Where version managers keep their interpreters: below these directories, one directory for each version.
MANAGED = (".pyenv/versions", ".local/share/uv/python", ".local/share/mise/installs/python")
PROBE_SECONDS = 60
PROBE = (
    "import ensurepip, os, sys, venv;"
    "print('%d.%d' % sys.version_info[:2], os.path.realpath(sys.executable), sys.base_prefix, sep='\\n')"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python that has started: its version, its program and its installation directory."""

    version: str
    program: str
    prefix: str


Start = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def start_here(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Start a program as our own user."""
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        check=False,
    )


def ask(program: str, start: Start = start_here) -> Interpreter | None:
    """Start a program that reports which Python it is; None if it does not run or cannot make a venv."""
    try:
        done = start([program, "-I", "-c", PROBE])
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return Interpreter(*lines) if done.returncode == 0 and len(lines) == 3 else None


def candidates(version: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield possible Pythons of this version: our own, a name on PATH, and those of version managers."""
    yield os.path.realpath(sys.executable)
    yield f"python{version}"
    home = Path(environment.get("HOME", "/nonexistent"))
    places = [Path(environment["PYENV_ROOT"], "versions")] if "PYENV_ROOT" in environment else []
    for place in [*places, *(home / name for name in MANAGED)]:
        # The newest comes first. The program itself reports its version, so a wrong name does no harm. The
        # function of `glob` is used because the method of a path raises if a directory is closed to us.
        yield from sorted(glob.glob(f"{glob.escape(str(place))}/*/bin/python{version}"), reverse=True)


def find(version: str, environment: Mapping[str, str], start: Start = start_here) -> list[Interpreter]:
    """Return every Python of this version that starts, each once, in the order in which they are tried."""
    asked = (ask(program, start) for program in candidates(version, environment))
    return list(dict.fromkeys(found for found in asked if found is not None and found.version == version))
