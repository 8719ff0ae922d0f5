"""The records of the audit log: what was planned before the first agent was asked, and what the result was.

The log alone must be enough to recompute every number. So a start holds the rules of judgement, and a finish
holds every validated answer. The schemas are closed and versioned: unknown fields are refused. Validation of
a list stops at its first bad item, because an error for each of a million items takes gigabytes.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, FailFast, Field, StringConstraints

from codegenie.eval.canonical import canonical_json, canonical_pieces, digest_fields, spelled
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.isolation_proof import BoxProof, IsolationProof
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
    SutNetwork,
    Text,
    UnitRule,
    is_nothing,
)

GENESIS = "0" * 64


# Placeholders for the long lists of a record. A lone surrogate cannot occur in valid UTF-8, so this is safe.
_CASES, _PER_CASE, _TRIALS = "\ud800cases", "\ud800per_case", "\ud800trials"


RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]


class RunStarted(Record):
    """Everything that decides a run, recorded before it."""

    plan_digest: Digest
    task_class: Identifier
    harness_version: Text
    sut: SutIdentity
    sut_identity_digest: Digest
    sut_boundary: SutBoundary
    # What was proved about the box of the system under test, and what it could reach.
    sut_isolation: Annotated[BoxProof | None, Field(exclude_if=is_nothing)] = None
    sut_network: Annotated[SutNetwork | None, Field(exclude_if=is_nothing)] = None
    sut_upstream: Annotated[Text | None, Field(exclude_if=is_nothing)] = None
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
    # The rule by which the report counts its units. Left out of records that are older than the rule.
    unit_rule: Annotated[UnitRule, Field(exclude_if="family".__eq__)] = "family"


RUN_FACTS = (
    "task_class",
    "harness_version",
    "sut",
    "sut_identity_digest",
    "rubric_digest",
    "taxonomy_digest",
    "case_set_digest",
    "policy_digest",
    "sut_boundary",
    "sut_network",
    "sut_upstream",
    "selection",
    "trials",
)
"""The fields that a report repeats from the start of its run. Verification compares all of them."""


class RunResumed(Record):
    """A dead run was resumed, with this many trials already measured."""

    finished_trials: Annotated[int, Field(ge=0)]
    # Trials for which the agent had been asked and no outcome was known.
    interrupted_trials: Annotated[int, Field(ge=0, exclude_if=is_nothing)] = 0


class RunAbandoned(Record):
    """A human closed a run that will not finish. It counts as failed, whatever it had measured."""

    because: Sentence
    # The hash of the journal, which is now stored with the artefacts.
    journal: Annotated[Digest | None, Field(exclude_if=is_nothing)] = None


class RunFinished(Record):
    """The report of a run and the evidence from which it is computed."""

    report: BenchRunReport
    trials: Annotated[tuple[TrialEvidence, ...], FailFast()]
    # The hash of the journal, which is now stored with the artefacts.
    journal: Annotated[Digest | None, Field(exclude_if=is_nothing)] = None


class ExamFinished(Record):
    """A bench's exam: which of the hostile agents passed it. Written by `attack`."""

    task_class: Identifier
    case_set_digest: Digest
    rubric_digest: Digest
    passed: bool
    findings: Annotated[tuple[Text, ...], Field(max_length=LIMITS.findings)] = ()


class LogRecord(Record):
    """One link of the chain. Its hash is over the raw bytes of its file."""

    # The second schema has what boxes and the broker add. Records of the first one still verify.
    schema_id: Literal["codegenie.eval.record/1", "codegenie.eval.record/2"] = Field(
        "codegenie.eval.record/2", alias="schema"
    )
    index: Annotated[int, Field(ge=0)]
    previous: Digest
    run_id: RunId
    recorded_at: AwareDatetime


class StartedRecord(LogRecord):
    """Written before the first agent is asked."""

    kind: Literal["run.started"] = "run.started"
    body: RunStarted


class ResumedRecord(LogRecord):
    """Written when a dead run is resumed."""

    kind: Literal["run.resumed"] = "run.resumed"
    body: RunResumed


class AbandonedRecord(LogRecord):
    """Written when a run that never finished is closed as failed."""

    kind: Literal["run.abandoned"] = "run.abandoned"
    body: RunAbandoned


class FinishedRecord(LogRecord):
    """Written when every planned trial has its score."""

    kind: Literal["run.finished"] = "run.finished"
    body: RunFinished


class ExamRecord(LogRecord):
    """Written when a bench has been examined."""

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
    """Hash the part of a start that decides the measurement. Only a run with the same hash can be resumed.

    Only the class of the isolation is included: a machine that crashed may restart with another kernel.
    """
    document = started.model_dump(mode="json", exclude={"cases", "isolation", "sut_isolation"})
    document |= {"cases": _CASES, "isolation_class": started.isolation.isolation_class}
    pieces = canonical_pieces(document, {_CASES: map(spelled, started.cases)})
    return digest_fields("run-start.v2", [b"".join(pieces)])


def record_pieces(record: LogRecord, trials: Iterable[bytes] = ()) -> Iterator[bytes]:
    """Yield the canonical bytes of a record of the log, its long lists item by item.

    `trials` are further trials of a finish, given as canonical bytes.
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
