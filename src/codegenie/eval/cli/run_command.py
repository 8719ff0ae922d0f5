"""`codegenie eval run`: all steps from a bench and a system under test to a report."""

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import click

from codegenie.eval.aggregation import mean_over_units
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.cli.cases_from import CaseChoice, chosen_cases
from codegenie.eval.cli.ending import Ended, benches_until_signal
from codegenie.eval.cli.progress import progress_for
from codegenie.eval.cli.settings import (
    Given,
    bench_root_option,
    cache_option,
    json_option,
    out_option,
    tiers_option,
)
from codegenie.eval.cli.sut_options import SutFlags, sut_options, sut_request
from codegenie.eval.errors import NotMeasured, SettingsInvalid
from codegenie.eval.gate.deciding import Gatekeeper, load_policy
from codegenie.eval.gate.policy import TierPolicy
from codegenie.eval.gate.verdict import PromotionVerdict
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.models import BenchRunReport, RunOptions, RunPlan
from codegenie.eval.planning import CaseFilter
from codegenie.eval.ports import SutRunner
from codegenie.eval.reporting.run_text import nothing_judged, render_report, steadiness_document
from codegenie.eval.reporting.verdict_text import render_missing, render_verdict, verdict_document
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from codegenie.eval.suts.spec import open_sut
from codegenie.eval.system.clock import SystemClock

