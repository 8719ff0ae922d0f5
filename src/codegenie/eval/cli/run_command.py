"""`codegenie eval run`: the whole line, from a bench and a system under test to a report."""

import asyncio
import json
import signal
from collections.abc import Sequence

import click

from codegenie.eval.cli.progress import progress_for
from codegenie.eval.cli.settings import bench_root_option, json_option
from codegenie.eval.errors import SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchRunReport, RunOptions, RunPlan
from codegenie.eval.planning import any_of
from codegenie.eval.ports import SutRunner
from codegenie.eval.reporting.terminal import render_report
from codegenie.eval.runner import Runner
from codegenie.eval.suts.specs import SutRequest, open_sut
from codegenie.eval.trial import Stop

_NOT_MEASURED = 4
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@click.command("run")
@click.argument("task_class")
@click.option("--sut", "sut_spec", required=True, metavar="SPEC", help="null, oracle or python:module:attr.")
@bench_root_option
@click.option("--out", metavar="DIR", envvar="CODEGENIE_EVAL_OUT", help="Where records of runs are kept.")
@click.option(
    "--cases", "globs", multiple=True, metavar="GLOB", help="Only these cases; the report is then partial."
)
@click.option(
    "--trials",
    type=click.IntRange(1, LIMITS.trials),
    default=1,
    show_default=True,
    help="Trials of each case.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, LIMITS.concurrency),
    default=2,
    show_default=True,
    envvar="CODEGENIE_EVAL_CONCURRENCY",
    help="Trials under way at once.",
)
@click.option(
    "--timeout", type=float, envvar="CODEGENIE_EVAL_TIMEOUT", help="Lower each case's SUT deadline to this."
)
@click.option(
    "--max-cost-usd", type=float, envvar="CODEGENIE_EVAL_MAX_COST_USD", help="Stop when this is spent."
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", "namespace", "landlock", "subprocess"]),
    default="auto",
    show_default=True,
    envvar="CODEGENIE_EVAL_ISOLATION",
    help="Which isolation class rubrics need.",
)
@click.option("--sut-version", metavar="V", help="Which version of the SUT this is; part of its identity.")
@click.option("--sut-env", "sut_env", multiple=True, metavar="NAME", help="Hand this variable to the SUT.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@json_option
def command(
    task_class: str,
    sut_spec: str,
    bench_root: Sequence[str],
    out: str | None,
    globs: Sequence[str],
    trials: int,
    concurrency: int,
    timeout: float | None,
    max_cost_usd: float | None,
    isolation: str,
    sut_version: str | None,
    sut_env: Sequence[str],
    quiet: bool,
    as_json: bool,
) -> int:
    """Run TASK_CLASS against a system under test and report.

    Exits with 0 whenever a complete report was made, however bad the agent was, and with 4 otherwise.
    """
    options = _options(
        trials=trials,
        concurrency=concurrency,
        timeout_seconds=timeout,
        max_cost_usd=max_cost_usd,
        isolation=isolation,
    )
    request = SutRequest(sut_spec, sut_version, tuple(sut_env))
    plan = Runner().plan(
        task_class_name=task_class,
        bench_root=bench_root,
        out_dir=out,
        case_filter=any_of(globs),
        options=options,
    )
    report, signal_code = asyncio.run(execute_until_signal(plan, open_sut(request, plan), quiet=quiet))
    if as_json:
        document = {"report": report.model_dump(mode="json"), "chain_head": None, "verdict": None}
        click.echo(json.dumps({"schema": "codegenie.eval.run/1", **document}, indent=2))
    else:
        click.echo("\n".join(render_report(report)))
    if signal_code:
        return signal_code
    return 0 if report.complete else _NOT_MEASURED


def _options(**given: object) -> RunOptions:
    from pydantic import ValidationError

    try:
        return RunOptions.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        flag = str(problem["loc"][0]).removesuffix("_seconds").replace("_", "-")
        raise SettingsInvalid(f"--{flag}: {problem['msg']}") from None


async def execute_until_signal(plan: RunPlan, sut: SutRunner, *, quiet: bool) -> tuple[BenchRunReport, int]:
    """Run the plan; a signal ends it in seconds, with everything finished kept, and is the second value."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def end(number: signal.Signals) -> None:
        received.append(_SIGNALS[number])
        stop.everything(f"ended by {number.name}")

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    with progress_for(len(plan.cases) * plan.options.trials, quiet=quiet) as progress:
        report = await Runner(progress=progress).execute(plan, system_under_test=sut, stop=stop)
    return report, received[0] if received else 0
