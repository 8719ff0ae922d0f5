"""The records of the audit log: what was planned before the first agent was asked, and what came of it.

A log alone must be enough to recompute every number, so a start holds the rules of judgement and a finish
holds every validated answer. Closed and versioned: a field that is not here does not exist. Lists fail at
their first item that does not hold: an error for each of a million takes gigabytes.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, FailFast, Field, StringConstraints

from codegenie.eval.canonical import canonical_json, canonical_pieces, digest_fields, spelled
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    BenchCase,
    BenchRunReport,
    Code,
    Digest,
    FrozenMap,
    Identifier,
    Record,
    Selection,
    Sentence,
    Severity,
    SutBoundary,
    SutIdentity,
    Text,
    UnitRule,
    is_nothing,
)

GENESIS = "0" * 64


# Places for the long lists of a record. Half a character stands in no text that can be written.
_CASES, _PER_CASE, _TRIALS = "\ud800cases", "\ud800per_case", "\ud800trials"


RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]


class RunStarted(Record):
    """Everything that decides a run, written down before it."""

    plan_digest: Digest
    task_class: Identifier
    harness_version: Text
    sut: SutIdentity
    sut_identity_digest: Digest
    sut_boundary: SutBoundary
    rubric_digest: Digest
    taxonomy_digest: Digest
    case_set_digest: Digest
    policy_digest: Digest | None
    isolation: IsolationProof
    selection: Selection
    trials: Annotated[int, Field(ge=1, le=LIMITS.trials)]
    cases: Annotated[tuple[BenchCase, ...], FailFast(), Field(min_length=1)]
    breakdown_keys: Annotated[tuple[Code, ...], FailFast()]
    severities: Annotated[dict[str, Severity], AfterValidator(FrozenMap)]
    min_cases_for_promotion: Annotated[dict[str, Annotated[int, Field(ge=1)]], AfterValidator(FrozenMap)]
    # By which rule the report counts its units. Left out of the spelling of records that are older than it.
    unit_rule: Annotated[UnitRule, Field(exclude_if="family".__eq__)] = "family"


class RunResumed(Record):
    """A run that died was taken up again, with this much of it already measured."""

    finished_trials: Annotated[int, Field(ge=0)]
    # Trials for which the agent had been asked and nothing had come of it yet.
    interrupted_trials: Annotated[int, Field(ge=0, exclude_if=is_nothing)] = 0


class RunAbandoned(Record):
    """A human closed a run that will not finish. It counts as failed, whatever it had measured."""

    because: Sentence


class RunFinished(Record):
    """The report of a run and the evidence that it is computed from."""

    report: BenchRunReport
    trials: Annotated[tuple[TrialEvidence, ...], FailFast()]
    # The hash of the journal, which lies among the artefacts from now on.
    journal: Annotated[Digest | None, Field(exclude_if=is_nothing)] = None


class ExamFinished(Record):
    """A bench's exam: which of the hostile agents it let pass. Written by `attack`."""

    task_class: Identifier
    case_set_digest: Digest
    rubric_digest: Digest
    passed: bool
    findings: Annotated[tuple[Text, ...], Field(max_length=LIMITS.findings)] = ()


class LogRecord(Record):
    """One link of the chain. The hash is over the raw bytes of its file."""

    schema_id: Literal["codegenie.eval.record/1"] = Field("codegenie.eval.record/1", alias="schema")
    index: Annotated[int, Field(ge=0)]
    previous: Digest
    run_id: RunId
    recorded_at: AwareDatetime


class StartedRecord(LogRecord):
    """Before the first agent is asked."""

    kind: Literal["run.started"] = "run.started"
    body: RunStarted


class ResumedRecord(LogRecord):
    """When a dead run is taken up again."""

    kind: Literal["run.resumed"] = "run.resumed"
    body: RunResumed


class AbandonedRecord(LogRecord):
    """When a run that never finished is closed as a failed one."""

    kind: Literal["run.abandoned"] = "run.abandoned"
    body: RunAbandoned


class FinishedRecord(LogRecord):
    """When every planned trial has its score."""

    kind: Literal["run.finished"] = "run.finished"
    body: RunFinished


class ExamRecord(LogRecord):
    """When a bench has been examined."""

    kind: Literal["exam.finished"] = "exam.finished"
    body: ExamFinished


AnyRecord = Annotated[
    StartedRecord | ResumedRecord | AbandonedRecord | FinishedRecord | ExamRecord,
    Field(discriminator="kind"),
]


RECORD_OF_BODY: dict[type[Record], type[LogRecord]] = {
    RunStarted: StartedRecord,
    RunResumed: ResumedRecord,
    RunAbandoned: AbandonedRecord,
    RunFinished: FinishedRecord,
    ExamFinished: ExamRecord,
}


def start_digest(started: RunStarted) -> str:
    """Hash what of a start decides the measurement: what a run must share with a dead one to continue it.

    Of the isolation only its class: a machine that died often comes back with another kernel.
    """
    document = started.model_dump(mode="json", exclude={"cases", "isolation"})
    document |= {"cases": _CASES, "isolation_class": started.isolation.isolation_class}
    pieces = canonical_pieces(document, {_CASES: map(spelled, started.cases)})
    return digest_fields("run-start.v2", [b"".join(pieces)])


def record_pieces(record: LogRecord, trials: Iterable[bytes] = ()) -> Iterator[bytes]:
    """Yield the one spelling of a record of the log, its long lists item by item.

    `trials` are further trials of a finish that are spelled already.
    """
    if isinstance(record, StartedRecord):
        document = record.model_dump(mode="json", exclude={"body": {"cases"}})
        document["body"]["cases"] = _CASES
        return canonical_pieces(document, {_CASES: map(spelled, record.body.cases)})
    if isinstance(record, FinishedRecord):
        document = record.model_dump(mode="json", exclude={"body": {"trials": True, "report": {"per_case"}}})
        document["body"]["report"]["per_case"] = _PER_CASE
        document["body"]["trials"] = _TRIALS
        scores = (
            canonical_json([case_id, score.model_dump(mode="json")])
            for case_id, score in record.body.report.per_case
        )
        evidence = chain(map(spelled, record.body.trials), trials)
        return canonical_pieces(document, {_PER_CASE: scores, _TRIALS: evidence})
    return iter([spelled(record)])
