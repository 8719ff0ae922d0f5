"""What the gate judges: what the verified log proves of one run, and the bench as it lies on disk today."""

from collections.abc import Mapping
from dataclasses import dataclass

from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Look
from codegenie.eval.models import BenchCase, BenchRunReport, Severity


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
        # A partial run measured some of them; that it did so is a reason of its own.
        planned = {case.case_id for case in started.cases}
        whole = started.selection.kind == "all"
        cases = tuple(case for case in self.cases if whole or case.case_id in planned)
        return (
            cases == started.cases
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
    abandoned_runs: tuple[str, ...] = ()
    runs_elsewhere: int = 0
    candidates_tried: int = 1
    resumed: int = 0
    lost_trials: int = 0
    mean_over_units: float | None = None
    bench: BenchOnDisk | None = None
