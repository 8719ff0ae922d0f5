"""Runs a file as `python FILE` would, in an interpreter that is there already, to the end of the process.

What a program can see of the difference is written down in docs/reference/isolation.md and held by a test.
"""

import atexit
import io
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import NoReturn

_FLAGS = ("-s", "-S", "-B")
_FLUSH_FAILED = 120


def arguments(interpreter: str, program: str) -> list[str]:
    """Return the command line of a fresh interpreter that runs the program."""
    return [interpreter, *_FLAGS, program]


def run_here(interpreter: str, program: str, path: list[str]) -> NoReturn:
    """Run the program of the working directory in this process, and end it as the program says."""
    _new_streams()
    file = os.path.join(os.getcwd(), program)
    sys.argv = [program]
    sys.orig_argv = arguments(interpreter, program)
    sys.path[:] = [os.path.dirname(file), *path]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"codegenie", "__main__"}]:
        del sys.modules[name]
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __builtins__=sys.modules["builtins"], __annotations__={}, __file__=file, __cached__=None
    )
    main.__loader__ = SourceFileLoader("__main__", file)
    sys.modules["__main__"] = main
    status = _ended(_attempt(lambda: _execute(main, file)), file)
    main.__dict__.clear()  # what is to be deleted at the end is deleted now, and may still write
    _leave(status)


def _attempt(work: Callable[[], object]) -> BaseException | None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, an interpreter would print it and go on
        return error
    return None


def _execute(main: types.ModuleType, file: str) -> None:
    with open(file, "rb") as opened:
        source = opened.read()
    exec(compile(source, file, "exec"), main.__dict__)  # noqa: S102 - in a process that can hurt nobody


def _ended(error: BaseException | None, file: str) -> int:
    """Return the status that an interpreter would leave with, and print what it would."""
    if error is None:
        return 0
    return _status(error.code) if isinstance(error, SystemExit) else _reported(error, file)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
    _flush(sys.stdout)
    print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _reported(error: BaseException, file: str) -> int:
    """Print a traceback that begins with the program's own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        _end_streams()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _leave(status: int) -> NoReturn:
    """Do what an interpreter does at its end, and what a program can see of it."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way to wait for threads as the interpreter does
    atexit._run_exitfuncs()  # noqa: SLF001 - nor to call what was registered
    os._exit(_end_streams() or status)


def _end_streams() -> int:
    flushed = [_flush(sys.stdout), _flush(sys.stderr)]
    return 0 if flushed[0] else _FLUSH_FAILED


def _flush(stream: object) -> bool:
    if stream is None or getattr(stream, "closed", False):
        return True
    return _attempt(stream.flush) is None  # type: ignore[attr-defined]


def _new_streams() -> None:
    """Make the standard streams anew: those that we have belong to other descriptors, and may hold bytes."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.__stdin__)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.__stdout__)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.__stderr__)  # type: ignore[misc]


def _stream(descriptor: int, mode: str, like: "io.TextIOWrapper | None") -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    name = ("<stdin>", "<stdout>", "<stderr>")[descriptor]
    raw.name = name
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "strict" if like is None else like.errors
    stream = io.TextIOWrapper(
        buffer, "utf-8", errors, newline="\n", line_buffering=name == "<stderr>", write_through=False
    )
    stream.mode = mode  # type: ignore[misc]
    return stream
