"""The promotion gate: what the verified log proves, against the policy. It advises; a human promotes.

`evaluate` is pure and never raises on evidence: everything that speaks against promotion becomes a reason of
its own. The number that decides is the certified lower bound on the share of units passed (ADR-0009), and
every comparison is written so that a value that is no number fails it.
"""

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from codegenie.eval.errors import IncompleteReportForPromotion, PromotionMustBeHumanAuthorized
from codegenie.eval.estimators import clopper_pearson_lower
from codegenie.eval.evidence import RunStarted
from codegenie.eval.history import Look
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, BenchRunReport, Record, Severity, SutBoundary
from codegenie.eval.tiers import ISOLATION_ORDER, TierPolicy
from codegenie.eval.wording import counted

# The level of `lower_bound_95`, which a perfect run has to reach as well, whatever the policy allows.
_HEADLINE_ALPHA = 0.05
# Two machines' clocks differ; a day of it buys nobody anything, since a run is good for weeks.
_CLOCK_SLACK = dt.timedelta(days=1)


class PromotionVerdict(Record):
    """The gate's advice on one run and one tier, with all that speaks against it."""

    verdict: Literal["sufficient", "insufficient", "inconclusive"]
    tier: str
    task_class: str
    run_id: str
    sut: str
    sut_boundary: SutBoundary
    alpha: float
    reasons: tuple[str, ...] = ()
    threshold: float | None = None
    certified_lower: float | None = None
    units: int = 0
    units_needed: int | None = None
    looks: int = 1
    unfinished_runs: int = 0
    runs_elsewhere: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class BenchOnDisk:
    """What the bench says today of all that a run was judged by."""

    cases: tuple[BenchCase, ...]
    rubric_digest: str
    taxonomy_digest: str
    breakdown_keys: tuple[str, ...]
    severities: Mapping[str, Severity]
    minimums: Mapping[str, int]

    def measured_by(self, started: RunStarted) -> bool:
        """Say whether a run measured this bench and no other.

        By what a start says of the cases and not by their digests alone: families decide how many units
        there are, and no digest in a log keeps a forger from naming others.
        """
        return (
            self.cases == started.cases
            and self.rubric_digest == started.rubric_digest
            and self.taxonomy_digest == started.taxonomy_digest
            and self.breakdown_keys == started.breakdown_keys
            and dict(self.severities) == dict(started.severities)
            and dict(self.minimums) == dict(started.min_cases_for_promotion)
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the verified log proves of one run and of the runs around it, and the bench of today."""

    started: RunStarted
    report: BenchRunReport
    look: Look
    other_looks: tuple[Look, ...] = ()
    unfinished_runs: int = 0
    runs_elsewhere: int = 0
    resumed: int = 0
    lost_trials: int = 0
    bench: BenchOnDisk | None = None


# All that follows from too few units, and so does not speak against the agent.
_FEW_UNITS = {"too_few_units", "certified_bound", "bca_bound", "other_look"}


class PromotionGate:
    """Judges evidence by a policy. Holds no power to act on it."""

    def __init__(self, policy: TierPolicy) -> None:
        self._policy = policy

    def evaluate(self, evidence: Evidence, tier: str, now: dt.datetime) -> PromotionVerdict:
        """Return the advice for `tier`; never raises on evidence."""
        report = evidence.report
        reasons = [*self._standing(evidence), *self._freshness(evidence, now)]
        threshold = self._policy.thresholds.get(tier)
        certified, needed = self._certified(report), None
        if threshold is None:
            reasons.append(_reason("unknown_tier", f"the policy has no tier {tier!r}"))
        elif not 0.0 < threshold <= 1.0:
            # A loaded policy cannot hold it; a record made around validation can.
            reasons.append(_reason("bad_threshold", f"the threshold of {tier} is no share of one"))
            threshold = None
        else:
            needed = units_needed(threshold, min(self._policy.alpha, _HEADLINE_ALPHA))
            reasons += self._tier(evidence, tier)
            reasons += _too_few(report, threshold, needed)
            reasons += self._bounds(evidence, threshold, certified)
        return PromotionVerdict(
            verdict=_advice({reason.partition(":")[0] for reason in reasons}),
            tier=tier,
            task_class=report.task_class,
            run_id=report.run_id,
            sut=report.sut.spec,
            sut_boundary=report.sut_boundary,
            alpha=self._policy.alpha,
            reasons=tuple(reasons),
            threshold=threshold,
            certified_lower=certified,
            units=report.units,
            units_needed=needed,
            looks=1 + len(evidence.other_looks) + evidence.unfinished_runs,
            unfinished_runs=evidence.unfinished_runs,
            runs_elsewhere=evidence.runs_elsewhere,
            resumed=evidence.resumed,
        )

    def evaluate_report(self, report: BenchRunReport, tier: str) -> PromotionVerdict:
        """Judge a bare report. It proves nothing, so it is never sufficient; an incomplete one is refused."""
        if not report.complete:
            raise IncompleteReportForPromotion(
                f"the report of run {report.run_id} lacks verdicts",
                hint="resume the run, then judge it from the log",
            )
        reason = _reason("not_from_the_log", "a report outside the verified log is no evidence")
        return PromotionVerdict(
            verdict="insufficient",
            tier=tier,
            task_class=report.task_class,
            run_id=report.run_id,
            sut=report.sut.spec,
            sut_boundary=report.sut_boundary,
            alpha=self._policy.alpha,
            reasons=(reason,),
        )

    def apply(self) -> NoReturn:
        """Refuse: the gate advises, and promotion is a human's edit of the policy file (ADR-0012)."""
        raise PromotionMustBeHumanAuthorized(
            "the gate does not promote", hint="edit current_tiers in trust-tiers.yaml, and have it reviewed"
        )

    def _certified(self, run: BenchRunReport | Look) -> float:
        """Return the certified bound at the policy's level; nothing for numbers that no run can have."""
        if not _countable(run):
            return 0.0
        return clopper_pearson_lower(run.units_passed, run.units, self._policy.alpha)

    def _standing(self, evidence: Evidence) -> Iterator[str]:
        """Ask whether this run may be evidence at all, whatever it found."""
        started, report = evidence.started, evidence.report
        if not report.complete:
            yield _reason(
                "incomplete",
                f"it did not measure {counted(report.infrastructure_fault_count, 'planned case')}",
            )
        if not _countable(report):
            yield _reason(
                "inconsistent", f"{report.units_passed} of {counted(report.units, 'unit')} cannot have passed"
            )
        if report.selection.kind != "all":
            yield _reason(
                "partial",
                f"it ran {len(report.per_case)} of {counted(report.selection.available_cases, 'case')}",
            )
        if report.sut_boundary == "in-process":
            yield _reason("in_process", "the system under test ran inside the harness's own process")
        if started.policy_digest is None:
            yield _reason("no_policy", "the run was started without a policy file")
        elif started.policy_digest != self._policy.digest:
            yield _reason("policy_changed", "the policy is not the one that the run was started under")
        if not started.isolation.holds or started.isolation.isolation_class != report.isolation_class:
            # A verified log cannot hold it; evidence that was put together by hand can.
            yield _reason(
                "unproved_isolation", f"nothing proves that its rubrics ran in class {report.isolation_class}"
            )
        yield from _missing(evidence)
        if evidence.bench is None:
            yield _reason("bench_missing", "there is no readable bench to compare the run with")
        elif not evidence.bench.measured_by(started):
            yield _reason("bench_changed", "the bench on disk is not the one that the run measured")

    def _freshness(self, evidence: Evidence, now: dt.datetime) -> Iterator[str]:
        """Ask when the agent was last measured: taking outputs from a store makes no run younger."""
        # Of its own class only: what was measured in another does not speak for this one.
        looks = [
            look
            for look in (evidence.look, *evidence.other_looks)
            if look.isolation_class == evidence.look.isolation_class
        ]
        measured = [look for look in looks if look.measures]
        if not measured:
            yield _reason(
                "reused",
                f"{counted(evidence.look.reused, 'output')} from a store, and no run asked the agent for all;"
                " --no-cache does",
            )
        newest = max(measured or looks, key=lambda look: look.started_at)
        last = max(newest.started_at, newest.ended_at)
        if not last - now <= _CLOCK_SLACK:
            yield _reason("future", f"it is dated {last:%Y-%m-%d}, which has not come yet")
        # By its start: resuming a run does not make young what was measured before it died.
        age = (now - newest.started_at).days
        if not age <= self._policy.maximum_age_days:
            yield _reason(
                "too_old",
                f"it was measured {counted(age, 'day')} ago;"
                f" the policy allows {self._policy.maximum_age_days}",
            )

    def _tier(self, evidence: Evidence, tier: str) -> Iterator[str]:
        """Ask what the tier itself asks for."""
        started, report = evidence.started, evidence.report
        least = self._policy.minimum_isolation[tier]
        if not ISOLATION_ORDER.index(report.isolation_class) >= ISOLATION_ORDER.index(least):
            yield _reason("isolation", f"rubrics ran in class {report.isolation_class}; {tier} needs {least}")
        held_out = sum(case.curation_class == "held-out" for case in started.cases)
        if not held_out >= self._policy.minimum_held_out[tier]:
            yield _reason(
                "held_out",
                f"{counted(held_out, 'held-out case')}; {tier} needs {self._policy.minimum_held_out[tier]}",
            )
        minimum = started.min_cases_for_promotion.get(tier)
        if minimum is None:
            yield _reason("tier_not_declared", f"the bench does not declare the tier {tier}")
        elif not report.passed_count >= minimum:
            yield _reason(
                "min_cases", f"{counted(report.passed_count, 'case')} passed; the bench asks for {minimum}"
            )

    def _bounds(self, evidence: Evidence, threshold: float, certified: float) -> Iterator[str]:
        """Ask what the numbers certify, of this run and of every other look at the same candidate."""
        report = evidence.report
        below = f"is below {threshold}"
        if not certified >= threshold:
            yield _reason("certified_bound", f"certified lower bound {_floor(certified)} {below}")
        if not report.lower_bound_95 >= threshold:
            yield _reason("bca_bound", f"BCa lower bound {_floor(report.lower_bound_95)} {below}")
        # Where BCa says nothing, its field holds the certified value, which knows passes and no scores.
        if report.lower_bound_95_status != "ok" and not report.mean_score >= threshold:
            yield _reason(
                "mean_score", f"all units score alike, and their mean {_floor(report.mean_score)} {below}"
            )
        for look in evidence.other_looks:
            if not self._certified(look) >= threshold:
                yield _reason(
                    "other_look", f"run {look.run_id} of the same agent on the same cases falls short"
                )


def units_needed(threshold: float, alpha: float) -> int | None:
    """Return how many units must pass without a miss before any rule can certify `threshold`.

    None where no bench can hold so many.
    """
    if not 0.0 < threshold < 1.0 or math.log(alpha) / math.log(threshold) > LIMITS.cases:
        return None
    needed = max(1, math.ceil(math.log(alpha) / math.log(threshold)) - 1)
    while clopper_pearson_lower(needed, needed, alpha) < threshold:
        needed += 1
    return needed


def _missing(evidence: Evidence) -> Iterator[str]:
    """Ask whether all that was measured of the candidate is there: what went badly may have been left out."""
    if evidence.unfinished_runs:
        yield _reason(
            "unfinished_runs",
            f"starts of this agent on these cases that have not finished: {evidence.unfinished_runs}",
        )
    if evidence.lost_trials:
        yield _reason(
            "lost_trials",
            f"trials of this agent on these cases that a run had and lost: {evidence.lost_trials}",
        )


def _too_few(report: BenchRunReport, threshold: float, needed: int | None) -> Iterator[str]:
    if needed is None:
        yield _reason("too_few_units", f"no bench holds enough units to certify {threshold}")
    elif not report.units >= needed:
        yield _reason(
            "too_few_units",
            f"{counted(report.units, 'unit')}; no result of fewer than {needed} can certify {threshold}",
        )


def _countable(run: BenchRunReport | Look) -> bool:
    return 0 <= run.units_passed <= run.units <= LIMITS.cases


def _advice(codes: set[str]) -> Literal["sufficient", "insufficient", "inconclusive"]:
    if not codes:
        return "sufficient"
    return "inconclusive" if "too_few_units" in codes and codes <= _FEW_UNITS else "insufficient"


def _reason(code: str, text: str) -> str:
    """Write a reason: a word to branch on, and a sentence to read."""
    return f"{code}: {text}"


def _floor(value: float) -> str:
    """Show three decimals, rounded down."""
    return f"{math.floor(value * 1000 + 1e-9) / 1000:.3f}" if math.isfinite(value) else str(value)
