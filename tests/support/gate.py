"""Makes evidence for the gate: whole, honest and good unless a test says what is wrong with it."""

import datetime as dt
from functools import cache
from pathlib import Path
from typing import Any

from codegenie.eval.aggregation import summarise
from codegenie.eval.gate.evidence import BenchOnDisk, Evidence
from codegenie.eval.gate.policy import TierPolicy, read_policy
from codegenie.eval.gate.verdict import PromotionGate, PromotionVerdict
from codegenie.eval.isolation_proof import (
    PROBE_LIST,
    REQUIRED_PROBES,
    BoxProof,
    IsolationProof,
    ProbeResult,
    required_of_box,
)
from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Look
from codegenie.eval.models import (
    RUNNER_CODES,
    BenchCase,
    BenchRunReport,
    BenchScore,
    FailureModeSpec,
    IsolationClass,
    Selection,
    Severity,
    SutBoundary,
    SutIdentity,
    SutNetwork,
    TaskClass,
)
from codegenie.eval.planning import case_set_digest
from codegenie.eval.suts.identity import identity_digest

NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
POLICY = read_policy(b"thresholds: {bronze: 0.5, silver: 0.8, gold: 0.9, platinum: 0.95}", "the policy")
TIERS = tuple(POLICY.thresholds)
SUT = SutIdentity(spec="python:agent:solve", version="1", digest="5" * 64)

_PASSED = BenchScore(passed=True, score=1.0)
_MISSED = BenchScore(passed=False, score=0.0)


@cache
def cases(units: int, curation_class: str = "held-out") -> tuple[BenchCase, ...]:
    """Return so many cases, each a unit of its own."""
    return tuple(
        BenchCase.model_validate(
            {
                "case_id": f"case-{number:06}",
                "task_class": "fix-bugs",
                "disposition": "positive",
                "difficulty": "easy",
                "source": "curated",
                "curation_class": curation_class,
                "family": f"case-{number:06}",
                "added_at": NOW.date(),
                "last_validated_at": NOW.date(),
                "digest": f"{number:064x}",
                "input_digest": f"{number:064x}",
            }
        )
        for number in range(units)
    )


def scored(scores: list[BenchScore], **changes: Any) -> BenchRunReport:  # noqa: ANN401 - any field
    """Return the report that these scores give, one case and one unit each."""
    planned = cases(len(scores))
    per_case = tuple((case.case_id, score) for case, score in zip(planned, scores, strict=True))
    fields: dict[str, Any] = {
        "run_id": "chosen",
        "task_class": "fix-bugs",
        "harness_version": "1",
        "sut": SUT,
        "sut_identity_digest": identity_digest(SUT),
        "rubric_digest": "1" * 64,
        "taxonomy_digest": "2" * 64,
        "case_set_digest": case_set_digest(planned),
        "policy_digest": POLICY.digest,
        "sut_boundary": "namespace",
        "sut_network": "none",
        "isolation_class": "namespace",
        "selection": Selection(kind="all", available_cases=len(scores)),
        "trials": 1,
        "started_at": NOW - dt.timedelta(hours=1),
        "ended_at": NOW,
        "per_case": per_case,
    }
    summary = summarise(planned, per_case)
    fields |= {name: getattr(summary, name) for name in type(summary).model_fields}
    return BenchRunReport(**(fields | changes))


def report(units: int, passed: int, /, **changes: Any) -> BenchRunReport:  # noqa: ANN401 - any field
    """Return the report of a run in which so many of the units passed."""
    return scored([_PASSED] * passed + [_MISSED] * (units - passed), **changes)


def proof(isolation_class: IsolationClass = "namespace", missing: str | None = None) -> IsolationProof:
    """Return a proof of a class; one of its probes may be missing."""
    wanted = sorted(REQUIRED_PROBES[isolation_class] - {missing})
    probes = tuple(ProbeResult(name=name, blocked=True) for name in wanted)
    return IsolationProof(
        isolation_class=isolation_class, kernel="6.18", probe_list=PROBE_LIST, probes=probes
    )


