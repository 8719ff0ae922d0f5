"""`codegenie eval cache prune`: remove stored outcomes, and journals that no run needs any longer."""

import math
from pathlib import Path

import click

from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import cache_option, json_option, out_option
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.log.reading import prune_journals
from codegenie.eval.sanitising import printable
from codegenie.eval.store.outcomes import OutcomeStore
from codegenie.eval.system.clock import SystemClock
from codegenie.eval.wording import counted

_FATES = {
    "open": "kept, since its run has not finished; the same command resumes it",
    "young": "kept, since it is not old enough to be removed; no open run needs it",
    "removed": "removed, since no open run needed it",
}


@click.group("cache")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Clean up the outcome store."""
    # click looks for the settings of a subcommand under its name.
    ctx.default_map = {"prune": ctx.default_map or {}}


@command.command("prune")
@cache_option
@out_option
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), default=30, show_default=True, metavar="DAYS"
)
@json_option
def prune(cache: str, out: str, days: float, as_json: bool) -> None:
    """Remove outcomes that are older than some days. What is removed is measured again when it is needed.

    Likewise the journals of runs that are not open in the log; those of open runs are named and kept.
    """
    if not math.isfinite(days):
        raise click.UsageError("--older-than is a number of days")
    try:
        journals = prune_journals(Path(out), SystemClock(), days * 86_400)
        removed, kept = OutcomeStore(Path(cache)).prune(days * 86_400)
    except OSError as error:
        where = cache if error.filename is None else str(error.filename)
        raise HarnessFailure(f"cannot prune the store: {error.strerror}", where=where) from None
    if as_json:
        say_json("codegenie.eval.cache/1", {"removed": removed, "kept": kept, "journals": dict(journals)})
    else:
        lines = [f"journal {printable(run_id)}: {_FATES[fate]}" for run_id, fate in journals]
        say([f"removed {counted(removed, 'outcome')}, kept {kept}", *lines])
