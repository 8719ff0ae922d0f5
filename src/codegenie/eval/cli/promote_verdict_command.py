"""`codegenie eval promote-verdict`: what the verified log proves, against the policy. It only advises."""

from collections.abc import Sequence
from pathlib import Path

import click

from codegenie.eval.cli.ending import benches_until_signal, log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import (
    bench_root_option,
    expect_head_option,
    json_option,
    out_option,
    tiers_option,
)
from codegenie.eval.errors import NotMeasured, TierConfigInvalid
from codegenie.eval.gating import Gatekeeper, bench_on_disk, load_policy
from codegenie.eval.history import RunEntry
from codegenie.eval.inspection import VerifiedLog, expect_head, verify_log
from codegenie.eval.reporting.verdicts import render_verdict
from codegenie.eval.runner import SystemClock


@click.command("promote-verdict")
@click.argument("task_class")
@click.option("--tier", required=True, help="The tier that is asked for.")
@out_option
@bench_root_option
@tiers_option
@click.option("--run", "run_id", metavar="ID", help="Judge this run; the newest whole one otherwise.")
@expect_head_option
@json_option
def command(
    task_class: str,
    tier: str,
    out: str,
    bench_root: Sequence[str],
    tiers: str,
    run_id: str | None,
    expected: str | None,
    as_json: bool,
) -> int:
    """Say whether the log proves TASK_CLASS sufficient for a tier. A human promotes.

    Exits with 0 if it is sufficient, with 1 if not, with 4 if there is no run to judge.
    """
    policy = load_policy(Path(tiers))
    if policy is None:
        raise TierConfigInvalid(
            "there is no policy file",
            where=tiers,
            hint="`codegenie eval tiers --write` makes one; a run counts from then on",
        )
    with log_until_signal(Path(out)) as directory, benches_until_signal(bench_root) as benches:
        log = verify_log(directory, SystemClock())
        if expected is not None:
            expect_head(log, expected)
        entry = _chosen(log, task_class, run_id)
        # A bench that does not hold is a broken claim (exit 3 or 2), not a weak one.
        roots = benches.roots_of(task_class)
        bench_on_disk(task_class, roots)
        verdict = Gatekeeper(log, policy, roots, SystemClock()).judge(entry, tier)
    if as_json:
        say_json("codegenie.eval.verdict/1", verdict.model_dump(mode="json"))
    else:
        say(render_verdict(verdict))
        if Path(out).is_file():
            say(["  judged from a bundle: looks after it was made are not in it"])
    return 0 if verdict.verdict == "sufficient" else 1


def _chosen(log: VerifiedLog, task_class: str, run_id: str | None) -> RunEntry:
    if run_id is None:
        newest = log.history.newest_whole(task_class)
        if newest is None:
            raise NotMeasured(
                f"there is no finished run of all cases of {task_class!a}",
                where=str(log.directory),
                hint="`codegenie eval run` without --cases makes one",
            )
        return newest
    entry = log.find(run_id)
    if entry.task_class != task_class:
        raise NotMeasured(f"run {entry.run_id} is one of {entry.task_class}, not of {task_class!a}")
    return entry
