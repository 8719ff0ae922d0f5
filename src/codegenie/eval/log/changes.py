"""What a trial of the log changed, and which earlier run made the parts that it reused.

The change is computed from two parts, each found by its digest: the input of the case, if a bench root still
holds exactly the case that was measured, and the output that was kept.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegenie.eval.bench.copies import read_case_parts
from codegenie.eval.bench.loading import BenchRoot, bench_roots
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import BenchCaseDigestMismatch
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.diff import Change, change_of
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.log.records import RunFinished, RunStarted
from codegenie.eval.log.runs import RunEntry


def trial_change(started: RunStarted, trial: TrialEvidence, output: bytes, bench_root: BenchRoot) -> Change:
    """Compute what an output changes in the input of its case."""
    document = decode_json(output, LIMITS.sut_output_bytes)
    return change_of(document, _input_of(started, trial.case_id, bench_root))


def _input_of(started: RunStarted, case_id: str, bench_root: BenchRoot) -> Mapping[str, bytes] | str:
    """Return the input of a case as it was measured, or say why it is not available here."""
    (digest,) = (case.digest for case in started.cases if case.case_id == case_id)
    places = [root / started.task_class / "cases" for root in bench_roots(bench_root)]
    here = [place for place in places if os.path.isdir(place / case_id)]
    for place in here:
        try:
            return read_case_parts(place, case_id, digest, {"input"})["input"]
        except BenchCaseDigestMismatch:
            continue
    looked_in = ", ".join(str(place / case_id) for place in here or places)
    if here:
        return f"the case has changed since it was measured ({looked_in})"
    return f"the case is not here ({looked_in}); name the directory of its bench with --bench-root"


@dataclass(frozen=True, slots=True)
class Origin:
    """The runs that made the output and the score of a trial; None if the log does not hold that run."""

    output: str | None
    score: str | None

    def told(self, reused: str) -> str | None:
        """Describe the origin in words; None for a trial that reused nothing."""
        elsewhere = "an earlier run, which this log does not hold"
        runs = {"output": self.output, "score": self.score}
        parts = [
            f"{name} by {'run ' + run if run else elsewhere}"
            for name, run in runs.items()
            if reused in {name, "both"}
        ]
        return ", ".join(parts) or None


def origin_of(log: VerifiedLog, entry: RunEntry, trial: TrialEvidence) -> Origin:
    """Find the runs that made what a trial reused: the newest earlier run that made the same bytes.

    The store keeps what was made last, and the log says for every trial which parts its own run made.
    """
    own = log.started(entry)
    output = score = None
    for earlier, finished in _before(log, entry) if trial.reused != "none" else ():
        for other in finished.trials:
            if other.case_id != trial.case_id or not _same_output(other, trial):
                continue
            if other.reused in {"none", "score"} and _same_agent(finished, own):
                output = output or earlier.run_id
            if other.reused in {"none", "output"} and _same_judge(finished, own):
                score = score or earlier.run_id
        if output and score:
            break
    return Origin(
        output if trial.reused in {"output", "both"} else entry.run_id,
        score if trial.reused in {"score", "both"} else entry.run_id,
    )


def _before(log: VerifiedLog, entry: RunEntry) -> Iterator[tuple[RunEntry, RunFinished]]:
    for earlier in log.history.of_class(entry.task_class):
        if earlier.started_index < entry.started_index and earlier.finished_index is not None:
            yield earlier, log.finished(earlier)


def _same_output(one: TrialEvidence, other: TrialEvidence) -> bool:
    outputs = [_output_digest(trial) for trial in (one, other)]
    # A system under test that failed has no output. In that case its failure was reused.
    return outputs[0] == outputs[1] and (outputs[0] is not None or one.answer == other.answer)


def _output_digest(trial: TrialEvidence) -> str | None:
    return next(
        (digest for name, digest in sorted(trial.artifacts.items()) if name.startswith("output")), None
    )


def _same_agent(earlier: RunFinished, own: RunStarted) -> bool:
    return earlier.report.sut_identity_digest == own.sut_identity_digest


def _same_judge(earlier: RunFinished, own: RunStarted) -> bool:
    report, own_class = earlier.report, own.isolation.isolation_class
    return (report.rubric_digest, report.isolation_class) == (own.rubric_digest, own_class)