def box_proof(
    isolation_class: IsolationClass = "namespace", network: SutNetwork = "none", missing: str | None = None
) -> BoxProof:
    """Return a proof of the boxes of an agent; one of its probes may be missing."""
    wanted = sorted(required_of_box(isolation_class, network) - {missing})
    probes = tuple(ProbeResult(name=name, blocked=True) for name in wanted)
    return BoxProof(isolation_class=isolation_class, network=network, kernel="6.18", probes=probes)


def boxed_in(boundary: SutBoundary, network: SutNetwork | None) -> dict[str, Any]:
    """Return what the start of a run says about where its agent was."""
    classes: dict[str, IsolationClass] = {
        "process": "subprocess",
        "landlock": "landlock",
        "namespace": "namespace",
    }
    proof_of_it = (
        None if network is None or boundary not in classes else box_proof(classes[boundary], network)
    )
    return {"sut_boundary": boundary, "sut_network": network, "sut_isolation": proof_of_it}


def started(units: int, **changes: Any) -> RunStarted:  # noqa: ANN401 - any field
    """Return the start of such a run."""
    planned = cases(units)
    fields: dict[str, Any] = {
        "plan_digest": "3" * 64,
        "task_class": "fix-bugs",
        "harness_version": "1",
        "sut": SUT,
        "sut_identity_digest": identity_digest(SUT),
        "sut_boundary": "namespace",
        "sut_network": "none",
        "sut_isolation": box_proof(),
        "rubric_digest": "1" * 64,
        "taxonomy_digest": "2" * 64,
        "case_set_digest": case_set_digest(planned),
        "policy_digest": POLICY.digest,
        "isolation": proof(),
        "selection": Selection(kind="all", available_cases=units),
        "trials": 1,
        "cases": planned,
        "breakdown_keys": ("accuracy",),
        "severities": dict.fromkeys(RUNNER_CODES, Severity.BLOCK),
        "min_cases_for_promotion": dict.fromkeys(TIERS, 1),
    }
    return RunStarted(**(fields | changes))


def bench(of: RunStarted) -> BenchOnDisk:
    """Return the bench that a run measured, as it still lies there."""
    task_class = TaskClass(
        name=of.task_class,
        directory=Path("bench", of.task_class),
        breakdown_keys=of.breakdown_keys,
        taxonomy={
            code: FailureModeSpec(severity=severity, description="what went wrong")
            for code, severity in of.severities.items()
        },
        min_cases_for_promotion=dict(of.min_cases_for_promotion),
        rubric=(),
        rubric_digest=of.rubric_digest,
        taxonomy_digest=of.taxonomy_digest,
    )
    return BenchOnDisk(task_class, of.cases)


def look(of: BenchRunReport, reused: int = 0) -> Look:
    """Return what another verdict asks of a run with this report."""
    return Look(
        of.run_id,
        of.units,
        of.units_passed,
        of.started_at,
        of.ended_at,
        of.sut_boundary,
        reused,
        of.isolation_class,
    )


def evidence(of: BenchRunReport, **changes: Any) -> Evidence:  # noqa: ANN401 - any field
    """Return evidence around a report."""
    start = changes.pop("started", None) or started(
        len(of.per_case), isolation=proof(of.isolation_class), **boxed_in(of.sut_boundary, of.sut_network)
    )
    fields: dict[str, Any] = {"started": start, "report": of, "look": look(of), "bench": bench(start)}
    return Evidence(**(fields | changes))


def judged(of: Evidence, tier: str = "silver", policy: TierPolicy = POLICY) -> PromotionVerdict:
    """Ask the gate."""
    return PromotionGate(policy).evaluate(of, tier, NOW)


def codes(verdict: PromotionVerdict) -> set[str]:
    """Return the codes of the reasons."""
    return {reason.code for reason in verdict.reasons}
