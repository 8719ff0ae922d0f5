"""The records that the stages of a run exchange: frozen, closed, strict and finite.

A record holds a path of the machine, a clock value or an open object only if its name says so. A missing
answer is a typed failure, never a None score and never NaN.
"""

import datetime as dt
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from codegenie.eval.execute_steps import MOST_STEPS, ExecuteStep
from codegenie.eval.limits import LIMITS
from codegenie.eval.record_base import FrozenMap as FrozenMap  # noqa: PLC0414 - its documented path
from codegenie.eval.record_base import Record as Record  # noqa: PLC0414 - likewise
from codegenie.eval.record_base import is_nothing as is_nothing  # noqa: PLC0414 - likewise

MICRO = 1_000_000
"""Scores are whole millionths, so that sums and hashes are computed over integers."""

IDENTIFIER_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
CODE_PATTERN = r"^[a-z][a-z0-9_.]{0,63}$"

Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER_PATTERN)]
Code = Annotated[str, StringConstraints(pattern=CODE_PATTERN)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, StringConstraints(max_length=LIMITS.text_characters)]


def quantise(score: float) -> float:
    """Round to a whole millionth. This also turns -0.0 into 0.0, so that equal scores have equal bytes."""
    return round(score * MICRO) / MICRO + 0.0


Share = Annotated[float, Field(ge=0.0, le=1.0), AfterValidator(quantise)]
"""A score: between 0 and 1, in whole millionths."""


Cost = Annotated[float, Field(ge=0.0, le=LIMITS.cost_usd * LIMITS.trials)]
"""What a case cost, with all of its trials."""

UnitRule = Literal["family", "family-or-input"]
"""Which cases are one unit: those of a family, or also those whose inputs have the same bytes."""


def _frozen(mapping: dict[str, Any]) -> dict[str, Any]:
    return FrozenMap(mapping)


Breakdown = Annotated[dict[str, Share], AfterValidator(_frozen)]


class Severity(StrEnum):
    """What a failure mode does to its case: only `block` sets the score to 0."""

    BLOCK = "block"
    WARN = "warn"
    INFO = "info"


class Fault(StrEnum):
    """Whose fault it is that a case has no verdict from its rubric."""

    SUT = "sut"
    BENCH = "bench"
    INFRASTRUCTURE = "infrastructure"


RUNNER_CODES: Mapping[str, Fault] = {
    "sut.exception": Fault.SUT,
    "sut.timeout": Fault.SUT,
    "sut.cancelled": Fault.INFRASTRUCTURE,
    "rubric.malformed_output": Fault.BENCH,
    "rubric.timeout": Fault.BENCH,
    "rubric.unknown_breakdown_key": Fault.BENCH,
    "rubric.unknown_failure_mode": Fault.BENCH,
}
"""The seven codes that only the runner uses. Each blocks, whatever a bench declares for it (ADR-0004)."""

RESERVED_PREFIXES = ("sut.", "rubric.")


# A fixed list instead of `str.isprintable`, whose answer changes with the interpreter's Unicode version: a
# record that verifies under one Python must verify under all. Newer characters are replaced on display.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "\U000f0000-\U0010ffff]"
)


def _one_printable_line(text: str) -> str:
    if len(text) > LIMITS.detail_characters or _STEERING.search(text):
        raise ValueError("detail is one printable line within its cap")
    return text


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


Detail = Annotated[str, AfterValidator(_one_printable_line)]
Sentence = Annotated[Detail, AfterValidator(_says_something)]
"""A reason given by a human: one printable line that is not blank."""


class FailureMode(Record):
    """One typed failure of one case."""

    code: Code
    severity: Severity
    detail: Detail | None = None


class FailureModeSpec(Record):
    """One entry of a bench's taxonomy."""

    severity: Severity
    description: Annotated[str, StringConstraints(min_length=1, max_length=2_000, strip_whitespace=True)]


