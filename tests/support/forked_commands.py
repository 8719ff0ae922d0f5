"""Runs commands in forks of `command_server.py`, one server per worker and set of Python's flags.

Most tests of a command are about what it does, and not about its start; those need no new interpreter each.
"""

import io
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# It leaves no name behind that the module `__main__` of a command would not have.
_PROGRAM = "import sys; __import__('runpy').run_path(sys.argv[1])['main'](int(sys.argv[2]))"
_SERVER = str(Path(__file__).with_name("command_server.py"))
_CHUNK = 1 << 16

FLAGS = ((), ("-P",))
"""The flags of Python for which there may be a server."""

HARMLESS = frozenset({"PYTEST_CURRENT_TEST", "TMPDIR", "CODEGENIE_DEBUG", "CODEGENIE_EVAL_BENCH_ROOT"})
"""Variables that a command reads itself, after everything is imported. No other may differ in a fork."""


class CommandServer:
    """A process that is forked for every command."""

    def __init__(self, flags: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The process that is started makes the server and ends. The server ends when we hang up.
            subprocess.run(
                [sys.executable, *flags, "-c", _PROGRAM, _SERVER, str(theirs.fileno())],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                check=True,
            )

    def start(
        self, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], streams: Sequence[int]
    ) -> "ForkedCommand":
        """Start `python -m` a module with these three streams."""
        ours, theirs = os.pipe()
        module, *arguments = argv[argv.index("-m") + 1 :]
        request = {
            "argv": list(argv),
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd),
            "env": dict(environment),
        }
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, theirs])
        finally:
            os.close(theirs)
        return ForkedCommand(ours)

    def stop(self) -> None:
        """Hang up, which ends the server."""
        self._socket.close()


class ForkedCommand:
    """A command that runs in a fork: its number, and then its exit code."""

    def __init__(self, report: int) -> None:
        self._report = os.fdopen(report)
        self._pid = int(self._report.readline())

    def kill(self) -> None:
        """Kill the command, which the server then reaps."""
        os.kill(self._pid, 9)

    def wait(self) -> int:
        """Return the exit code as `subprocess` would."""
        with self._report:
            return int(self._report.readline())


def _start(flags: Sequence[str]) -> list[str]:
    return [sys.executable, *flags, "-m", "codegenie"]


def _starts_with(argv: Sequence[str], flags: Sequence[str]) -> bool:
    start = _start(flags)
    return list(argv[: len(start)]) == start


def _decisive(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in HARMLESS}


class Servers:
    """The servers of this process. None is started before `allow`, nor before the first command for it."""

    def __init__(self) -> None:
        self._environment: dict[str, str] | None = None
        self._started: dict[tuple[str, ...], CommandServer] = {}

    def allow(self, environment: Mapping[str, str]) -> None:
        """Run commands in forks from now on, unless their environment differs from this one."""
        self._environment = _decisive(environment)

    def server_for(self, argv: Sequence[str], environment: Mapping[str, str]) -> CommandServer | None:
        """Return the server of a command, or None if a new process is needed or nothing else is allowed."""
        fitting = [flags for flags in FLAGS if _starts_with(argv, flags)]
        if self._environment is None or not fitting or _decisive(environment) != self._environment:
            return None
        (flags,) = fitting
        if flags not in self._started:
            self._started[flags] = CommandServer(flags, self._environment)
        return self._started[flags]

    def stop(self) -> None:
        """Stop every server; commands start anew from now on."""
        while self._started:
            self._started.popitem()[1].stop()
        self._environment = None


SERVERS = Servers()


def run_in_fork(
    server: CommandServer, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and return what `subprocess.run` would."""
    (out, their_out), (err, their_err) = os.pipe(), os.pipe()
    with open(out, "rb", 0) as stdout, open(err, "rb", 0) as stderr:
        try:
            command = server.start(argv, cwd, environment, [0, their_out, their_err])
        finally:
            os.close(their_out)
            os.close(their_err)
        said = _read_all({out: stdout, err: stderr}, time.monotonic() + seconds)
    if said is None:
        command.kill()
        command.wait()
        raise subprocess.TimeoutExpired(list(argv), seconds)
    return subprocess.CompletedProcess(list(argv), command.wait(), _text(said[out]), _text(said[err]))


def _read_all(files: dict[int, io.FileIO], deadline: float) -> dict[int, bytes] | None:
    """Read files to their ends side by side; return None if the time is over before."""
    said = dict.fromkeys(files, b"")
    reading = select.poll()
    for descriptor in files:
        reading.register(descriptor, select.POLLIN)
    left = set(files)
    while left:
        ready = reading.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return None
        for descriptor, _ in ready:
            chunk = files[descriptor].read(_CHUNK)
            said[descriptor] += chunk
            if not chunk:
                reading.unregister(descriptor)
                left.discard(descriptor)
    return said


def _text(said: bytes) -> str:
    """Decode as `subprocess` does for a caller who wants text."""
    return io.TextIOWrapper(io.BytesIO(said)).read()
