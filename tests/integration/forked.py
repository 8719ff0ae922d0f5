"""Runs a program of ours in a fork of the test, where it can be looked into and its lines are counted.

Supervisors and children of a SUT are started by path, with an environment built from nothing: no tool follows
them there. In a fork they are the same files, with the same descriptors, and a test may take parts away.
"""

import importlib.util
import json
import os
import runpy
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import coverage

import codegenie.eval

PACKAGE = Path(codegenie.eval.__file__).parent
Change = Callable[[ModuleType], None]
_really_exit = os._exit


def _leave(status: int) -> NoReturn:
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.stop()
        measuring.save()
    _really_exit(status)


def fork(work: Callable[[], object], descriptors: Sequence[int]) -> int:
    """Do `work` in a child whose descriptors 0, 1, 2 and so on are the given ones; return its number."""
    with warnings.catch_warnings():
        # Threads that other tests left behind are no harm: the child uses none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        moved = [os.dup(descriptor) for descriptor in descriptors]
        for target, source in enumerate(moved):
            os.dup2(source, target)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into pytest
        traceback.print_exc()
        sys.stderr.flush()
    _leave(code)


def run_program(name: str, descriptors: Sequence[int]) -> int:
    """Run a program of the package as the main one; return how it exited."""

    def work() -> None:
        os._exit = _leave
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - to its end
        runpy.run_path(str(PACKAGE / name), run_name="__main__")

    return os.waitstatus_to_exitcode(os.waitpid(fork(work, descriptors), 0)[1])


def load_program(name: str) -> ModuleType:
    """Load a program of the package as a module that nobody else sees."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, PACKAGE / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ForkedSupervisor:
    """The harness's side of a supervisor that is a fork of this test."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self._lines = ours.makefile("rb")

    def ask(
        self, source: str, directory: Path, seconds: float = 20.0, streams: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Run a Python program and return what the supervisor says of its end."""
        self.send([sys.executable, "-I", "-S", "-c", source], directory, seconds, streams)
        return self.answer()

    def send(
        self, argv: list[str], directory: Path, seconds: float = 20.0, streams: Sequence[int] = ()
    ) -> None:
        """Send a request."""
        request = {"argv": argv, "cwd": str(directory), "env": {}, "seconds": seconds}
        socket.send_fds(self.socket, [json.dumps(request).encode() + b"\n"], list(streams))

    def answer(self) -> dict[str, Any]:
        """Return the next answer, the word that something was started aside."""
        while True:
            said: dict[str, Any] = json.loads(self._lines.readline())
            if "started" not in said:
                return said

    def hang_up(self) -> None:
        """Close our end without a word, as a harness that dies does."""
        self._lines.close()
        self.socket.close()


@contextmanager
def forked_supervisor(settings: dict[str, Any], change: Change | None = None) -> Iterator[ForkedSupervisor]:
    """Give a supervisor in a fork, with parts exchanged by `change`; it must end in order."""
    ours, theirs = socket.socketpair()
    silent = os.open(os.devnull, os.O_RDWR)

    def work() -> None:
        ours.close()
        module = load_program("system/supervisor_program.py")
        if change is not None:
            change(module)
        defaults: dict[str, Any] = {
            "directory": None,
            "limits": {},
            "renounce_privileges": False,
            "leak_grace_seconds": 0.25,
        }
        sys.argv = ["system/supervisor_program.py", json.dumps({**defaults, **settings})]
        module.main()

    pid = fork(work, [theirs.fileno(), silent, 2])
    theirs.close()
    os.close(silent)
    supervisor = ForkedSupervisor(ours)
    try:
        yield supervisor
    finally:
        supervisor.hang_up()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
