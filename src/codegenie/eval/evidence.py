"""The records of the audit log: what was planned before the first agent was asked, and what came of it.

A log alone must be enough to recompute every number, so a start holds the rules of judgement and a finish
holds every validated answer. Closed and versioned: a field that is not here does not exist. Lists fail at
their first item that does not hold: an error for each of a million takes gigabytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    FailFast,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from codegenie.eval.canonical import canonical_json, canonical_pieces, digest_fields, digest_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    BenchCase,
    BenchRunReport,
    Breakdown,
    Code,
    Cost,
    Digest,
    FailureMode,
    FrozenMap,
    Identifier,
    IsolationClass,
    Record,
    Selection,
    Sentence,
    Severity,
    Share,
    SutBoundary,
    SutIdentity,
    Text,
    UnitRule,
)

GENESIS = "0" * 64
SUT_ENV = " --sut-env "
"""Stands in a spec before each variable that was handed over."""
# Places for the long lists of a record. Half a character stands in no text that can be written.
_CASES, _PER_CASE, _TRIALS = "\ud800cases", "\ud800per_case", "\ud800trials"
RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]


def _is_nothing(value: object) -> bool:
    """Say whether a field is left out that earlier versions did not have: their records must still hold."""
    return not value


class Answer(Record):
    """The validated answer on one trial, before the block rule is applied to it."""

    passed: bool
    score: Share
    breakdown: Breakdown = Field(default_factory=FrozenMap)
    failure_modes: Annotated[tuple[FailureMode, ...], FailFast()] = ()


def answer_weight(answer: Answer) -> int:
    """Return what an answer takes in a record: its bytes, or the cost of its values if that is more."""
    values = 4 * len(answer.failure_modes) + len(answer.breakdown)
    return max(len(canonical_json(answer.model_dump(mode="json"))), values * LIMITS.bytes_per_value)


class TrialEvidence(Record):
    """One trial as it was measured: the answer, what it cost, and the hashes of what it left behind."""

    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]
    answer: Answer
    cost_usd: Cost | None
    wall_clock_ms: Annotated[int, Field(ge=0)]
    # What of it comes from the store. Only a trial whose output was made in the run measures the agent.
    reused: Literal["none", "output", "score", "both"] = "none"
    artifacts: Annotated[dict[str, Digest], AfterValidator(FrozenMap)] = Field(default_factory=FrozenMap)
    # How often the agent was asked for it before, in this run, without an outcome: the run ended meanwhile.
    # Left out when it is 0: the spelling of a trial that was asked once is that of earlier versions.
    interrupted: Annotated[int, Field(ge=0, exclude_if=_is_nothing)] = 0


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKED_IN_EVERY_CLASS = _names("""
    harness-environment harness-memory harness-descriptor process-vm-read ptrace signal-harness
    prlimit-harness pidfd-harness private-file sibling-directory system-file list-root
    write-run-directory write-shared-directory chmod-outside utime-outside truncate-outside
    tcp-connect udp-send unix-socket abstract-socket netlink-socket fork exec-shell large-allocation
    large-file memfd shared-memory keyring io-uring unshare-user setns descriptors new-privileges
    capabilities outside-seccomp outside-no-new-privileges outside-capabilities outside-descriptors
    outside-limits
""")
_BLOCKED_IN_NAMESPACES = _names("""
    stat-outside disk-total disk-inodes hostname outside-bounding-set outside-uid outside-mounts
    outside-user-namespace outside-pid-namespace outside-mount-namespace outside-network-namespace
    outside-ipc-namespace outside-uts-namespace
""")
_SINCE_THE_SECOND_LIST = _names("""
    absent-calls argument-clone argument-fcntl argument-futex argument-getsockopt argument-ioctl
    argument-madvise argument-mremap argument-prctl argument-prlimit argument-sendto argument-signals
    argument-socketpair deadline device-call environment exec-library exec-written huge-pages
    installed-packages list-programs newer-calls old-door open-room other-devices statfs sysinfo
    thread-number unlisted-calls x32 outside-bounding-set-of-root outside-core outside-environment
    outside-mask outside-session outside-signals outside-zygote outside-zygote-descriptors
""")
_SINCE_THE_SECOND_LIST_IN_NAMESPACES = _names("""
    stat-system outside-devices outside-gid outside-groups outside-mount-flags
    outside-mount-propagation outside-threads
""")


def _required(
    in_every_class: frozenset[str], in_namespaces: frozenset[str]
) -> Mapping[IsolationClass, frozenset[str]]:
    return MappingProxyType(
        {
            "subprocess": frozenset(),
            "landlock": in_every_class,
            "namespace": in_every_class | in_namespaces,
        }
    )


REQUIRED_BY_LIST: Mapping[int, Mapping[IsolationClass, frozenset[str]]] = MappingProxyType(
    {
        1: _required(_BLOCKED_IN_EVERY_CLASS, _BLOCKED_IN_NAMESPACES),
        2: _required(
            _BLOCKED_IN_EVERY_CLASS | _SINCE_THE_SECOND_LIST,
            _BLOCKED_IN_NAMESPACES | _SINCE_THE_SECOND_LIST_IN_NAMESPACES,
        ),
    }
)
"""What must have been blocked before a run may claim a class (ADR-0021), by the number of the list.

