"""A program of its own: imports the command line once, and is forked for every command that a test calls.

A command takes a quarter of a second of processor time to import what it needs, and tests call hundreds. This
program imports the same modules under the same flags as `python -m codegenie` does. It then waits at a
socket: each message asks for one command, and brings the streams of that command and a pipe for what becomes
of it. A fork takes over everything that a new process would have been given, and goes on by the function by
which `python -m` itself goes on.

What stays different from a new process: `cmdline` and `environ` in /proc are those of the server, the parent
is the server, and the commands of one server share the seed of `hash()`.

`forked_commands` is the other side. This file needs the standard library only: a test that imports more here
would import it for every command.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

REQUEST_BYTES = 1 << 20
STREAMS = 3


def preload() -> None:
    """Import what commands import."""
    # As codegenie/__main__.py does, before pydantic is imported.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    commands = importlib.import_module("codegenie.eval.cli")
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"codegenie.eval.cli.{module.name}")


def remembered() -> list[str]:
    """Name the functions of the package that remember an answer, which a new process would not."""
    modules = [(name, vars(sys.modules[name])) for name in sys.modules if name.startswith("codegenie.")]
    functions = [(f"{name}.{key}", value) for name, values in modules for key, value in values.items()]
    return [name for name, one in functions if hasattr(one, "cache_info") and one.cache_info().currsize]


def serve(requests: socket.socket) -> None:
    """Fork for every message until the other side hangs up; then return."""
    ends: dict[int, tuple[int, int]] = {}
    polled = select.poll()
    polled.register(requests, select.POLLIN)
    while True:
        for ready, _ in polled.poll():
            if ready != requests.fileno():
                polled.unregister(ready)
                _tell_the_end(ready, *ends.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, STREAMS + 1)
            if not message:
                return
            *streams, report = descriptors
            pid = os.fork()
            if pid == 0:
                _become_the_command(json.loads(message), streams)
            for stream in streams:
                os.close(stream)
            watched = os.pidfd_open(pid)
            ends[watched] = (pid, report)
            polled.register(watched, select.POLLIN)
            os.write(report, f"{pid}\n".encode())


def _tell_the_end(watched: int, pid: int, report: int) -> None:
    os.close(watched)
    _, status, used = os.wait4(pid, 0)
    os.write(report, f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}\n".encode())
    os.close(report)


def _become_the_command(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Take over what the request says, and go on as `python -m codegenie` does."""
    try:
        for target, source in enumerate(streams):
            os.dup2(source, target)
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            _reopen(name, mode)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
            _start_anew_if_replaced(request["argv"])
        sys.argv = ["-m", *request["arguments"]]
        sys.orig_argv = request["argv"]
        as_main: Callable[[str], object] = vars(runpy)["_run_module_as_main"]  # what `python -m` calls
        as_main(request["module"])
    except BaseException:  # noqa: BLE001 - nothing may return into the loop of the server
        sys.excepthook(*sys.exc_info())
    os._exit(70)  # a command ends its process itself


def _reopen(name: str, mode: str) -> None:
    """Open a standard stream as Python does at its start; the old one remembers whether it can seek."""
    old: Any = getattr(sys, name)
    unbuffered = old.write_through  # PYTHONUNBUFFERED
    buffering = 0 if unbuffered and mode == "w" else -1
    buffer: Any = open(old.fileno(), f"{mode}b", buffering, closefd=False)  # noqa: SIM115 - to the very end
    raw = getattr(buffer, "raw", buffer)
    raw.name = old.name
    lines = not unbuffered and (old.line_buffering or raw.isatty())
    new: Any = io.TextIOWrapper(
        buffer, old.encoding, old.errors, newline="\n", line_buffering=lines, write_through=unbuffered
    )
    new.mode = mode
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def _start_anew_if_replaced(argv: list[str]) -> None:
    """Start Python anew if the working directory holds a module in the place of one that is imported here."""
    imported = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    if imported.intersection(name.partition(".")[0] for name in os.listdir()):
        os.execv(sys.executable, argv)  # noqa: S606 - a fork is what takes its place


def main(descriptor: int) -> None:
    """Import, check, serve."""
    if os.fork():
        os._exit(0)  # so that no test finds the server among the processes below its own
    requests = socket.socket(fileno=descriptor)
    requests.set_inheritable(False)
    preload()
    if found := remembered():
        sys.exit(f"the import of a command remembers something: {', '.join(found)}")
    # What was imported stays to the end: a fork need not look at it again, and copies fewer pages.
    gc.collect()
    gc.freeze()
    serve(requests)
