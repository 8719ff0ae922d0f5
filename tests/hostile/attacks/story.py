"""The five attacks of the story, as they are played without their defense; the drivers are in tests/adv."""

import asyncio
import json
from pathlib import Path
from typing import Literal

from codegenie.eval.errors import EvalError
from codegenie.eval.models import BenchRunReport, RunOptions
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from tests.hostile.engine.stage import Outcome, attack, environment
from tests.hostile.engine.table import ROOT

BENCH_ROOT = ROOT / "tests" / "fixtures" / "bench"
SECRET = "sk-ant-leak-do-not-print"


class Agent:
    """An agent that does nothing but leave a file when it is asked."""

    def __init__(self, witness: Path) -> None:
        self._witness = witness

    async def __call__(self, case: SutCase) -> dict[str, object]:
        """Note the case."""
        self._witness.write_text(case.case_id, encoding="utf-8")
        return {}


def run(
    room: Path, task_class: str, *case_ids: str, isolation: Literal["auto", "subprocess"] = "auto"
) -> BenchRunReport | str:
    """Run cases of a hostile class; return the report, or the type of the refusal."""
    try:
        return asyncio.run(
            Runner().run_eval(
                task_class_name=task_class,
                bench_root=BENCH_ROOT,
                out_dir=room / "runs",
                case_filter=frozenset(case_ids) or None,
                system_under_test=Agent(room / "asked"),
                options=RunOptions(isolation=isolation),
            )
        )
    except EvalError as refusal:
        return type(refusal).__name__


def code(report: BenchRunReport | str) -> str:
    """Return the first failure of a run of one case, or the refusal."""
    if isinstance(report, str):
        return report
    modes = report.per_case[0][1].failure_modes
    return modes[0].code if modes else "passed"


@attack("env_read_attempt")
def env_read_attempt(room: Path) -> Outcome:
    # In the class that has no proof: that of any other would notice an environment that is not scrubbed.
    with environment(ANTHROPIC_API_KEY=SECRET):
        met = code(run(room, "adversarial-task-class", "env_read_attempt", isolation="subprocess"))
    # The value itself is redacted, so the witness is what else the artefact says: not `None`.
    said = [
        file.read_text(encoding="utf-8")
        for file in (room / "runs" / "artifacts").rglob("*")
        if file.is_file()
    ]
    got = [text for text in said if "ANTHROPIC_API_KEY is" in text and "is None" not in text]
    return Outcome(met, f"the rubric got a value: {got[0].strip()}" if got else None)


@attack("rubric_timeout")
def rubric_timeout(room: Path) -> Outcome:
    return Outcome(code(run(room, "adversarial-task-class", "rubric_timeout")))


@attack("banned_breakdown_key")
def banned_breakdown_key(room: Path) -> Outcome:
    met = code(run(room, "adversarial-task-class", "banned_breakdown_key"))
    record = json.loads((room / "runs" / "00000001.json").read_bytes())
    kept = record["body"]["trials"][0]["answer"]["breakdown"]
    return Outcome(met, "the log holds llm_confidence" if "llm_confidence" in kept else None)


@attack("poisoned_case")
def poisoned_case(room: Path) -> Outcome:
    met = code(run(room, "adversarial-task-class", "poisoned_case"))
    return Outcome(met, "an agent was asked about the edited case" if (room / "asked").exists() else None)


@attack("malformed_failure_modes_yaml")
def malformed_failure_modes_yaml(room: Path) -> Outcome:
    met = code(run(room, "adversarial-task-class-malformed-yaml"))
    return Outcome(met, "an agent was asked under this taxonomy" if (room / "asked").exists() else None)
