"""`codegenie eval demo`: the embedded bench, honest runs first, then what is refused. Offline, no key."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import click

from codegenie.eval.cli.run_command import execute_until_signal
from codegenie.eval.cli.settings import json_option
from codegenie.eval.errors import BenchCaseDigestMismatch, HarnessFailure
from codegenie.eval.models import BenchRunReport
from codegenie.eval.reporting.terminal import floor3, render_report
from codegenie.eval.runner import Runner
from codegenie.eval.suts.specs import SutRequest, open_sut

_TASK_CLASS = "dependency-pin"
_TOUCHED_CASE = "requests-2-31-0"


def embedded_benches() -> Path:
    """Return where the shipped benches lie: in the wheel, or beside the sources of a checkout."""
    package = Path(__file__).parents[1]
    for place in (package / "_bench", package.parents[2] / "bench"):
        if (place / _TASK_CLASS).is_dir():
            return place
    raise HarnessFailure("the embedded bench is missing", where=str(package), hint="install codegenie again")


def _run(bench_root: Path, spec: str) -> BenchRunReport:
    plan = Runner().plan(task_class_name=_TASK_CLASS, bench_root=bench_root)
    sut = open_sut(SutRequest(spec), plan)
    report, signal_code = asyncio.run(execute_until_signal(plan, sut, quiet=True))
    if signal_code:
        click.echo("codegenie: interrupted", err=True)
        raise click.exceptions.Exit(signal_code)
    return report


def _refused_after_edit(bench_root: Path) -> BenchCaseDigestMismatch:
    """Change one byte of an answer and expect the plan to be refused before any agent is asked."""
    answer = bench_root / _TASK_CLASS / "cases" / _TOUCHED_CASE / "expected" / "answer.json"
    raw = bytearray(answer.read_bytes())
    raw[-2] ^= 1
    answer.write_bytes(raw)
    try:
        Runner().plan(task_class_name=_TASK_CLASS, bench_root=bench_root)
    except BenchCaseDigestMismatch as refusal:
        return refusal
    raise RuntimeError("an edited case was taken")


@click.command("demo")
@json_option
def command(as_json: bool) -> None:
    """Run the embedded bench and show what is refused."""

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    with tempfile.TemporaryDirectory(prefix="codegenie-demo-") as temporary:
        bench_root = Path(temporary) / "bench"
        shutil.copytree(embedded_benches(), bench_root)
        say("1. An agent that knows every answer: what the bench can show at best.\n")
        oracle = _run(bench_root, "oracle")
        say("\n".join(render_report(oracle)))
        say(
            f"\n   Perfect, and still no 1.0: {oracle.units} units certify"
            f" {floor3(oracle.certified_lower_95)}. More would need more cases.\n"
        )
        say("2. An agent that does nothing: what the bench gives away.\n")
        null = _run(bench_root, "null")
        say("\n".join(render_report(null)))
        say("\n3. One byte of an expected answer is changed, its digest is not.\n")
        refusal = _refused_after_edit(bench_root)
        say(f"   exit {refusal.exit_code}: {refusal.message}")
        say("\nNext: codegenie eval run dependency-pin --sut python:your_module:your_agent")
    if as_json:
        document = {
            "schema": "codegenie.eval.demo/1",
            "oracle": oracle.model_dump(mode="json"),
            "null": null.model_dump(mode="json"),
            "refused": {
                "type": type(refusal).__name__,
                "case_id": refusal.case_id,
                "exit_code": refusal.exit_code,
            },
        }
        click.echo(json.dumps(document, indent=2))
