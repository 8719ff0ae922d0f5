"""`codegenie eval demo`: honest runs of the shipped bench, then edits that are refused. Offline, no key."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from codegenie.eval.bench.shipped import write_shipped
from codegenie.eval.cli.ending import ended_in_order
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.run_command import record_until_signal
from codegenie.eval.cli.settings import json_option
from codegenie.eval.errors import IntegrityError
from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.gate.deciding import Gatekeeper, load_policy
from codegenie.eval.gate.policy import FIRST_POLICY, TierPolicy
from codegenie.eval.gate.verdict import PromotionVerdict
from codegenie.eval.log.chain import record_name
from codegenie.eval.log.reading import verify_log
from codegenie.eval.models import BenchRunReport, RunOptions, RunPlan
from codegenie.eval.reporting.run_text import render_report
from codegenie.eval.reporting.verdict_text import render_verdict, verdict_document
from codegenie.eval.runner import Runner
from codegenie.eval.suts.spec import SutRequest, open_sut
from codegenie.eval.system.clock import SystemClock

_TASK_CLASS = "dependency-pin"
_TIER = "bronze"
_TOUCHED_CASE = "requests-2-31-0"


@dataclass(frozen=True, slots=True)
class _Stage:
    """A copy of the benches, a policy and a separate log, removed when the demo is over."""

    bench_root: Path
    log: Path
    policy: TierPolicy

    def plan(self, policy_digest: str | None = None) -> RunPlan:
        """Load and check the bench."""
        return Runner().plan(
            task_class_name=_TASK_CLASS,
            bench_root=self.bench_root,
            out_dir=self.log,
            options=RunOptions(policy_digest=policy_digest),
        )

    def run(self, spec: str) -> tuple[BenchRunReport, PromotionVerdict]:
        """Record a run and ask the gate about it."""
        plan = self.plan(self.policy.digest)
        sut = open_sut(SutRequest(spec), plan)
        recorded, signal_code = asyncio.run(record_until_signal(plan, sut, quiet=True))
        if signal_code:
            click.echo("codegenie: interrupted", err=True)
            raise click.exceptions.Exit(signal_code)
        log = verify_log(self.log, SystemClock())
        gatekeeper = Gatekeeper(log, self.policy, self.bench_root, SystemClock())
        return recorded.report, gatekeeper.judge(log.find(recorded.report.run_id), _TIER)

    def refused_case(self) -> IntegrityError:
        """Change the withdrawn release in one expected answer, and return the refusal."""
        answer = self.bench_root / _TASK_CLASS / "cases" / _TOUCHED_CASE / "expected" / "answer.json"
        return _refusal(answer, b'"2.32.0', self.plan)

    def refused_record(self) -> IntegrityError:
        """Lower the mean of the first run in its record, and return the refusal."""
        finish = self.log / record_name(1)
        return _refusal(finish, b'"mean_score":1', lambda: verify_log(self.log, SystemClock()))


def _set(directory: Path) -> _Stage:
    tiers = directory / "trust-tiers.yaml"
    tiers.write_text(FIRST_POLICY, encoding="utf-8")
    write_shipped(directory / "bench")
    policy = load_policy(tiers)
    if policy is None:
        raise RuntimeError("the demo lost its own policy")
    return _Stage(directory / "bench", directory / "runs", policy)


def _refusal(file: Path, up_to: bytes, check: Callable[[], object]) -> IntegrityError:
    """Flip the last bit of the byte in which `up_to` ends, and expect the check to refuse it."""
    raw = bytearray(file.read_bytes())
    raw[raw.index(up_to) + len(up_to) - 1] ^= 1
    file.write_bytes(raw)
    try:
        check()
    except IntegrityError as refusal:
        return refusal
    raise RuntimeError(f"a flipped bit in {file.name} was taken")


@click.command("demo")
@json_option
def command(as_json: bool) -> None:
    """Run the shipped bench, judge the runs, and show what is refused."""
    show = (lambda _lines: None) if as_json else say
    with ended_in_order(), tempfile.TemporaryDirectory(prefix="codegenie-demo-") as temporary:
        stage = _set(Path(temporary))
        show(["1. An agent that knows every answer: what the bench can show at best.", ""])
        oracle, best = stage.run("oracle")
        certified = floor3(oracle.certified_lower_95)
        show([*render_report(oracle), *render_verdict(best)])
        proved = f"{oracle.units} units certify {certified}. More would need more cases."
        show([f"   Perfect, and still no 1.0: {proved}", ""])
        show(["2. An agent that does nothing: what the bench gives away.", ""])
        null, worst = stage.run("null")
        show([*render_report(null), *render_verdict(worst), ""])
        show(["3. One byte of an expected answer is changed, its digest is not.", ""])
        case = stage.refused_case()
        show([f"   exit {case.exit_code}: {case.message}", ""])
        show(["4. One byte of the log is changed: the mean of the first run.", ""])
        record = stage.refused_record()
        show([f"   exit {record.exit_code}: {record.message}", ""])
        show([f"Next: codegenie eval run {_TASK_CLASS} --sut python:your_module:your_agent"])
    if as_json:
        document: dict[str, Any] = {
            "oracle": oracle.model_dump(mode="json"),
            "null": null.model_dump(mode="json"),
            "verdicts": {"oracle": verdict_document(best), "null": verdict_document(worst)},
            "refused": {**_refused(case), "case_id": _TOUCHED_CASE},
            "refused_record": {**_refused(record), "file": record.where},
        }
        say_json("codegenie.eval.demo/1", document)


def _refused(refusal: IntegrityError) -> dict[str, Any]:
    return {"type": type(refusal).__name__, "exit_code": refusal.exit_code, "message": refusal.message}
