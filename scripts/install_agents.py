"""Install the real agent programs that `make test-agents` drives, outside the repository.

They go to CODEGENIE_AGENTS_DIR, or else to `codegenie-agents` in the cache directory of the user. A program
is installed once for each version. npm and pip decide where they fetch from; no address stands here.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegenie.eval.suts.agent_spec.reading import preset
from scripts.locks import ROOT

PINS = ROOT / "scripts" / "agents.toml"
DIRECTORY_VARIABLE = "CODEGENIE_AGENTS_DIR"
INSTALL_SECONDS = 1800
VERSION_SECONDS = 120
_LAST_LINES = 3
# It is written last, so a directory without it was not finished.
_FINISHED = "installed"


class NotInstalled(Exception):  # noqa: N818 - the end of an attempt, with its reason
    """A program is not to be had here; the text says why."""


@dataclass(frozen=True)
class Pinned:
    """One program of the pins."""

    name: str
    version: str
    models: tuple[str, ...]
    classes: tuple[str, ...]
    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of its command, as the preset says."""
        return preset(self.name).command[0]

    def home(self, directory: Path) -> Path:
        """Return the directory of this version."""
        return directory / f"{self.name}-{self.version}"

    def bin(self, directory: Path) -> Path:
        """Return the directory of its command."""
        return self.home(directory) / ("node_modules/.bin" if self.npm else "bin")


def pinned_programs(path: Path) -> tuple[Pinned, ...]:
    """Read the pins."""
    tables: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Pinned(
            name,
            table["version"],
            tuple(table["models"]),
            tuple(table["classes"]),
            npm=tuple(table.get("npm", ())),
            pip=tuple(table.get("pip", ())),
        )
        for name, table in tables.items()
    )


def agents_directory(environment: Mapping[str, str]) -> Path:
    """Return where programs are installed. Root's own cache is closed to the user of a box."""
    if environment.get(DIRECTORY_VARIABLE):
        return Path(environment[DIRECTORY_VARIABLE]).absolute()
    if os.geteuid() == 0:
        return Path("/var/cache/codegenie-agents")
    cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME', '')}/.cache"
    return Path(cache).absolute() / "codegenie-agents"


def installed(pinned: Pinned, directory: Path) -> Path:
    """Return the program, installed if it was not there. Raises NotInstalled."""
    home = pinned.home(directory)
    if not (home / _FINISHED).exists():
        shutil.rmtree(home, ignore_errors=True)
        try:
            home.mkdir(parents=True)
        except OSError as error:
            raise NotInstalled(f"cannot make {home}: {error.strerror}") from None
        _install(pinned, home)
        (home / _FINISHED).touch()
    program = pinned.bin(directory) / pinned.program
    said = _run([str(program), *preset(pinned.name).version_command[1:]], home, VERSION_SECONDS)
    if pinned.version not in said:
        raise NotInstalled(f"{pinned.program} does not state version {pinned.version}: {said[:80]!r}")
    return program


def _install(pinned: Pinned, home: Path) -> None:
    if pinned.npm:
        if shutil.which("npm") is None:
            raise NotInstalled("there is no npm here; on Debian: apt-get install nodejs npm")
        (home / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        _run(["npm", "install", "--no-fund", "--no-audit", *pinned.npm], home, INSTALL_SECONDS)
    if pinned.pip:
        _run([sys.executable, "-m", "venv", "--clear", str(home)], home, INSTALL_SECONDS)
        pip = [
            f"{home}/bin/python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "install",
            "-q",
        ]
        _run([*pip, *pinned.pip], home, INSTALL_SECONDS)


def _run(argv: list[str], directory: Path, seconds: float) -> str:
    """Return what a command printed. Raises NotInstalled with its last lines if it failed."""
    try:
        done = subprocess.run(
            argv,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{Path(argv[0]).name}: {error}") from None
    if done.returncode:
        last = " / ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise NotInstalled(f"{Path(argv[0]).name} ended with {done.returncode}: {last}")
    return done.stdout
