"""Runs commands in forks of `command_server.py`, one server per worker and set of Python's flags.

Most tests of a command are about what it does, and not about its start; those need no new interpreter each.
"""

import contextlib
import io
import json
import os
import select
import signal
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

HARMLESS = frozenset(
    {
        *("PYTEST_CURRENT_TEST", "TMPDIR", "PATH", "CODEGENIE_DEBUG", "CODEGENIE_EVAL_BENCH_ROOT"),
        *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"),
    }
)
"""Variables that a command reads itself, after everything is imported. No other may differ in a fork."""


_SECONDS: list[float] = []


def seconds_of_forks() -> float:
    """Return the time of the processors that the forks of this process took, with their children."""
    return sum(_SECONDS)


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
        return ForkedCommand(argv, ours)

    def stop(self) -> None:
        """Hang up, which ends the server."""
        self._socket.close()


class ForkedCommand:
    """A command that runs in a fork. Its methods do what those of `subprocess.Popen` do."""

    def __init__(self, argv: Sequence[str], report: int) -> None:
        self._argv = list(argv)
        self._report = open(report, "rb", 0)  # noqa: SIM115 - until the command has ended
        self.pid = int(self._report.readline())
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended; the server reaps it."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the command."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code, or None if the command still runs."""
        return self._code if self._code is not None or not self._has_ended(0) else self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once there is one."""
        if self._code is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self._argv, timeout or 0.0)
            with self._report:
                code, seconds = self._report.readline().split()
            self._code = int(code)
            _SECONDS.append(float(seconds))
        return self._code

    def _has_ended(self, timeout: float | None) -> bool:
        polled = select.poll()
        polled.register(self._report, select.POLLIN)
        return bool(polled.poll(None if timeout is None else timeout * 1000))


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
