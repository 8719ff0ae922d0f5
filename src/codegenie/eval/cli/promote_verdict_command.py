"""`codegenie eval promote-verdict`: compare what the verified log proves with the policy. It only advises."""

import asyncio
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
from codegenie.eval.errors import (
    IntegrityError,
    NotMeasured,
    SettingsInvalid,
    SutSpecInvalid,
    TierConfigInvalid,
)
from codegenie.eval.gate.deciding import Gatekeeper, bench_on_disk, load_policy
from codegenie.eval.log.reading import VerifiedLog, expect_head, verify_log
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutRunner
from codegenie.eval.reporting.verdict_text import render_verdict, verdict_document
from codegenie.eval.suts.identity import OWN_PROCESS
from codegenie.eval.suts.spec import agent_on_disk
from codegenie.eval.system.clock import SystemClock


@click.command("promote-verdict")
@click.argument("task_class")
@click.option("--tier", required=True, help="The tier that is asked for.")
@click.option("--sut", metavar="SPEC", help="The agent whose newest run is judged, as in `run --sut`.")
@out_option
@bench_root_option
@tiers_option
@click.option("--run", "run_id", metavar="ID", help="Judge this run, even if the agent on disk has changed.")
@expect_head_option
@json_option
def command(
    task_class: str,
    tier: str,
    sut: str | None,
    out: str,
    bench_root: Sequence[str],
    tiers: str,
    run_id: str | None,
    expected: str | None,
    as_json: bool,
) -> int:
    """Say whether the log proves TASK_CLASS sufficient for a tier. A human promotes.

    Exits with 0 if it is sufficient; with 1 if not; with 2 if a flag, the policy or the bench is wrong; with
    3 if the log or a case fails verification; with 4 if there is no run of this agent to judge.
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
        entry = _newest(log, task_class, sut) if run_id is None else _named(log, task_class, sut, run_id)
        measured = log.finished(entry).report.sut
        if run_id is None:
            _check_agent(entry, measured, directory if Path(out).is_dir() else None, benches.own)
        # A bench that changed or does not load is a broken claim (exit 3 or 2), not a weak one.
        roots = benches.roots_of(task_class)
        bench_on_disk(task_class, roots)
        verdict = Gatekeeper(log, policy, roots, SystemClock()).judge(entry, tier)
    if as_json:
        say_json("codegenie.eval.verdict/1", verdict_document(verdict))
    else:
        say(render_verdict(verdict))
        if Path(out).is_file():
            say(["  judged from a bundle, which does not hold looks made after it"])
    return 0 if verdict.verdict == "sufficient" else 1


def _named(log: VerifiedLog, task_class: str, sut: str | None, run_id: str) -> RunEntry:
    """Return the run with an id; it must be a run of this class, and of this agent if one is named."""
    entry = log.find(run_id)
    if entry.task_class != task_class:
        raise NotMeasured(f"run {entry.run_id} is one of {entry.task_class}, not of {task_class!a}")
    if sut is not None and entry.agent != sut:
        raise SettingsInvalid(f"run {entry.run_id} is one of {entry.agent}, not of {sut!a}")
    return entry


def _newest(log: VerifiedLog, task_class: str, sut: str | None) -> RunEntry:
    """Return the newest start of one agent. If there are several agents, the user must name one."""
    agents = log.history.agents(task_class)
    if sut is None and len(agents) > 1:
        raise SettingsInvalid(
            f"the log holds runs of {task_class} by several systems: {', '.join(agents)}",
            where=str(log.directory),
            hint="name one with --sut, or a run with --run",
        )
    agent = sut if sut is not None else next(iter(agents), None)
    entry = None if agent is None else log.history.newest_start(task_class, agent)
    if entry is None:
        whose = "" if agent is None else f" by {agent!a}"
        raise NotMeasured(
            f"there is no finished run of all cases of {task_class!a}{whose}",
            where=str(log.directory),
            hint="`codegenie eval run` without --cases makes one",
        )
    return entry


def _check_agent(
    entry: RunEntry, measured: SutIdentity, log: Path | None, bench_roots: Sequence[Path]
) -> None:
    """Refuse to judge an agent that differs from the measured one: the verdict would be about another agent.

    For a bundle `log` is None and nothing is looked up: a bundle must not decide what is imported here.
    """
    # Agents that run in the harness or in the process of a caller are never sufficient, so their files do not
    # matter. A program in a box is not looked up: its identity holds what its box showed then.
    if entry.sut_boundary != "process" and not (
        entry.sut_boundary in OWN_PROCESS and entry.agent.startswith("python:")
    ):
        return
    hint = "measure it again, or name the run with --run to judge what was measured then"
    if log is None:
        raise NotMeasured(
            f"a bundle cannot show whether {entry.agent} is the agent on this machine", hint=hint
        )
    try:
        agent = agent_on_disk(measured, entry.sut_boundary, log, bench_roots)
        asyncio.run(_prepared(agent))
    except (SutSpecInvalid, IntegrityError, OSError) as refusal:
        message = getattr(refusal, "message", None) or str(refusal)
        raise NotMeasured(
            f"{entry.agent} is not there as run {entry.run_id} measured it: {message}", hint=hint
        ) from None
    if (agent.identity.spec, agent.identity.digest) != (measured.spec, measured.digest):
        raise NotMeasured(f"{entry.agent} is not the agent that run {entry.run_id} measured", hint=hint)


async def _prepared(agent: SutRunner) -> None:
    try:
        await agent.prepare()
    finally:
        await agent.close()