class BenchCase(Record):
    """One case: the fields of its case.toml and the digest of all its bytes."""

    case_id: Identifier
    task_class: Identifier
    disposition: Literal["positive", "negative", "ambiguous"]
    difficulty: Literal["easy", "medium", "hard"]
    source: Literal["curated", "outcome-ledger-derived", "regression-converted"]
    curation_class: Literal["rag-corpus-derived", "held-out"]
    family: Identifier
    added_at: dt.date
    last_validated_at: dt.date
    commit_sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    rubric_wall_clock_seconds: Annotated[int, Field(ge=1, le=300)] = 60
    sut_wall_clock_seconds: Annotated[int, Field(ge=1, le=14_400)] = 1_800
    digest: Digest
    input_digest: Digest
    # What is executed before the rubric judges. Left out when there is nothing, as in earlier versions.
    execute: Annotated[
        tuple[ExecuteStep, ...], Field(max_length=MOST_STEPS, strict=False, exclude_if=is_nothing)
    ] = ()

    @model_validator(mode="after")
    def _names_each_step_once(self) -> Self:
        names = [step.name for step in self.execute]
        if len(set(names)) != len(names):
            raise ValueError("execute: two steps have the same name")
        return self

    @model_validator(mode="after")
    def _has_a_commit_unless_curated(self) -> Self:
        if self.source != "curated" and self.commit_sha is None:
            raise ValueError(f"commit_sha is required when source is {self.source!r}")
        return self


class SourceFile(Record):
    """One file of a rubric, with the bytes that were hashed."""

    path: str
    executable: bool
    content: Annotated[bytes, Field(repr=False)]


class TaskClass(Record):
    """One loaded bench. It is plain data that was read and never executed."""

    name: Identifier
    directory: Path
    breakdown_keys: tuple[Code, ...]
    taxonomy: Annotated[dict[str, FailureModeSpec], AfterValidator(_frozen)]
    min_cases_for_promotion: Annotated[dict[str, int], AfterValidator(_frozen)]
    rubric: tuple[SourceFile, ...]
    rubric_digest: Digest
    taxonomy_digest: Digest


class Selection(Record):
    """Which cases of the class a plan holds. A partial selection is never evidence for promotion."""

    kind: Literal["all", "partial"]
    case_filter: Text | None = None
    available_cases: int


Spawn = Literal["zygote", "cold"]
"""How a confined rubric gets its interpreter: as a fork of a zygote, or as a fresh process."""


class RunOptions(Record):
    """How a run is carried out."""

    trials: Annotated[int, Field(ge=1, le=LIMITS.trials)] = 1
    concurrency: Annotated[int, Field(ge=1, le=LIMITS.concurrency)] = 2
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    isolation: Literal["auto", "namespace", "landlock", "subprocess"] = "auto"
    spawn: Spawn = "zygote"
    # None: nothing is reused. `fresh`: the run stores its results but reuses none from the store.
    cache_dir: Path | None = None
    fresh: bool = False
    # Where the outputs of the run are recorded for a replay. None: nowhere.
    record_dir: Path | None = None
    policy_digest: Digest | None = None
    # Said aloud: `subprocess` lets code of an agent run without confinement.
    sut_isolation: Literal["auto", "namespace", "landlock", "subprocess"] = "auto"

    @property
    def resumes(self) -> bool:
        """Whether the run may go on with one that died."""
        return self.cache_dir is not None and not self.fresh


class RunPlan(Record):
    """What will be run. It is decided before anything runs and is the denominator of every number."""

    task_class: TaskClass
    cases: tuple[BenchCase, ...]
    selection: Selection
    case_set_digest: Digest
    options: RunOptions
    out_dir: Path


class TrialScore(Record):
    """The result of one trial of one case."""

    passed: bool
    score: Share
    breakdown: Breakdown = Field(default_factory=FrozenMap)
    failure_modes: Annotated[tuple[FailureMode, ...], FailFast()] = ()
    cost_usd: Cost | None = None
    wall_clock_ms: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _a_blocked_score_is_zero(self) -> Self:
        return _checked_by_block_rule(self)


