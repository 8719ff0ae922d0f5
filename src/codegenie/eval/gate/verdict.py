"""The promotion gate compares what the verified log proves with the policy. It advises; a human promotes.

`evaluate` is pure and never raises on evidence: each point against promotion becomes a reason of its own. The
number that decides is the certified lower bound on the share of units passed (ADR-0009). Every comparison is
written so that NaN fails it.
"""

import datetime as dt
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field

from codegenie.eval.errors import IncompleteReportForPromotion, PromotionMustBeHumanAuthorized
from codegenie.eval.estimators.bounds import clopper_pearson_lower, floor3
from codegenie.eval.gate.confinement import lowered, too_little_confined, whereabouts
from codegenie.eval.gate.evidence import Evidence
from codegenie.eval.gate.policy import ISOLATION_ORDER, TierPolicy, Waiver
from codegenie.eval.gate.reasons import Reason, reason
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.runs import Look
from codegenie.eval.models import BenchRunReport, FrozenMap, Record, SutBoundary, SutNetwork
from codegenie.eval.wording import counted

# The level of `lower_bound_95`. A perfect run must reach it too, whatever level the policy allows.
_HEADLINE_ALPHA = 0.05
# The clocks of two machines differ. A day of difference gains nothing, because a run is valid for weeks.
_CLOCK_SLACK = dt.timedelta(days=1)


class PromotionVerdict(Record):
    """The gate's advice on one run and one tier, with all reasons against a promotion."""

    verdict: Literal["sufficient", "insufficient", "inconclusive"]
    tier: str
    task_class: str
    run_id: str
    sut: str
    sut_version: str | None = None
    sut_identity_digest: str | None = None
    sut_boundary: SutBoundary
    sut_network: SutNetwork | None = None
    alpha: float
    reasons: tuple[Reason, ...] = ()
    threshold: float | None = None
    certified_lower: float | None = None
    units: int = 0
    units_needed: int | None = None
    looks: int = 1
    unfinished_runs: int = 0
    abandoned_runs: int = 0
    runs_elsewhere: int = 0
    candidates_tried: int = 1
    resumed: int = 0
    mean_over_cases: float | None = None
    mean_over_units: float | None = None
    # By run: how many units count as not passed because one of their trials was asked twice.
    interrupted_units: Annotated[dict[str, int], AfterValidator(FrozenMap)] = Field(default_factory=FrozenMap)
    # The waivers of the policy on which this verdict depends.
    waivers: tuple[Waiver, ...] = ()
    notes: tuple[str, ...] = ()


# The reasons that follow from too few units, so they are not the agent's fault.
_FEW_UNITS = {"too_few_units", "certified_bound", "bca_bound", "other_look"}


