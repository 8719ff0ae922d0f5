"""The records of the audit log: what was planned before the first agent was asked, and what came of it.

A log alone must be enough to recompute every number, so a start holds the rules of judgement and a finish
holds every validated answer. Closed and versioned: a field that is not here does not exist.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from codegenie.eval.canonical import digest_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    BenchCase,
    BenchRunReport,
    Breakdown,
    Code,
    Digest,
    FailureMode,
    FrozenMap,
    Identifier,
    IsolationClass,
    Record,
    Selection,
    Severity,
    Share,
    SutBoundary,
    SutIdentity,
)

GENESIS = "0" * 64
RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]


class Answer(Record):
    """The validated answer on one trial, before the block rule is applied to it."""

    passed: bool
    score: Share
    breakdown: Breakdown = Field(default_factory=FrozenMap)
    failure_modes: tuple[FailureMode, ...] = ()


class TrialEvidence(Record):
    """One trial as it was measured: the answer, what it cost, and the hashes of what it left behind."""

    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]
    answer: Answer
    cost_usd: Annotated[float, Field(ge=0)] | None
    wall_clock_ms: Annotated[int, Field(ge=0)]
    # What of it comes from the store. Only a trial whose output was made in the run measures the agent.
    reused: Literal["none", "output", "score", "both"] = "none"
    artifacts: Annotated[dict[str, Digest], AfterValidator(FrozenMap)] = Field(default_factory=FrozenMap)


class ProbeResult(Record):
    """One probe of the isolation, as it came out at start."""

    name: Identifier
    blocked: bool


class IsolationProof(Record):
    """What was proved of the isolation before the run, and on which kernel."""

    isolation_class: IsolationClass
    kernel: str
    landlock_abi: int | None = None
    probes: tuple[ProbeResult, ...] = ()


class RunStarted(Record):
    """Everything that decides a run, written down before it."""

    plan_digest: Digest
    task_class: Identifier
    harness_version: str
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
    cases: Annotated[tuple[BenchCase, ...], Field(min_length=1)]
    breakdown_keys: tuple[Code, ...]
    severities: Annotated[dict[str, Severity], AfterValidator(FrozenMap)]
    min_cases_for_promotion: Annotated[dict[str, Annotated[int, Field(ge=1)]], AfterValidator(FrozenMap)]


class RunResumed(Record):
    """A run that died was taken up again, with this much of it already measured."""

    finished_trials: Annotated[int, Field(ge=0)]


class RunFinished(Record):
    """The report of a run and the evidence that it is computed from."""

    report: BenchRunReport
    trials: tuple[TrialEvidence, ...]


class ExamFinished(Record):
    """A bench's exam: which of the hostile agents it let pass. Written by `attack`."""

    task_class: Identifier
    case_set_digest: Digest
    rubric_digest: Digest
    passed: bool
    findings: tuple[str, ...] = ()


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


class FinishedRecord(LogRecord):
    """When every planned trial has its score."""

    kind: Literal["run.finished"] = "run.finished"
    body: RunFinished


class ExamRecord(LogRecord):
    """When a bench has been examined."""

    kind: Literal["exam.finished"] = "exam.finished"
    body: ExamFinished


AnyRecord = Annotated[
    StartedRecord | ResumedRecord | FinishedRecord | ExamRecord, Field(discriminator="kind")
]

RECORD_OF_BODY: dict[type[Record], type[LogRecord]] = {
    RunStarted: StartedRecord,
    RunResumed: ResumedRecord,
    RunFinished: FinishedRecord,
    ExamFinished: ExamRecord,
}


def identity_digest(identity: SutIdentity) -> str:
    """Hash which system was measured."""
    return digest_json("sut-identity.v1", identity.model_dump(mode="json"))


def start_digest(started: RunStarted) -> str:
    """Hash all that a start says: what a run must share with a dead one to be its continuation."""
    return digest_json("run-start.v1", started.model_dump(mode="json"))
