"""What the gate judges: what the verified log proves about one run, and the bench on disk as it is today."""

from dataclasses import dataclass

from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Look
from codegenie.eval.models import BenchCase, BenchRunReport, TaskClass


@dataclass(frozen=True, slots=True)
class BenchOnDisk:
    """A bench as it is on the disk today, to be compared with what the start of a run says about it."""

    task_class: TaskClass
    cases: tuple[BenchCase, ...]

    def still_judges(self, started: RunStarted) -> bool:
        """Say whether the cases of a run, and the rules by which it was judged, have the same digests.

        Then its outputs can be judged again. A case that was added since does not matter to them.
        """
        digests = {case.case_id: case.digest for case in self.cases}
        return (
            self.task_class.rubric_digest == started.rubric_digest
            and self.task_class.taxonomy_digest == started.taxonomy_digest
            and all(digests.get(case.case_id) == case.digest for case in started.cases)
        )

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
            self.still_judges(started)
            and cases == started.cases
            and self._agrees_on_taxonomy(started)
            and dict(self.task_class.min_cases_for_promotion) == dict(started.min_cases_for_promotion)
        )

    def _agrees_on_taxonomy(self, started: RunStarted) -> bool:
        severities = {code: spec.severity for code, spec in self.task_class.taxonomy.items()}
        keys = self.task_class.breakdown_keys
        return severities == dict(started.severities) and keys == started.breakdown_keys

    def contradiction(self, started: RunStarted) -> str | None:
        """Say where a start contradicts the bench about cases or a taxonomy that have the same digest.

        A family decides what a unit is, so a forged family makes a better bound out of honest answers.
        """
        cases = {case.case_id: case for case in self.cases}
        for case in started.cases:
            here = cases.get(case.case_id)
            if here is not None and here.digest == case.digest and here != case:
                return f"case {case.case_id} has this digest, but the bench describes it differently"
        same_taxonomy = started.taxonomy_digest == self.task_class.taxonomy_digest
        if same_taxonomy and not self._agrees_on_taxonomy(started):
            return "the taxonomy with this digest has other severities or keys"
        return None


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

    @property
    def executed_unconfined(self) -> bool:
        """Say whether code of the agent was executed where nothing confined it."""
        unconfined = self.report.isolation_class == "subprocess"
        return unconfined and any(case.execute for case in self.started.cases)
