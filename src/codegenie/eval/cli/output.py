"""The last step to stdout: one JSON document, or lines in which nothing steers a terminal.

A log or a bundle may come from anybody, and not every text in its records is one that we made printable.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from codegenie.eval.sanitising import printable


def say(lines: Iterable[str]) -> None:
    """Print lines; of the control characters only tabs are left."""
    click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in lines))


def say_json(schema: str, document: Mapping[str, Any]) -> None:
    """Print the one document of a command, as ASCII."""
    click.echo(json.dumps({"schema": schema, **document}, indent=2))
