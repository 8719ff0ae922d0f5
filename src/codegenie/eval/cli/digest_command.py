"""`codegenie eval digest`: compare the bytes of each case with its entry in cases/digests.yaml."""

import json
from collections import Counter
from collections.abc import Sequence

import click

from codegenie.eval.bench.digest_list import CaseDigest, digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.cli.ending import benches_until_signal
from codegenie.eval.cli.settings import bench_root_option, json_option
from codegenie.eval.errors import (
    BenchCaseDigestMismatch,
    DigestManifestInvalid,
    SettingsInvalid,
)

_STALE, _INCOMPLETE = BenchCaseDigestMismatch.exit_code, DigestManifestInvalid.exit_code


@click.command("digest")
@click.argument("task_class")
@bench_root_option
@click.option("--write", is_flag=True, help="Write new digests to cases/digests.yaml.")
@json_option
def command(task_class: str, bench_root: Sequence[str], write: bool, as_json: bool) -> int:
    """Compare every case of TASK_CLASS with its digest, or write the digests.

    Exits with 0 when all are current, 3 when one is stale, 2 when one is missing or extra.
    """
    with benches_until_signal(bench_root) as benches:
        statuses = _statuses(task_class, benches, write=write)
    _show(statuses, written=write, as_json=as_json)
    found = {entry.status for entry in statuses}
    if write or found <= {"current"}:
        return 0
    return _STALE if "stale" in found else _INCOMPLETE


def _statuses(task_class: str, benches: Benches, *, write: bool) -> tuple[CaseDigest, ...]:
    if write and benches.is_shipped(task_class):
        raise SettingsInvalid(
            f"{task_class!r} is shipped with codegenie, and its digests are not written",
            hint="--write is for a bench of your own; --bench-root says where it lies",
        )
    loaded = load_task_class(task_class, bench_root=benches.roots_of(task_class))
    statuses = digest_statuses(loaded)
    if write:
        write_digests(loaded, statuses)
    return statuses


def _show(statuses: Sequence[CaseDigest], *, written: bool, as_json: bool) -> None:
    if as_json:
        cases = [
            {
                "case_id": entry.case_id,
                "status": entry.status,
                "expected": entry.expected,
                "computed": entry.computed,
            }
            for entry in statuses
        ]
        click.echo(
            json.dumps({"schema": "codegenie.eval.digest/1", "written": written, "cases": cases}, indent=2)
        )
        return
    for entry in statuses:
        if entry.status != "current":
            click.echo(f"{entry.status:8} {ascii(entry.case_id)[1:-1]}")
    counts = Counter(entry.status for entry in statuses)
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    click.echo(f"{summary}; cases/digests.yaml is written" if written else summary)
    if not written and counts.keys() - {"current"}:
        click.echo("look at what changed; if the change is intended, run this again with --write")
