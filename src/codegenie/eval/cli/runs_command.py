"""`codegenie eval runs`: the runs of a log, the newest first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from codegenie.eval.aggregation import UNIT_RULE, units_of
from codegenie.eval.cli.ending import log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.errors import SettingsInvalid
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.system.clock import SystemClock


@click.command("runs")
@click.argument("task_class", required=False)
@out_option
@json_option
def command(task_class: str | None, out: str, as_json: bool) -> None:
    """List the runs of a log or a bundle, the newest first; only those of TASK_CLASS if it is given."""
    with log_until_signal(Path(out)) as directory:
        log = verify_log(directory, SystemClock(), artifacts=False)
        runs = [_described(log, entry) for entry in _chosen(log, task_class)]
    if as_json:
        say_json("codegenie.eval.runs/1", {"runs": runs})
    else:
        say([line for run in runs for line in _lines(run)] or [f"{out} holds no run"])


def _chosen(log: VerifiedLog, task_class: str | None) -> list[RunEntry]:
    entries = [*reversed(log.history.runs.values())]
    if task_class is None:
        return entries
    chosen = [entry for entry in entries if entry.task_class == task_class]
    if not chosen:
        known = ", ".join(sorted({entry.task_class for entry in entries}))
        raise SettingsInvalid(
            f"the log has no run of a task class {task_class!a}",
            where=str(log.directory),
            hint=f"it has runs of {known}" if known else "`codegenie eval run` makes one",
        )
    return chosen


def _described(log: VerifiedLog, entry: RunEntry) -> dict[str, Any]:
    look = entry.look
    units = len(units_of(log.started(entry).cases, UNIT_RULE)) if look is None else look.units
    return {
        "run": entry.run_id,
        "task_class": entry.task_class,
        "agent": entry.agent,
        "state": entry.state,
        "units_passed": None if look is None else look.units_passed,
        "units": units,
        "partial": not entry.whole,
        "started_at": entry.started_at.isoformat(),
        "because": entry.abandoned,
    }


def _lines(run: dict[str, Any]) -> Iterator[str]:
    passed = "-" if run["units_passed"] is None else run["units_passed"]
    started = f"{run['started_at'][:10]} {run['started_at'][11:16]} UTC"
    units = f"{passed} of {run['units']} unit{'' if run['units'] == 1 else 's'}"
    yield f"{run['run']}  {run['state']:9}  {units:16}  {started}"
    partial = " · PARTIAL" if run["partial"] else ""
    because = f" · {run['because']}" if run["because"] else ""
    yield f"  {run['task_class']} · {run['agent']}{partial}{because}"
