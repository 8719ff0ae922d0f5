"""`python -m codegenie` and the `codegenie` command."""

import atexit
import os
import sys
from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Run one command and leave with its exit code."""
    # pydantic reads the metadata of every installed package to find plugins: 50 ms of a command, and code of
    # others in the process that judges. A program that uses `codegenie.eval` decides this for itself.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        # Inside the `try`: the import takes a tenth of a second, and Ctrl-C must print no traceback then.
        from codegenie.eval.cli import run_command_line

        code = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process. Every stream is flushed by now, and every directory of ours removed.

    An interpreter that ends by itself first takes apart all that it imported, which is 90 ms of `list`.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to call what was registered
    os._exit(code)


if __name__ == "__main__":
    main()
