"""Where the agent of a run was and what it could reach: for which tiers that is evidence (ADR-0038)."""

from collections.abc import Iterator

from codegenie.eval.gate.evidence import Evidence
from codegenie.eval.gate.policy import BOUNDARY_ORDER, TierPolicy
from codegenie.eval.gate.reasons import Reason, reason
from codegenie.eval.models import BenchRunReport
from codegenie.eval.suts.identity import can_run_in_a_box, is_replay

_PLACES = {"process": "as a plain process", "landlock": "in a box of class landlock"}
_BOXES = BOUNDARY_ORDER[1:]


def whereabouts(evidence: Evidence) -> Iterator[Reason]:
    """Yield reasons if no tier can take this run: no agent was confined there, or nothing proves it."""
    report = evidence.report
    if is_replay(report.sut.spec):
        yield reason(
            "no_agent",
            f"{report.sut.spec}: the outputs were recorded before, and no agent was asked for them",
        )
    elif report.sut_boundary == "harness":
        yield reason(
            "no_agent", f"{report.sut.spec} is part of the harness: its runs test the bench, not an agent"
        )
    elif report.sut_boundary not in BOUNDARY_ORDER or not can_run_in_a_box(report.sut.spec):
        yield reason("in_process", "the system under test ran inside the harness's own process")
    elif report.sut_boundary in _BOXES and not _is_proved(evidence):
        # A verified log cannot have it, but evidence that was built by hand can.
        yield reason(
            "unproved_sut_isolation",
            f"no proof shows that the agent ran in a box of class {report.sut_boundary}"
            f" with network {report.sut_network}",
        )


def too_little_confined(evidence: Evidence, tier: str, policy: TierPolicy) -> Iterator[Reason]:
    """Yield reasons if the tier asks for more walls around the agent than this run had."""
    report = evidence.report
    if report.sut_boundary not in BOUNDARY_ORDER:
        # The harness's own systems, and objects in its process, are refused for every tier.
        return
    least = policy.minimum_sut_boundary[tier]
    position = BOUNDARY_ORDER.index(least)
    if not BOUNDARY_ORDER.index(report.sut_boundary) >= position:
        enough = " or ".join(BOUNDARY_ORDER[position:])
        yield reason(
            "sut_boundary",
            f"the agent ran {_PLACES[report.sut_boundary]}; {tier} needs a box of class {enough}:"
            f" run again with --sut-isolation {BOUNDARY_ORDER[-1]}",
        )
    if policy.forbids_host_network(tier) and reached_the_host(report):
        yield reason(
            "sut_network",
            f"the agent could reach the network of the host, which is never evidence for {tier}:"
            " run again in a box, with --sut-network none or broker",
        )


def reached_the_host(report: BenchRunReport) -> bool:
    """Say whether nothing kept the agent from the network of the host.

    A plain process has no walls, whatever network was asked for, and neither had runs older than boxes.
    """
    return report.sut_boundary not in _BOXES or report.sut_network not in {"none", "broker"}


def lowered(tier: str, policy: TierPolicy) -> Iterator[str]:
    """Yield a note if the policy itself asks for less than the default: a reader must know that."""
    default, least = policy.lowered_boundary(tier), policy.minimum_sut_boundary[tier]
    if default is not None:
        yield (
            f"this policy lets the agent run in {least} for {tier} (minimum_sut_boundary);"
            f" the default is {default}"
        )


def _is_proved(evidence: Evidence) -> bool:
    report, proof = evidence.report, evidence.started.sut_isolation
    if proof is None or not proof.holds:
        return False
    return (proof.isolation_class, proof.network) == (report.sut_boundary, report.sut_network)
