"""`codegenie eval abandon`: close a run that will not finish, as a failed run that stays in the log."""

from pathlib import Path

import click
from pydantic import ValidationError

from codegenie.eval.cli.ending import log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.errors import SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.abandoning import abandon_run
from codegenie.eval.log.records import RunAbandoned
from codegenie.eval.system.clock import SystemClock


@click.command("abandon")
@click.argument("run")
@click.option(
    "--because", required=True, metavar="TEXT", help="Why the run will not finish; kept in the log."
)
@out_option
@json_option
def command(run: str, because: str, out: str, as_json: bool) -> None:
    """Close RUN, which started and will not finish, as a failed run.

    It stays in the log and counts as a failed look at its agent; only a waiver in the policy file spares it.
    """
    reason = _reason(because)
    if Path(out).is_file():
        raise SettingsInvalid("a bundle is a copy of a log: abandon the run in the log itself", where=out)
    with log_until_signal(Path(out)) as directory:
        run_id, head = abandon_run(directory, run, reason, SystemClock())
    if as_json:
        say_json("codegenie.eval.abandon/1", {"run": run_id, "because": because, "chain_head": head})
        return
    say([f"abandoned        run {run_id}: it counts as failed", f"log head         {head}"])


def _reason(because: str) -> RunAbandoned:
    try:
        return RunAbandoned(because=because)
    except ValidationError:
        raise SettingsInvalid(
            f"--because must be one printable line, not blank, of at most"
            f" {LIMITS.detail_characters} characters"
        ) from None
