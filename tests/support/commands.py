"""Starts the real command line in a process of its own, as a user would, and agents for it to measure."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import codegenie
from tests.support.benches import TASK_CLASS
from tests.support.forked_commands import SERVERS, ForkedCommand, run_in_fork

Started = ForkedCommand | subprocess.Popen[bytes]

_SECONDS = 240
SOURCES = str(Path(codegenie.__file__).parents[1])

_AGENT = """\
import time


def solve(case):
    with open({calls!r}, "a", encoding="utf-8") as file:
        file.write(case.case_id + "\\n")
    time.sleep({seconds})
    return {{"answer": f"it is {{case.case_id}}"}}
"""


def environment(**more: str) -> dict[str, str]:
    """Return our environment, in which a child finds these sources."""
    return {**os.environ, "PYTHONPATH": SOURCES, **more}


def user_argv(*arguments: str) -> list[str]:
    """Return the command line of `codegenie eval` in exactly these words."""
    return [sys.executable, "-m", "codegenie", "eval", *arguments]


def eval_argv(*arguments: str) -> list[str]:
    """Return the command line of `codegenie eval`. A Python agent of these tests runs without a box."""
    return user_argv(*without_a_box(*arguments))


def without_a_box(*arguments: str) -> tuple[str, ...]:
    """Let a Python agent run as a plain process: those of most tests write into files of the host.

    A test of agents in boxes says so with --sut-isolation, or uses the words of a user.
    """
    names_python = any(each.startswith("python:") for each in arguments)
    if arguments[:1] != ("run",) or not names_python or "--sut-isolation" in arguments:
        return arguments
    return (*arguments, "--sut-isolation", "subprocess")


def run_argv(*arguments: str) -> list[str]:
    """Return the command that measures the agent of `write_agent` on the bench in `bench/`."""
    return eval_argv("run", TASK_CLASS, "--sut", "python:agent:solve", "--quiet", *arguments)


def call(
    argv: list[str], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: in a fork if that is the same, and else in a new process."""
    env = env or environment()
    server = SERVERS.server_for(argv, env)
    return call_anew(argv, cwd, env) if server is None else run_in_fork(server, argv, cwd, env, _SECONDS)


def start(argv: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> Started:
    """Start a command whose words are not read, for a test that ends it; in a fork as `call` does."""
    env = env or environment()
    server = SERVERS.server_for(argv, env)
    with open(os.devnull, "rb+", 0) as nowhere:
        if server is not None:
            return server.start(argv, cwd, env, [nowhere.fileno()] * 3)
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=nowhere, stdout=nowhere, stderr=nowhere)


def call_anew(
    argv: list[str], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a new process."""
    return subprocess.run(
        argv, cwd=cwd, env=env or environment(), capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the one document that a command with --json printed."""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def write_agent(directory: Path, seconds: float = 0.0) -> Path:
    """Write `agent.py`, which answers rightly; returns the file in which it notes whom it was asked about."""
    calls = directory / "calls"
    (directory / "agent.py").write_text(_AGENT.format(calls=str(calls), seconds=seconds), encoding="utf-8")
    return calls


def asked(calls: Path) -> list[str]:
    """Return the cases that the agent was asked about, in order."""
    return calls.read_text(encoding="utf-8").split() if calls.exists() else []


def processes_told(text: str) -> list[int]:
    """Return the processes that have a text in their environment, as far as we may read it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            told = entry.name.isdigit() and text.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if told:
            found.append(int(entry.name))
    return found


def in_private_mounts(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as the root of mounts of its own; nothing that it mounts is seen outside."""
    become_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    argv = ["unshare", *become_root, "--mount", "--propagation", "private", sys.executable, str(program)]
    return call([*argv, *arguments], program.parent)
