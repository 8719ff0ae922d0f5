"""`codegenie eval list`: all task classes, and the problem of each one that does not load."""

import json
from collections.abc import Sequence
from typing import Any

import click

from codegenie.eval.bench.loading import count_cases, load_task_class
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.cli.ending import benches_until_signal
from codegenie.eval.cli.settings import bench_root_option, json_option
from codegenie.eval.errors import EvalError
from codegenie.eval.sanitising import one_line, printable
from codegenie.eval.wording import counted


def _describe(name: str, benches: Benches, *, shipped: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": printable(name), "cases": None, "tiers": {}, "problem": None}
    entry["shipped"] = shipped
    try:
        task_class = load_task_class(name, bench_root=benches.roots_of(name))
        entry |= {"cases": count_cases(task_class), "tiers": dict(task_class.min_cases_for_promotion)}
    except EvalError as error:
        entry["problem"] = one_line(f"{type(error).__name__}: {error}", 400)
    return entry


@click.command("list")
@bench_root_option
@json_option
def command(bench_root: Sequence[str], as_json: bool) -> None:
    """List the task classes of the bench roots, and the shipped ones."""
    with benches_until_signal(bench_root) as benches:
        entries = [_describe(name, benches, shipped=shipped) for name, shipped in benches.names().items()]
    if as_json:
        click.echo(json.dumps({"schema": "codegenie.eval.list/1", "task_classes": entries}, indent=2))
    else:
        click.echo("\n".join(map(_line, entries)) or "no task class")


def _line(entry: dict[str, Any]) -> str:
    tiers = ", ".join(f"{tier} {count}" for tier, count in entry["tiers"].items())
    found = entry["problem"] or counted(entry["cases"], "case") + (f"; minimum {tiers}" if tiers else "")
    return f"{entry['name']}  {found}" + ("; shipped with codegenie" if entry["shipped"] else "")
