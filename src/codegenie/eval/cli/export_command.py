"""`codegenie eval export`: one run as one file that a third party can verify."""

import shlex
from pathlib import Path

import click

from codegenie.eval.cli.ending import log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.log.bundle import export_run
from codegenie.eval.log.reading import verify_log
from codegenie.eval.system.clock import SystemClock


@click.command("export")
@click.argument("run")
@out_option
@click.option("-o", "target", required=True, metavar="FILE", help="The bundle to write.")
@json_option
def command(run: str, out: str, target: str, as_json: bool) -> None:
    """Pack RUN, the whole log and its artefacts into FILE. `verify --out FILE` checks it anywhere."""
    with log_until_signal(Path(out)) as directory:
        log = verify_log(directory, SystemClock())
        entry = log.find(run)
        export_run(log, entry, Path(target))
    if as_json:
        document = {"run": entry.run_id, "file": target, "chain_head": log.hashes[-1]}
        say_json("codegenie.eval.export/1", document)
        return
    check = f"codegenie eval verify --out {shlex.quote(target)} --expect-head {log.hashes[-1]}"
    say([f"{target} holds run {entry.run_id}", f"check it with: {check}"])
