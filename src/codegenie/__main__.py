"""`python -m codegenie` and the `codegenie` command."""

import sys

from codegenie.eval.cli import run_command_line


def main() -> None:
    """Run one command and leave with its exit code."""
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
