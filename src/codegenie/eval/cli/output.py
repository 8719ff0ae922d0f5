"""The last step to stdout: one JSON document, or lines in which nothing steers a terminal.

A log or a bundle may come from anybody, and not every text in its records is one that we made printable.
"""

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from codegenie.eval.sanitising import printable


def open_streams() -> None:
    """See to it that there are standard streams and that they take every character.

    A descriptor that the caller closed would be given to the next file that is opened, and then be written to
    as if it were a terminal. A text of a bench must not decide whether a report can be printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(lines: Iterable[str]) -> None:
    """Print lines; of the control characters only tabs are left."""
    click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in lines))


def say_json(schema: str, document: Mapping[str, Any]) -> None:
    """Print the one document of a command, as ASCII."""
    click.echo(json.dumps({"schema": schema, **document}, indent=2))