_NOT_MEASURED = 4
_SIGNAL_BASE = 128
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@click.command("run")
@click.argument("task_class")
@sut_options
@bench_root_option
@out_option
@cache_option
@click.option(
    "--cases", "globs", multiple=True, metavar="GLOB", help="Only these cases; the report is then partial."
)
@click.option(
    "--cases-from",
    type=Given(),
    metavar="RUN",
    help="Only the cases of this run; the report is then partial.",
)
@click.option("--failed", is_flag=True, help="With --cases-from: only the cases that did not pass in it.")
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
    help="How many trials run at the same time.",
)
@click.option(
    "--timeout",
    type=float,
    envvar="CODEGENIE_EVAL_TIMEOUT",
    help="Lower the deadline of the SUT to this many seconds.",
)
@click.option(
    "--max-cost-usd",
    type=float,
    envvar="CODEGENIE_EVAL_MAX_COST_USD",
    help="Stop when the run has cost this much.",
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", "namespace", "landlock", "subprocess"]),
    default="auto",
    show_default=True,
    envvar="CODEGENIE_EVAL_ISOLATION",
    help="The isolation class in which rubrics must run.",
)
@click.option(
    "--spawn",
    type=click.Choice(["zygote", "cold"]),
    default="zygote",
    show_default=True,
    envvar="CODEGENIE_EVAL_SPAWN",
    help="For each rubric fork a clean interpreter, or start a new one.",
)
@click.option(
    "--record",
    type=Given(),
    metavar="DIR",
    help="Record what the SUT produces in this directory, for --sut replay:DIR.",
)
@tiers_option
@click.option("--no-cache", "fresh", is_flag=True, help="A new measurement: reuse and resume nothing.")
@click.option("--verbose", "-v", is_flag=True, help="Say why an outcome is measured again.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@json_option
def command(
    task_class: str,
    bench_root: Sequence[str],
    out: str,
    cache: str,
    globs: Sequence[str],
    cases_from: str | None,
    failed: bool,
    trials: int,
    concurrency: int,
    timeout: float | None,
    max_cost_usd: float | None,
    isolation: str,
    spawn: str,
    record: str | None,
    tiers: str,
    fresh: bool,
    verbose: bool,
    quiet: bool,
    as_json: bool,
    **sut_flags: Unpack[SutFlags],
) -> int:
    """Run TASK_CLASS against a system under test and report.

    Exits with 0 whenever a complete report was made, however bad the agent was; with 2 if a flag, a setting
    or the bench is wrong; with 3 if a case or the log fails verification; with 4 if nothing was decided, also
    if every case is a fault of the bench (that report is recorded); with 130 or 143 if a signal ended it.
    """
    policy = load_policy(Path(tiers))
    options = _options(
        trials=trials,
        concurrency=concurrency,
        timeout_seconds=timeout,
        max_cost_usd=max_cost_usd,
        isolation=isolation,
        spawn=spawn,
        cache_dir=Path(cache).absolute(),
        fresh=fresh,
        record_dir=None if record is None else Path(record).absolute(),
        policy_digest=None if policy is None else policy.digest,
        sut_isolation=sut_flags["sut_isolation"],
    )
    with benches_until_signal(bench_root) as benches:
        chosen = chosen_cases(CaseChoice(globs, cases_from, failed), task_class, out)
        plan = _planned(task_class, benches, out, chosen.case_filter, options)
        sut = open_sut(sut_request(sut_flags, (Path(tiers).absolute(), *benches.own)), plan)
        recorded, signal_code = asyncio.run(record_until_signal(plan, sut, quiet=quiet, verbose=verbose))
        verdict = _verdict(recorded, plan, policy)
    if as_json:
        click.echo(json.dumps(_document(recorded, verdict, plan), indent=2))
    else:
        lines = _lines(recorded, verdict, plan)
        click.echo("\n".join([*lines, *_ending(recorded, options, signal_code, chosen.run_id)]))
    return signal_code or (0 if _measured(recorded.report) else _NOT_MEASURED)


def _planned(
    task_class: str, benches: Benches, out: str, case_filter: CaseFilter, options: RunOptions
) -> RunPlan:
    return Runner().plan(
        task_class_name=task_class,
        bench_root=benches.roots_of(task_class),
        out_dir=out,
        case_filter=case_filter,
        options=options,
    )


def _measured(report: BenchRunReport) -> bool:
    return report.complete and nothing_judged(report) is None


def _verdict(recorded: RecordedRun, plan: RunPlan, policy: TierPolicy | None) -> PromotionVerdict | None:
    """Ask the gate about the next tier. It reads the log and not the objects in memory."""
    tier = None if policy is None else policy.next_tier(plan.task_class.name)
    if policy is None or tier is None or recorded.chain_head is None or recorded.log is None:
        return None
    log = VerifiedLog.continued(recorded.log)
    entry = log.find(recorded.report.run_id)
    bench_root = plan.task_class.directory.parent
    return Gatekeeper(log, policy, bench_root, SystemClock()).judge(entry, tier)


def _document(recorded: RecordedRun, verdict: PromotionVerdict | None, plan: RunPlan) -> dict[str, Any]:
    return {
        "schema": "codegenie.eval.run/1",
        "report": recorded.report.model_dump(mode="json"),
        "chain_head": recorded.chain_head,
        "verdict": None if verdict is None else verdict_document(verdict),
        "notes": [*filter(None, [nothing_judged(recorded.report)]), *recorded.notes],
        "mean_over_units": mean_over_units(plan.cases, recorded.report.per_case),
        "steadiness": steadiness_document(recorded.report),
        "usage": recorded.totals.usage(),
        "durations": recorded.totals.durations(),
    }


def _lines(recorded: RecordedRun, verdict: PromotionVerdict | None, plan: RunPlan) -> list[str]:
    over_units = mean_over_units(plan.cases, recorded.report.per_case)
    lines = render_report(recorded.report, recorded.reused, over_units, recorded.totals)
    if verdict is not None:
        lines += ["", "next tier", *render_verdict(verdict), *render_missing(verdict, recorded.report)]
    return lines


def _ending(
    recorded: RecordedRun, options: RunOptions, signal_code: int, cases_from: str | None
) -> list[str]:
    """Return the log head after the run, or the command that resumes the run.

    `cases_from` is the id of the run that --cases-from named in another way.
    """
    notes = [f"note: {note}" for note in recorded.notes]
    if recorded.chain_head is not None:
        return [f"log head         {recorded.chain_head}", *notes]
    # Only a signal or its own cap ends a run early. When it is resumed, the cost so far counts.
    capped = not signal_code and options.max_cost_usd is not None
    # A run with --no-cache resumes no run, not even itself.
    changes = ["without --no-cache"] if options.fresh else []
    changes += ["with a higher --max-cost-usd"] if capped else []
    # The latest run is now this one, and has other cases.
    changes += [f"with --cases-from {cases_from}"] if cases_from is not None else []
    command = f"the same command {' and '.join(changes)}".rstrip()
    why = ", since it has reached its cost cap" if capped else ""
    return [f"the run is not finished{why}: {command} resumes it where it stopped", *notes]


def _options(**given: object) -> RunOptions:
    from pydantic import ValidationError

    try:
        return RunOptions.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        flag = str(problem["loc"][0]).removesuffix("_seconds").replace("_", "-")
        raise SettingsInvalid(f"--{flag}: {problem['msg']}") from None


async def record_until_signal(
    plan: RunPlan, sut: SutRunner, *, quiet: bool, verbose: bool = False
) -> tuple[RecordedRun, int]:
    """Run the plan; return the run and the exit code of a signal, or 0.

    A signal ends the run in seconds, and all finished trials are kept.
    """
    stop = Stop()
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def end(number: signal.Signals) -> None:
        received.append(_SIGNALS[number])
        stop.everything(f"ended by {number.name}")

    def explain(text: str) -> None:
        click.echo(text, err=True)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        with progress_for(len(plan.cases) * plan.options.trials, quiet=quiet) as progress:
            runner = Runner(progress=progress, explain=explain if verbose else None)
            recorded = await runner.record(plan, system_under_test=sut, stop=stop)
    except NotMeasured:
        if received:
            raise Ended(received[0] - _SIGNAL_BASE) from None
        raise
    finally:
        # The loop would reset SIGTERM to its default, which ends us before our directories are removed.
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
    return recorded, received[0] if received else 0
