"""What the gate judges: what the verified log proves about one run, and the bench on disk as it is today."""

from collections.abc import Mapping
from dataclasses import dataclass

from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Look
from codegenie.eval.models import BenchCase, BenchRunReport, Severity


@dataclass(frozen=True, slots=True)
class BenchOnDisk:
    """What the bench on disk says today about everything by which a run was judged."""

    cases: tuple[BenchCase, ...]
    rubric_digest: str
    taxonomy_digest: str
    breakdown_keys: tuple[str, ...]
    severities: Mapping[str, Severity]
    minimums: Mapping[str, int]

    def measured_by(self, started: RunStarted) -> bool:
        """Say whether a run measured exactly this bench.

        Compares all that a start says about the cases, not only their digests: families decide how many units
        there are, and a digest in a log does not stop a forger from writing other families.
        """
        # A partial run is compared on its own cases. The gate has another reason against partial runs.
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
    """What the verified log proves about one run and the runs around it, and today's bench on disk."""

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
