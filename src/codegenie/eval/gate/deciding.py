"""From a verified log and a policy file to the gate's advice."""

from pathlib import Path

from codegenie.eval.aggregation import UNIT_RULE, mean_over_units, summarise
from codegenie.eval.bench.loading import BenchRoot, load_cases, load_task_class
from codegenie.eval.errors import BenchCaseDigestMismatch, BenchInvalid, TaskClassNotFound, TierConfigInvalid
from codegenie.eval.gate.evidence import BenchOnDisk, Evidence
from codegenie.eval.gate.policy import TierPolicy, read_policy
from codegenie.eval.gate.verdict import PromotionGate, PromotionVerdict
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Look, RunEntry
from codegenie.eval.models import BenchRunReport, Summary
from codegenie.eval.ports import Clock
from codegenie.eval.system.files import UnsafeTree, read_whole_file


def load_policy(path: Path) -> TierPolicy | None:
    """Read the policy file; None if there is no such file. Raises TierConfigInvalid if it is not valid."""
    try:
        # Resolved, because a link to the policy of the organisation is allowed; a pipe or a device is not.
        raw = read_whole_file(path.resolve(), LIMITS.yaml_bytes)
    except UnsafeTree as unsafe:
        raise TierConfigInvalid(f"the policy {unsafe.problem}", where=str(path)) from None
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or "its symbolic links form a loop"
        raise TierConfigInvalid(f"the policy cannot be read: {problem}", where=str(path)) from None
    return None if raw is None else read_policy(raw, str(path))


def bench_on_disk(task_class: str, bench_root: BenchRoot) -> BenchOnDisk | None:
    """Return what the bench on disk says today; None if there is none.

    Raises BenchInvalid if it breaks the contract, and BenchCaseDigestMismatch if a case was changed.
    """
    try:
        loaded = load_task_class(task_class, bench_root=bench_root)
    except TaskClassNotFound:
        return None
    cases, _ = load_cases(loaded, lambda _case_id: True)
    return BenchOnDisk(loaded, cases)


class Gatekeeper:
    """Collects what the gate needs to know about a run, and asks the gate."""

    def __init__(self, log: VerifiedLog, policy: TierPolicy, bench_root: BenchRoot, clock: Clock) -> None:
        self._log = log
        self._gate = PromotionGate(policy)
        self._bench_root = bench_root
        self._clock = clock

    def judge(self, entry: RunEntry, tier: str) -> PromotionVerdict:
        """Return the advice on one run and one tier. A broken bench on disk counts as a missing one.

        Raises NotMeasured if the run has not finished, and ChainTamperDetected if the log has changed.
        """
        history = self._log.history
        try:
            bench = bench_on_disk(entry.task_class, self._bench_root)
        except (BenchInvalid, BenchCaseDigestMismatch):
            bench = None
        started, finished = self._log.started(entry), self._log.finished(entry)
        evidence = Evidence(
            started=started,
            report=_by_todays_units(started, finished.report),
            look=Look.of(finished, started, entry.started_at),
            other_looks=history.other_looks(entry),
            unfinished_runs=history.unfinished(entry),
            abandoned_runs=history.abandoned(entry),
            runs_elsewhere=history.elsewhere(entry),
            candidates_tried=history.candidates_tried(entry),
            resumed=entry.resumed,
            lost_trials=history.lost_trials(entry),
            mean_over_units=mean_over_units(started.cases, finished.report.per_case),
            bench=bench,
        )
        return self._gate.evaluate(evidence, tier, self._clock.now())


def _by_todays_units(started: RunStarted, report: BenchRunReport) -> BenchRunReport:
    """Return a report with its numbers recomputed by today's unit rule, if it used an older rule."""
    if started.unit_rule == UNIT_RULE:
        return report
    summary = summarise(started.cases, report.per_case)
    return report.model_copy(update={name: getattr(summary, name) for name in Summary.model_fields})
