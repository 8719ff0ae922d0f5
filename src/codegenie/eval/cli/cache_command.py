"""`codegenie eval cache prune`: remove stored outcomes."""

import math
from pathlib import Path

import click

from codegenie.eval.cache import OutcomeStore
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import cache_option, json_option
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.wording import counted


@click.group("cache")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look after the outcome store."""
    # click looks for the settings of a subcommand under its name.
    ctx.default_map = {"prune": ctx.default_map or {}}


@command.command("prune")
@cache_option
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), default=30, show_default=True, metavar="DAYS"
)
@json_option
def prune(cache: str, days: float, as_json: bool) -> None:
    """Remove outcomes that are older than some days. What is removed is measured again when it is needed."""
    if not math.isfinite(days):
        raise click.UsageError("--older-than is a number of days")
    try:
        removed, kept = OutcomeStore(Path(cache)).prune(days * 86_400)
    except OSError as error:
        raise HarnessFailure(f"cannot prune the outcome store: {error.strerror}", where=cache) from None
    if as_json:
        say_json("codegenie.eval.cache/1", {"removed": removed, "kept": kept})
    else:
        say([f"removed {counted(removed, 'outcome')}, kept {kept}"])