A list that records were written by is never changed: older logs have to verify.
"""
PROBE_LIST: Final = 2
"""The list that a proof of today is held to."""

REQUIRED_PROBES = REQUIRED_BY_LIST[PROBE_LIST]


class ProbeResult(Record):
    """One probe of the isolation, as it came out at start."""

    name: Identifier
    blocked: bool


class IsolationProof(Record):
    """What was proved of the isolation before the run, and on which kernel."""

    isolation_class: IsolationClass
    kernel: Text
    landlock_abi: int | None = None
    # Which list of required probes it was held to. Records of the first do not say so.
    probe_list: Literal[1, 2] = 1
    probes: Annotated[tuple[ProbeResult, ...], FailFast()] = ()

    @model_serializer(mode="wrap")
    def _spelled(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out the number of the first list: records are compared with their one spelling."""
        document: dict[str, object] = handler(self)
        if self.probe_list == 1:
            del document["probe_list"]
        return document

    @property
    def unproved(self) -> tuple[str, ...]:
        """Name the required probes that are missing or got through, in order."""
        # A probe that stands twice and got through once got through.
        through = {probe.name for probe in self.probes if not probe.blocked}
        blocked = {probe.name for probe in self.probes} - through
        return tuple(sorted(REQUIRED_BY_LIST[self.probe_list][self.isolation_class] - blocked))

    @property
    def holds(self) -> bool:
        """Whether all that its class promises was proved; `subprocess` promises nothing of the kind."""
        return not self.unproved


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
    interrupted_trials: Annotated[int, Field(ge=0, exclude_if=_is_nothing)] = 0


class RunAbandoned(Record):
    """A human closed a run that will not finish. It counts as failed, whatever it had measured."""

    because: Sentence


class RunFinished(Record):
    """The report of a run and the evidence that it is computed from."""

    report: BenchRunReport
    trials: Annotated[tuple[TrialEvidence, ...], FailFast()]
    # The hash of the journal, which lies among the artefacts from now on.
    journal: Annotated[Digest | None, Field(exclude_if=_is_nothing)] = None


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


UNRETURNED = "unreturned_changes"
"""The artefact that names the files which an agent changed in its copy and did not return."""

UNRETURNED_WORDS = (
    "files of its copy were changed and none was returned; only what is returned is judged:"
    ' return {"files": {PATH: TEXT}}, with None as the TEXT of a deleted file'
)


def was_unreturned(trial: TrialEvidence) -> bool:
    """Say whether an agent changed files of its copy and returned none."""
    return any(name.startswith(UNRETURNED) for name in trial.artifacts)


def was_judged(answer: Answer) -> bool:
    """Say whether a rubric had its say: a system under test that failed left nothing to judge."""
    return not any(mode.code.startswith("sut.") for mode in answer.failure_modes)


def reused_outputs(trials: Iterable[TrialEvidence]) -> int:
    """Count the trials for which the system under test was not asked."""
    return sum(trial.reused in {"output", "both"} for trial in trials)


def identity_digest(identity: SutIdentity) -> str:
    """Hash which system was measured."""
    return digest_json("sut-identity.v1", identity.model_dump(mode="json"))


def agent_name(spec: str) -> str:
    """Return what was named with --sut: a spec without the variables that were handed over."""
    return spec.partition(SUT_ENV)[0]


def implied_boundary(spec: str) -> SutBoundary | None:
    """Return where a system under test with this spec runs; None for one that an embedder brought."""
    kind, colon, _ = spec.partition(":")
    if spec in {"null", "oracle"} or (kind == "replay" and colon):
        return "harness"
    if kind in {"python", "command"} and colon:
        return "process"
    return "in-process" if kind == "in-process" and colon else None


def boundary_problem(sut: SutIdentity, boundary: SutBoundary) -> str | None:
    """Say why a system of this name cannot run there: whether a run is evidence hangs on where it ran."""
    implied = implied_boundary(sut.spec)
    if boundary == (implied or boundary) and (implied == "harness" or boundary != "harness"):
        return None
    return f"its boundary is {boundary!r}, which is not that of {sut.spec[:80]!r}"


def start_digest(started: RunStarted) -> str:
    """Hash what of a start decides the measurement: what a run must share with a dead one to continue it.

    Of the isolation only its class: a machine that died often comes back with another kernel.
    """
    document = started.model_dump(mode="json", exclude={"cases", "isolation"})
    document |= {"cases": _CASES, "isolation_class": started.isolation.isolation_class}
    pieces = canonical_pieces(document, {_CASES: map(spelled, started.cases)})
    return digest_fields("run-start.v2", [b"".join(pieces)])


def spelled(record: Record) -> bytes:
    """Return the one spelling of a record or of a part of one."""
    return canonical_json(record.model_dump(mode="json"))


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
