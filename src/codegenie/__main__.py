"""`python -m codegenie` and the `codegenie` command."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run one command and leave with its exit code."""
    try:
        # Inside, for Ctrl-C in the tenth of a second that the import takes is no reason for a traceback.
        from codegenie.eval.cli import run_command_line

        code = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
