"""The result of one trial: the validated answer, its evidence, and the block rule that computes the score."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, FailFast, Field

from codegenie.eval.canonical import canonical_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    BenchCase,
    Breakdown,
    Cost,
    Detail,
    Digest,
    FailureMode,
    FrozenMap,
    Identifier,
    Record,
    Severity,
    Share,
    Text,
    TrialScore,
    is_nothing,
)


class Answer(Record):
    """The validated answer on one trial, before the block rule is applied."""

    passed: bool
    score: Share
    breakdown: Breakdown = Field(default_factory=FrozenMap)
    failure_modes: Annotated[tuple[FailureMode, ...], FailFast()] = ()


def answer_weight(answer: Answer) -> int:
    """Return the size of an answer in a record: its bytes, or the cost of its values if that is more."""
    values = 4 * len(answer.failure_modes) + len(answer.breakdown)
    return max(len(canonical_json(answer.model_dump(mode="json"))), values * LIMITS.bytes_per_value)


Count = Annotated[int, Field(ge=0, le=LIMITS.counted_tokens)]
CostSource = Literal["broker", "agent"]
"""Who says what a trial cost: the broker counted it, or the agent stated it."""


class Usage(Record):
    """What a system under test used of its model's provider. None is a number that is not known."""

    counted_by: CostSource
    input_tokens: Count | None = None
    cached_tokens: Count | None = None
    output_tokens: Count | None = None
    requests: Count | None = None
    # The models that answered, in the order of their first answer.
    models: Annotated[tuple[Text, ...], Field(max_length=LIMITS.named_models)] = ()


class Attempt(Record):
    """One attempt of a system under test on one trial. It is void if `cause` is not None."""

    n: Annotated[int, Field(ge=1, le=LIMITS.attempts)]
    cause: Detail | None = None
    wall_ms: Annotated[int, Field(ge=0)]
    provider_wait_ms: Annotated[int, Field(ge=0)] = 0
    # Processes that were still alive when the agent had ended, and were killed.
    left: Annotated[int, Field(ge=0)] = 0
    usage: Usage | None = None
    cost_usd: Cost | None = None
    # The name of the artefact that holds what it wrote.
    log: Text | None = None


class Account(Record):
    """What a trial used, as far as the harness or the agent counted it. Old records have none of this."""

    usage: Annotated[Usage | None, Field(exclude_if=is_nothing)] = None
    cost_source: Annotated[CostSource | None, Field(exclude_if=is_nothing)] = None
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=LIMITS.attempts, exclude_if=is_nothing)] = ()


class Promised(Record):
    """What the journal says about an output of this run: its hash, its cost, and what else it left."""

    output: Digest
    cost_usd: Cost | None
    log: Digest | None
    account: Annotated[Account | None, Field(exclude_if=is_nothing)] = None
    # The further artefacts of the call, such as the streams and the patch of a command.
    left_behind: Annotated[dict[str, Digest], AfterValidator(FrozenMap), Field(exclude_if=is_nothing)] = (
        Field(default_factory=FrozenMap)
    )


class WorkItem(Record):
    """One trial to measure, as plain data, so that an engine may send it to another process or machine."""

    plan_digest: Digest
    case: BenchCase
    trial: Annotated[int, Field(ge=0)]
    # How often this run asked the system under test for this trial before.
    asked_before: Annotated[int, Field(ge=0)] = 0
    # What it produced when it was last asked, if that process died before the output was judged.
    promised: Promised | None = None


class TrialEvidence(Account):
    """One trial as it was measured: the answer, its cost, and the hashes of its artefacts."""

    case_id: Identifier
    trial: Annotated[int, Field(ge=0)]
    answer: Answer
    cost_usd: Cost | None
    wall_clock_ms: Annotated[int, Field(ge=0)]
    # Which part comes from the store. A trial measures the agent only if its output was made in the run.
    reused: Literal["none", "output", "score", "both"] = "none"
    artifacts: Annotated[dict[str, Digest], AfterValidator(FrozenMap)] = Field(default_factory=FrozenMap)
    # How often this run asked the agent for this trial without getting an outcome, because the run was ended.
    # Left out when it is 0, so that a trial that was asked once has the same bytes as in earlier versions.
    interrupted: Annotated[int, Field(ge=0, exclude_if=is_nothing)] = 0


COLLECTED = "collected"
"""The artefact that says what the harness collected from the files of an agent, beside the patch."""

PATCH = "patch"
"""The artefact with the change of these files, as the harness computed it."""

ATTEMPT = "attempt_"
"""How the name of an artefact begins that a void attempt left."""

BINARIES = "binaries"
"""The artefact with the collected contents that are no text: a JSON object from hash to base64."""


def was_collected(trial: TrialEvidence) -> bool:
    """Say whether the harness collected what an agent changed."""
    return any(name.startswith(COLLECTED) for name in trial.artifacts)


def was_judged(answer: Answer) -> bool:
    """Say whether a rubric judged this trial: a system under test that failed left nothing to judge."""
    return not any(mode.code.startswith("sut.") for mode in answer.failure_modes)


def reused_outputs(trials: Iterable[TrialEvidence]) -> int:
    """Count the trials whose output was reused, so that the system under test was not asked."""
    return sum(trial.reused in {"output", "both"} for trial in trials)


def apply_block_rule(answer: Answer, cost_usd: float | None, wall_clock_ms: int) -> TrialScore:
    """Apply the block rule: a failure of severity `block` makes the trial fail with score 0."""
    blocked = any(mode.severity is Severity.BLOCK for mode in answer.failure_modes)
    return TrialScore(
        passed=answer.passed and not blocked,
        score=0.0 if blocked else answer.score,
        breakdown=dict(answer.breakdown),
        failure_modes=answer.failure_modes,
        cost_usd=cost_usd,
        wall_clock_ms=wall_clock_ms,
    )


def score_of(evidence: TrialEvidence) -> TrialScore:
    """Return the score of a trial from its evidence."""
    return apply_block_rule(evidence.answer, evidence.cost_usd, evidence.wall_clock_ms)


def answer_problem(
    answer: Answer, severities: Mapping[str, Severity], breakdown_keys: Collection[str]
) -> str | None:
    """Say why an answer read from disk cannot have been given under these rules; None if it can."""
    for mode in answer.failure_modes:
        if severities.get(mode.code) is not mode.severity:
            return f"{mode.code} does not have the severity of the taxonomy"
    if not answer.breakdown.keys() <= set(breakdown_keys):
        return "a breakdown key is not declared"
    return "it passed with score 0" if answer.passed and not answer.score else None