ScoreT = TypeVar("ScoreT", bound=TrialScore)


def _checked_by_block_rule(score: ScoreT) -> ScoreT:
    blocked = any(mode.severity is Severity.BLOCK for mode in score.failure_modes)
    if blocked and (score.passed or score.score):
        raise ValueError("a case with a block-severity failure is not passed and scores 0")
    if score.passed and not score.score:
        raise ValueError("a passed case scores more than 0")
    return score


class BenchScore(TrialScore):
    """The result of one case: its only trial, or the mean of all trials.

    A blocked trial counts as 0 in the mean, and the case does not pass.
    """

    trials: Annotated[tuple[TrialScore, ...], FailFast()] = ()

    @model_validator(mode="after")
    def _a_blocked_score_is_zero(self) -> Self:
        if not self.trials:
            return _checked_by_block_rule(self)
        mean = quantise(sum(round(trial.score * MICRO) for trial in self.trials) / len(self.trials) / MICRO)
        if self.score != mean or self.passed != all(trial.passed for trial in self.trials):
            raise ValueError("a case is the mean of its trials and passes if all of them do")
        return self


class SutIdentity(Record):
    """Which system was measured: what the user asked for, and the digest of what that resolved to."""

    spec: Text
    version: Text | None = None
    digest: Digest | None = None
    # Digest of the module's syntax tree: a comment changes the bytes but not the agent. Old records lack it.
    syntax: Annotated[Digest | None, Field(exclude_if=is_nothing)] = None


class Summary(Record):
    """The numbers of a run. Each can be recomputed from `per_case` and the plan."""

    mean_score: Share
    score_stddev: Annotated[float, Field(ge=0.0)]
    lower_bound_95: Annotated[float, Field(ge=0.0, le=1.0)]
    lower_bound_95_status: Literal["ok", "degenerate", "n_too_small"]
    certified_lower_95: Annotated[float, Field(ge=0.0, le=1.0)]
    gaffke_lower_95: Annotated[float, Field(ge=0.0, le=1.0)] | None
    units: int
    units_passed: int
    passed_count: int
    scored_count: int
    sut_fault_count: int
    bench_fault_count: int
    infrastructure_fault_count: int
    total_cost_usd: float | None
    block_severity_failure_modes: Annotated[tuple[str, ...], FailFast()]
    complete: bool


SutBoundary = Literal["in-process", "process", "harness", "landlock", "namespace"]
"""Where a system under test ran: `landlock` and `namespace` are boxes whose walls were proved."""

SutNetwork = Literal["none", "broker", "host"]
"""What a system under test could reach: only itself, one model provider through the broker, or everything."""

IsolationClass = Literal["subprocess", "landlock", "namespace"]


class RunHeader(Record):
    """The description of a run, without its results."""

    run_id: Text
    task_class: Identifier
    harness_version: Text
    sut: SutIdentity
    sut_identity_digest: Digest
    rubric_digest: Digest
    taxonomy_digest: Digest
    case_set_digest: Digest
    policy_digest: Digest | None = None
    sut_boundary: SutBoundary
    # Both are left out of records that are older than boxes.
    sut_network: Annotated[SutNetwork | None, Field(exclude_if=is_nothing)] = None
    sut_upstream: Annotated[Text | None, Field(exclude_if=is_nothing)] = None
    isolation_class: IsolationClass
    selection: Selection
    trials: int
    started_at: AwareDatetime
    ended_at: AwareDatetime
    provenance: Literal["measured"] = "measured"


class BenchRunReport(RunHeader, Summary):
    """The result of a run: every planned case, every failure with a type, every number with a bound."""

    schema_id: Literal["codegenie.eval.report/1", "codegenie.eval.report/2"] = Field(
        "codegenie.eval.report/2", alias="schema"
    )
    # Not in the repr, which asyncio makes and throws away when a run ends: 20 ms at 1,000 cases.
    per_case: Annotated[tuple[tuple[Identifier, BenchScore], ...], FailFast(), Field(repr=False)]
