"""`python -m codegenie` and the `codegenie` command."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run one command and leave with its exit code."""
    try:
        # Inside the `try`: the import takes a tenth of a second, and Ctrl-C must print no traceback then.
        from codegenie.eval.cli import run_command_line

        code = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
