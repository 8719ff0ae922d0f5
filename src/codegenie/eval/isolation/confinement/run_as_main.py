"""Runs a file as `python FILE` would, in an interpreter that runs already, to the end of the process.

The differences that a program can see are listed in docs/reference/spawning.md, and a test compares them.
"""

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from typing import TextIO

_FLAGS = ("-s", "-S", "-B")
_OUR_MODULES = {"codegenie", "__main__"}
_WHOLE_FILE = 257  # Py_file_input

_C = ctypes.PyDLL(None)
_C.fopen.restype = ctypes.c_void_p
_RUN_FILE = ctypes.pythonapi.PyRun_FileExFlags
_RUN_FILE.restype = ctypes.py_object
_RUN_FILE.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.py_object,
    ctypes.py_object,
    ctypes.c_int,
    ctypes.c_void_p,
]


def arguments(interpreter: str, program: str) -> list[str]:
    """Return the command line of a fresh interpreter that runs the program."""
    return [interpreter, *_FLAGS, program]


class Program:
    """A file that copies of this process run as the main program.

    All that can be prepared is prepared here, once: each page that a copy changes has to be copied.
    """

    def __init__(self, interpreter: str, name: str, path: list[str]) -> None:
        self._name = name
        self._main = types.ModuleType("__main__")
        self._main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={}, __cached__=None)
        # The modules are hidden but kept alive: to free them would change shared pages, and so copy them.
        names = [name for name in sys.modules if name.partition(".")[0] in _OUR_MODULES]
        self._ours = {name: sys.modules.pop(name) for name in names}
        sys.modules["__main__"] = self._main
        sys.argv = [name]
        sys.orig_argv = arguments(interpreter, name)
        sys.path[:] = ["", *path]
        self._before = sys.__stdin__, sys.__stdout__, sys.__stderr__
        _new_streams()

    def run(self) -> int:
        """Run the file in the working directory, and end the process with the program's exit status.

        Returns the exit status only if the interpreter itself has to report a problem at its end.
        """
        sys.path[0] = os.getcwd()
        main, file = self._main.__dict__, f"{sys.path[0]}/{self._name}"
        main.update(__file__=file, __loader__=SourceFileLoader("__main__", file))
        status = _ended(_attempt(lambda: _execute(main, file)), file)
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits as the interpreter does
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to call what was registered
        if not _flushed():
            return status
        # Objects of the program are deleted now, and their finalizers may still write. An interpreter would
        # then finalize itself, which takes longer than the whole case.
        main.clear()
        gc.collect()
        if not _flushed():
            return status
        os._exit(status)


def _attempt(work: Callable[[], object]) -> BaseException | None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - an interpreter would print any of them and go on
        return error
    return None


def _execute(main: dict[str, object], file: str) -> None:
    """Run the file. The parser reads the file itself, because its messages about a text are different."""
    name = os.fsencode(file)
    opened = _C.fopen(name, b"rb")
    if not opened:
        raise FileNotFoundError(file)
    _RUN_FILE(opened, name, _WHOLE_FILE, main, main, 1, None)


def _ended(error: BaseException | None, file: str) -> int:
    """Return the exit status of an interpreter in this case, and print what it would print."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return _status(error.code)
    _report(_from_the_program(error, file), file)
    if isinstance(error, KeyboardInterrupt):
        _flushed()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
    _attempt(sys.stdout.flush)
    print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _report(error: BaseException, file: str) -> None:
    """Show the exception by `sys.excepthook`; if that hook fails, show both exceptions."""
    problem = _attempt(lambda: sys.excepthook(type(error), error, error.__traceback__))
    if problem is None:
        return
    sys.stderr.write("Error in sys.excepthook:\n")
    _from_the_program(problem, file)
    sys.__excepthook__(type(problem), problem, problem.__traceback__)
    sys.stderr.write("\nOriginal exception was:\n")
    sys.__excepthook__(type(error), error, error.__traceback__)


def _from_the_program(error: BaseException, file: str) -> BaseException:
    """Remove our own frames from a traceback, so that it begins with the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return error.with_traceback(trace)


def _flushed() -> bool:
    """Flush the standard streams; return whether an interpreter would find no problem."""
    problems = [_attempt(partial(_flush, stream)) for stream in (sys.stdout, sys.stderr)]
    return not any(problems)


def _flush(stream: "TextIO | None") -> None:
    if stream is not None and not stream.closed:
        stream.flush()


def _new_streams() -> None:
    """Make new standard streams of the kind that Python uses for files. A copy replaces their descriptors."""
    for descriptor in range(3):
        file = os.memfd_create("stream", os.MFD_CLOEXEC)
        os.dup2(file, descriptor)
        os.close(file)
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
