"""`codegenie eval cases`: every planned trial of a run with its outcome."""

from collections.abc import Sequence
from pathlib import Path

import click

from codegenie.eval.cli.ending import log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.log.reading import verify_log
from codegenie.eval.log.run_view import view_run
from codegenie.eval.reporting.case_rows import RowFilter, case_rows, render_counts, render_rows
from codegenie.eval.reporting.unfinished_text import next_steps, title
from codegenie.eval.system.clock import SystemClock


@click.command("cases")
@click.argument("run", default="latest")
@out_option
@click.option(
    "--outcome",
    multiple=True,
    metavar="OUTCOME",
    help="Only passed, failed, sut-fault, bench-fault, not-measured or open.",
)
@click.option("--family", multiple=True, metavar="NAME", help="Only cases of this family.")
@click.option("--difficulty", multiple=True, metavar="LEVEL", help="Only easy, medium or hard cases.")
@click.option("--code", multiple=True, metavar="CODE", help="Only trials with this failure code.")
@json_option
def command(
    run: str,
    out: str,
    outcome: Sequence[str],
    family: Sequence[str],
    difficulty: Sequence[str],
    code: Sequence[str],
    as_json: bool,
) -> None:
    """List every planned case and trial of RUN (an id, a beginning of one, or `latest`).

    A filter that is repeated wants any of its values; several filters want all of them.
    """
    wanted = RowFilter(outcome, family, difficulty, code)
    with log_until_signal(Path(out)) as directory:
        clock = SystemClock()
        view = view_run(verify_log(directory, clock, artifacts=False), run, clock)
    started, entry = view.started, view.entry
    wanted.check(started.cases, started.severities)
    planned = case_rows(started.cases, started.trials, view.measured.trials)
    rows = [row for row in planned if wanted.wants(row)]
    if as_json:
        document = {"run": entry.run_id, "task_class": entry.task_class, "agent": entry.agent}
        shown = {"planned": len(planned), "cases": [row.document() for row in rows]}
        notes = {"notes": list(view.measured.notes)}
        say_json("codegenie.eval.cases/1", {**document, "state": entry.state, **shown, **notes})
        return
    say(
        [
            title(entry, started),
            *render_rows(rows, started.trials),
            render_counts(rows, len(planned)),
            *(f"note: {note}" for note in view.measured.notes),
            *(f"next: {step}" for step in next_steps(entry)),
        ]
    )
