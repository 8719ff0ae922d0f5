"""The last step to stdout: one JSON document, or lines without control codes for a terminal.

A log or a bundle may come from an attacker, and we did not make every text in its records printable.
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
    """Make sure that the standard streams exist and accept every character.

    If the caller closed a descriptor, the next file that is opened would get its number, and messages would
    be written into that file. A text of a bench must not decide whether a report can be printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - never closed
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(lines: Iterable[str]) -> None:
    """Print lines; all control characters but tabs are replaced."""
    click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in lines))


def say_json(schema: str, document: Mapping[str, Any]) -> None:
    """Print the one document of a command, as ASCII."""
    click.echo(json.dumps({"schema": schema, **document}, indent=2))