class PromotionGate:
    """Judges evidence by a policy. It cannot promote."""

    def __init__(self, policy: TierPolicy) -> None:
        self._policy = policy
        self._refunded = {waiver.refund for waiver in policy.waivers}

    def evaluate(self, evidence: Evidence, tier: str, now: dt.datetime) -> PromotionVerdict:
        """Return the advice for `tier`. Never raises on evidence."""
        report, look = evidence.report, evidence.look
        reasons = [*self._standing(evidence), *self._freshness(evidence, now)]
        threshold = self._policy.thresholds.get(tier)
        certified, needed = self._certified(look), None
        if threshold is None:
            reasons.append(reason("unknown_tier", f"the policy has no tier {tier!r}"))
        elif not 0.0 < threshold <= 1.0:
            # A policy read from a file cannot have it, but a record made without validation can.
            reasons.append(reason("bad_threshold", f"the threshold of {tier} is not between 0 and 1"))
            threshold = None
        else:
            needed = units_needed(threshold, min(self._policy.alpha, _HEADLINE_ALPHA))
            reasons += self._tier(evidence, tier)
            reasons += _too_few(look, threshold, needed)
            reasons += self._bounds(evidence, threshold, certified)
        abandoned = len(evidence.abandoned_runs)
        return PromotionVerdict(
            verdict=_advice({each.code for each in reasons}),
            **_whose(report),
            tier=tier,
            alpha=self._policy.alpha,
            reasons=tuple(reasons),
            threshold=threshold,
            certified_lower=certified,
            units=look.units,
            units_needed=needed,
            looks=1 + len(evidence.other_looks) + evidence.unfinished_runs + abandoned,
            unfinished_runs=evidence.unfinished_runs,
            abandoned_runs=abandoned,
            runs_elsewhere=evidence.runs_elsewhere,
            candidates_tried=evidence.candidates_tried,
            resumed=evidence.resumed,
            mean_over_cases=report.mean_score,
            mean_over_units=evidence.mean_over_units,
            interrupted_units=self._interrupted(evidence),
            waivers=self._used_waivers(evidence),
            notes=self._notes(tier),
        )

    def evaluate_report(self, report: BenchRunReport, tier: str) -> PromotionVerdict:
        """Judge a report without a log. It proves nothing, so the verdict is never `sufficient`.

        Raises IncompleteReportForPromotion if the report is incomplete.
        """
        if not report.complete:
            raise IncompleteReportForPromotion(
                f"the report of run {report.run_id} is incomplete: a case has no verdict",
                hint="resume the run, then judge it from the log",
            )
        return PromotionVerdict(
            verdict="insufficient",
            **_whose(report),
            tier=tier,
            alpha=self._policy.alpha,
            reasons=(reason("not_from_the_log", "a report outside the verified log is not evidence"),),
        )

    def apply(self) -> NoReturn:
        """Raise PromotionMustBeHumanAuthorized: a human promotes by editing the policy file (ADR-0012)."""
        raise PromotionMustBeHumanAuthorized(
            "the gate does not promote", hint="edit current_tiers in trust-tiers.yaml, and have it reviewed"
        )

    def _certified(self, look: Look) -> float:
        """Return the certified bound at the policy's level; 0 for numbers that a real run cannot have."""
        if not _countable(look):
            return 0.0
        # A trial that was asked twice had two chances. Without a waiver its unit counts as not passed.
        lost = 0 if look.run_id in self._refunded else look.interrupted_units_passed
        return clopper_pearson_lower(max(0, look.units_passed - lost), look.units, self._policy.alpha)

    def _interrupted(self, evidence: Evidence) -> dict[str, int]:
        """Return, for each look, how many units count as not passed because they were asked twice."""
        return {
            look.run_id: look.interrupted_units
            for look in (evidence.look, *evidence.other_looks)
            if look.interrupted_units and look.run_id not in self._refunded
        }

    def _used_waivers(self, evidence: Evidence) -> tuple[Waiver, ...]:
        looks = (evidence.look, *evidence.other_looks)
        spared = {look.run_id for look in looks if look.interrupted_units} | set(evidence.abandoned_runs)
        return tuple(waiver for waiver in self._policy.waivers if waiver.refund in spared)

    def _notes(self, tier: str) -> tuple[str, ...]:
        """Say what a reader of the verdict must check without the gate."""
        if tier not in self._policy.thresholds:
            return ()
        notes = list(lowered(tier, self._policy))
        if tier != next(iter(self._policy.thresholds)):
            rescore = (
                "`codegenie eval verify --rescore`, which lets the rubrics judge the stored outputs again"
            )
            notes.append(f"{tier} is above the first tier: verify this log with {rescore}")
        return tuple(notes)

    def _standing(self, evidence: Evidence) -> Iterator[Reason]:
        """Yield reasons why this run cannot be evidence at all, whatever its result is."""
        started, report = evidence.started, evidence.report
        if not report.complete:
            yield reason(
                "incomplete",
                f"the run did not measure {counted(report.infrastructure_fault_count, 'planned case')}",
                unmeasured=report.infrastructure_fault_count,
            )
        if not _countable(evidence.look):
            units = f"{evidence.look.units_passed} of {counted(evidence.look.units, 'unit')}"
            yield reason(
                "inconsistent",
                f"{units} cannot have passed",
                units=evidence.look.units,
                units_passed=evidence.look.units_passed,
            )
        if report.selection.kind != "all":
            yield reason(
                "partial",
                f"the run has {len(report.per_case)} of {counted(report.selection.available_cases, 'case')}",
                cases=len(report.per_case),
                available_cases=report.selection.available_cases,
            )
        yield from whereabouts(evidence)
        if started.policy_digest is None:
            yield reason("no_policy", "the run was started without a policy file")
        elif started.policy_digest != self._policy.digest:
            yield reason("policy_changed", "the run was started under another policy")
        if not started.isolation.holds or started.isolation.isolation_class != report.isolation_class:
            # A verified log cannot have it, but evidence that was built by hand can.
            yield reason(
                "unproved_isolation", f"no proof shows that the rubrics ran in class {report.isolation_class}"
            )
        if evidence.executed_unconfined:
            yield reason("unconfined_execution", "the steps of cases executed the agent's code unconfined")
        yield from self._missing(evidence)
        if evidence.bench is None:
            yield reason("bench_missing", "there is no readable bench to compare the run with")
        elif not evidence.bench.measured_by(started):
            yield reason("bench_changed", "the bench on disk is not the one that the run measured")

    def _missing(self, evidence: Evidence) -> Iterator[Reason]:
        """Yield reasons if measurements of the candidate are missing: bad results may have been left out."""
        if evidence.unfinished_runs:
            yield reason(
                "unfinished_runs",
                f"runs of this agent on these cases that have not finished: {evidence.unfinished_runs}",
                unfinished_runs=evidence.unfinished_runs,
            )
        for run_id in evidence.abandoned_runs:
            if run_id not in self._refunded:
                yield reason(
                    "abandoned_run", f"run {run_id} of the same agent was abandoned and counts as failed"
                )
        if evidence.lost_trials:
            yield reason(
                "lost_trials",
                f"trials of this agent on these cases that were measured and lost: {evidence.lost_trials}",
                lost_trials=evidence.lost_trials,
            )

    def _freshness(self, evidence: Evidence, now: dt.datetime) -> Iterator[Reason]:
        """Check when the agent was last measured. Reuse of stored outputs does not make a run newer."""
        # Only looks of its own classes: a measurement elsewhere does not count for this one.
        looks = [
            look
            for look in (evidence.look, *evidence.other_looks)
            if (look.isolation_class, look.sut_boundary)
            == (evidence.look.isolation_class, evidence.look.sut_boundary)
        ]
        measured = [look for look in looks if look.measures]
        if not measured:
            yield reason(
                "reused",
                f"{counted(evidence.look.reused, 'output')} from the store, and no run asked the agent"
                " for every output; --no-cache does",
                reused=evidence.look.reused,
            )
        # A look with a wrong clock still counts as a look, but not as the newest measurement.
        arrived = [look for look in measured or looks if _dated(look) - now <= _CLOCK_SLACK]
        newest = max(arrived or measured or looks, key=lambda look: look.started_at)
        last = max(_dated(newest), _dated(evidence.look))
        if not last - now <= _CLOCK_SLACK:
            yield reason("future", f"the run is dated {last:%Y-%m-%d}, which is in the future")
        # Measured from the start: a resume does not make older measurements newer.
        age = (now - newest.started_at).days
        if not age <= self._policy.maximum_age_days:
            yield reason(
                "too_old",
                f"the agent was last measured {counted(age, 'day')} ago;"
                f" the policy allows at most {self._policy.maximum_age_days}",
                age_days=age,
                maximum_age_days=self._policy.maximum_age_days,
            )

    def _tier(self, evidence: Evidence, tier: str) -> Iterator[Reason]:
        """Yield the requirements of the tier itself that are not met."""
        started, report = evidence.started, evidence.report
        least = self._policy.minimum_isolation[tier]
        if not ISOLATION_ORDER.index(report.isolation_class) >= ISOLATION_ORDER.index(least):
            yield reason("isolation", f"rubrics ran in class {report.isolation_class}; {tier} needs {least}")
        yield from too_little_confined(evidence, tier, self._policy)
        held_out = sum(case.curation_class == "held-out" for case in started.cases)
        if not held_out >= self._policy.minimum_held_out[tier]:
            yield reason(
                "held_out",
                f"{counted(held_out, 'held-out case')}; {tier} needs {self._policy.minimum_held_out[tier]}",
                held_out=held_out,
                minimum_held_out=self._policy.minimum_held_out[tier],
            )
        minimum = started.min_cases_for_promotion.get(tier)
        refunded = evidence.look.run_id in self._refunded
        passed = report.passed_count - (0 if refunded else evidence.look.interrupted_cases_passed)
        if minimum is None:
            yield reason("tier_not_declared", f"the bench does not declare the tier {tier}")
        elif not passed >= minimum:
            yield reason(
                "min_cases",
                f"{counted(passed, 'case')} passed; the bench asks for {minimum}",
                passed=passed,
                minimum=minimum,
            )

    def _bounds(self, evidence: Evidence, threshold: float, certified: float) -> Iterator[Reason]:
        """Yield the bounds that are too low, of this run and of every other look at the same candidate."""
        report = evidence.report
        below = f"is below {threshold}"
        if not certified >= threshold:
            yield reason(
                "certified_bound",
                f"certified lower bound {floor3(certified)} {below}",
                certified_lower=certified,
                threshold=threshold,
            )
        if not report.lower_bound_95 >= threshold:
            yield reason(
                "bca_bound",
                f"BCa lower bound {floor3(report.lower_bound_95)} {below}",
                lower_bound_95=report.lower_bound_95,
                threshold=threshold,
            )
        # If BCa is undefined, its field holds the certified value, which counts passes and ignores scores.
        if report.lower_bound_95_status != "ok" and not report.mean_score >= threshold:
            yield reason(
                "mean_score",
                f"all units have the same score, and their mean {floor3(report.mean_score)} {below}",
                mean_score=report.mean_score,
                threshold=threshold,
            )
        for look in evidence.other_looks:
            if not self._certified(look) >= threshold:
                yield reason(
                    "other_look",
                    f"run {look.run_id} of the same agent on the same cases does not reach the threshold",
                    certified_lower=self._certified(look),
                    threshold=threshold,
                )


