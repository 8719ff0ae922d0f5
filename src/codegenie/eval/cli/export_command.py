"""`codegenie eval export`: one run as one file that a third party can verify."""

import shlex
from pathlib import Path

import click

from codegenie.eval.bundles import export_run, opened_log
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.inspection import verify_log
from codegenie.eval.runner import SystemClock


@click.command("export")
@click.argument("run")
@out_option
@click.option("-o", "target", required=True, metavar="FILE", help="The bundle to write.")
@json_option
def command(run: str, out: str, target: str, as_json: bool) -> None:
    """Pack RUN, the chain up to it and its artefacts into FILE. `verify --out FILE` checks it anywhere."""
    with opened_log(Path(out)) as directory:
        log = verify_log(directory, SystemClock())
        entry = log.find(run)
        export_run(log, entry, Path(target))
    if as_json:
        document = {"run": entry.run_id, "file": target, "chain_head": entry.finished_hash}
        say_json("codegenie.eval.export/1", document)
        return
    check = f"codegenie eval verify --out {shlex.quote(target)} --expect-head {entry.finished_hash}"
    say([f"{target} holds run {entry.run_id}", f"check it with: {check}"])
