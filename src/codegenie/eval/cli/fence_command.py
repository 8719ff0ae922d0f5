"""`codegenie eval fence`: find what is wrong in benches without running any of them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import configured_bench_roots, json_option
from codegenie.eval.errors import SettingsInvalid, TaskClassNotFound
from codegenie.eval.fence import RULES, FenceReport, fix_classes, inspect_paths
from codegenie.eval.fence.formats import (
    github_lines,
    human_lines,
    json_document,
    rule_document,
    rule_lines,
    sarif_document,
)
from codegenie.eval.fence.targets import class_around
from codegenie.eval.planning import DEFAULT_BENCH_ROOT
from codegenie.eval.sanitising import printable

_FOUND = 1
_FORMATS = ("human", "json", "sarif", "github")


@click.command("fence")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="How findings are printed.  [default: human]"
)
@click.option("--explain", metavar="RULE", help="Explain a rule, and check nothing.")
@click.option("--fix", is_flag=True, help="Repair what a program can repair, and check again.")
@json_option
def command(paths: Sequence[str], form: str | None, explain: str | None, fix: bool, as_json: bool) -> int:
    """Check benches for mistakes and risks, without running them.

    A PATH is a bench root, a task class, or a file in one; without any, the configured bench root. Exits
    with 0 when nothing or only warnings are found, 1 when an error is, 2 when there is nothing to check.
    """
    if as_json and form not in {None, "json"}:
        raise SettingsInvalid(f"--json and --format {form} exclude each other", hint="give one of them")
    chosen = "json" if as_json else form or "human"
    if explain is not None:
        return _explain(explain, as_json=chosen == "json")
    given = paths or _default_paths()
    report = inspect_paths(given)
    fixed: tuple[str, ...] = ()
    if fix:
        fixed = fix_classes(report.classes)
        report = inspect_paths(given) if fixed else report
    _show(report, fixed, chosen)
    return _FOUND if any(finding.severity == "error" for finding in report.findings) else 0


def _default_paths() -> Sequence[str]:
    if class_around(Path.cwd()):
        raise SettingsInvalid(
            "the working directory lies in a task class, and settings are not read from there",
            hint="name a PATH, or change to the directory above the bench root",
        )
    roots = configured_bench_roots()
    if roots == [DEFAULT_BENCH_ROOT] and not os.path.lexists(DEFAULT_BENCH_ROOT):
        raise TaskClassNotFound(
            f"there is no {DEFAULT_BENCH_ROOT}/ to check",
            where=os.getcwd(),
            hint="name a PATH; the benches that codegenie ships were checked before they were shipped",
        )
    return roots


def _explain(rule_id: str, *, as_json: bool) -> int:
    if rule_id not in RULES:
        raise SettingsInvalid(
            f"there is no rule {printable(rule_id)[:40]!r}", hint=f"the rules are {', '.join(RULES)}"
        )
    if as_json:
        say_json("codegenie.eval.rule/1", rule_document(rule_id))
    else:
        say(rule_lines(rule_id))
    return 0


def _show(report: FenceReport, fixed: Sequence[str], form: str) -> None:
    if form == "json":
        say_json("codegenie.eval.fence/1", json_document(report, fixed))
    elif form == "sarif":
        click.echo(json.dumps(sarif_document(report), indent=2))
    else:
        say((human_lines if form == "human" else github_lines)(report, fixed))