def units_needed(threshold: float, alpha: float) -> int | None:
    """Return how many units must pass, all without a failure, before any rule can certify `threshold`.

    None if a bench cannot hold so many units.
    """
    if not 0.0 < threshold < 1.0 or math.log(alpha) / math.log(threshold) > LIMITS.cases:
        return None
    needed = max(1, math.ceil(math.log(alpha) / math.log(threshold)) - 1)
    while clopper_pearson_lower(needed, needed, alpha) < threshold:
        needed += 1
    return needed


def _whose(report: BenchRunReport) -> dict[str, Any]:
    """Return the fields that name the run and the system under test of a verdict."""
    return {
        "task_class": report.task_class,
        "run_id": report.run_id,
        "sut": report.sut.spec,
        "sut_version": report.sut.version,
        "sut_identity_digest": report.sut_identity_digest,
        "sut_boundary": report.sut_boundary,
        "sut_network": report.sut_network,
    }


def _too_few(look: Look, threshold: float, needed: int | None) -> Iterator[Reason]:
    if needed is None:
        text = f"a bench cannot hold enough units to certify {threshold}"
        yield reason("too_few_units", text, units=look.units, threshold=threshold)
    elif not look.units >= needed:
        yield reason(
            "too_few_units",
            f"the run has {counted(look.units, 'unit')}; at least {needed} must pass to certify {threshold}",
            units=look.units,
            units_needed=needed,
            threshold=threshold,
        )


def _countable(look: Look) -> bool:
    return 0 <= look.units_passed <= look.units <= LIMITS.cases


def _dated(look: Look) -> dt.datetime:
    return max(look.started_at, look.ended_at)


def _advice(codes: set[str]) -> Literal["sufficient", "insufficient", "inconclusive"]:
    if not codes:
        return "sufficient"
    return "inconclusive" if "too_few_units" in codes and codes <= _FEW_UNITS else "insufficient"
