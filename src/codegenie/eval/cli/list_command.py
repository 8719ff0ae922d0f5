"""`codegenie eval list`: which task classes there are, and what is wrong with those that do not load."""

import json
from collections.abc import Sequence
from typing import Any

import click

from codegenie.eval.cli.settings import bench_root_option, json_option
from codegenie.eval.errors import EvalError
from codegenie.eval.loader import count_cases, load_task_class, task_class_names
from codegenie.eval.sanitising import one_line, printable


def _describe(name: str, bench_root: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": printable(name), "cases": None, "tiers": {}, "problem": None}
    try:
        task_class = load_task_class(name, bench_root=bench_root)
        entry |= {"cases": count_cases(task_class), "tiers": dict(task_class.min_cases_for_promotion)}
    except EvalError as error:
        entry["problem"] = one_line(f"{type(error).__name__}: {error}", 400)
    return entry


@click.command("list")
@bench_root_option
@json_option
def command(bench_root: Sequence[str], as_json: bool) -> None:
    """List the task classes of the bench roots."""
    entries = [_describe(name, bench_root) for name in dict.fromkeys(task_class_names(bench_root))]
    if as_json:
        click.echo(json.dumps({"schema": "codegenie.eval.list/1", "task_classes": entries}, indent=2))
        return
    if not entries:
        click.echo("no task class")
    for entry in entries:
        tiers = ", ".join(f"{tier} {count}" for tier, count in entry["tiers"].items())
        found = entry["problem"] or f"{entry['cases']} cases" + (f"; minimum {tiers}" if tiers else "")
        click.echo(f"{entry['name']}  {found}")
