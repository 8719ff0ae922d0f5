"""Every error that this package raises on purpose, as one tree.

EvalError                                  exit
├── BadInputError                           2   the input does not follow the contract
│   ├── SettingsInvalid                         a flag, an environment variable or pyproject.toml
│   ├── SutSpecInvalid                          the system under test cannot be found or understood
│   ├── NoCaseMatches                           the selection leaves nothing to run
│   ├── TierConfigInvalid                       trust-tiers.yaml
│   ├── DecodingRefused                         bytes that the strict decoder refuses
│   └── BenchInvalid                            a bench on disk that we refuse to run
│       ├── TaskClassNotFound
│       ├── TaskClassAlreadyRegistered
│       ├── RegistrationInvalid
│       ├── BreakdownKeysInvalid
│       ├── FailureModeTaxonomyInvalid
│       ├── RubricInvalid                       rubric.py or a module of rubric_lib/ does not compile
│       ├── DigestManifestInvalid               a missing or an extra entry in cases/digests.yaml
│       └── BenchCaseLoadError
│           └── BenchCaseIDCollision
├── IntegrityError                          3   something is not what its digest says
│   ├── BenchCaseDigestMismatch
│   ├── SutChanged
│   └── ChainTamperDetected
├── NotMeasured                             4   nothing was decided
│   ├── HarnessFailure                          we could not fork, copy or write
│   │   ├── IsolationNotProved                  a proof failed or was disturbed; `auto` takes no weaker class
│   │   └── BoxFailed                           the box of an agent could not be made, or was lost
│   │       └── ExecFailed                      the agent's program could not be executed in its box
│   ├── ModelNotReached                         the model of an agent never answered
│   ├── IsolationUnavailable                    the kernel lacks the isolation that was asked for
│   └── IncompleteReportForPromotion
└── PromotionMustBeHumanAuthorized          1   the gate advises; it never promotes

Bad input raises an error of this tree. A bug of our own code is a RuntimeError and is not caught.
"""

from typing import ClassVar

_MESSAGE_CHARACTERS = 600


class EvalError(Exception):
    """Root of the tree. It holds what is wrong, where, and what to do next."""

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        # The only place where messages are cut: a message may quote an input of two megabytes.
        if len(message) > _MESSAGE_CHARACTERS:
            message = message[: _MESSAGE_CHARACTERS - 1] + "…"
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """Return all three parts in one line; the command line prints them separately."""
        text = self.message
        if self.where:
            text = f"{text} ({self.where})"
        return f"{text}; {self.hint}" if self.hint else text


class BadInputError(EvalError):
    """What the caller gave us cannot be used; nothing was run."""

    exit_code = 2


class SettingsInvalid(BadInputError):
    """A flag, an environment variable or the settings table has a value that is not allowed."""


class SutSpecInvalid(BadInputError):
    """The system under test is unknown or cannot be found."""


class NoCaseMatches(BadInputError):
    """The selection matches no case of the task class."""


class TierConfigInvalid(BadInputError):
    """The promotion policy cannot be used for a verdict."""


class DecodingRefused(BadInputError):
    """The strict decoder refused bytes from outside. `line` is set where one line is the cause."""

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.line = line


class BenchInvalid(BadInputError):
    """The bench on disk breaks the contract, so it is not run."""


class TaskClassNotFound(BenchInvalid):
    """None of the bench roots holds a task class of this name."""


class TaskClassAlreadyRegistered(BenchInvalid):
    """Two benches, or two decorators, claim one name."""


class RegistrationInvalid(BenchInvalid):
    """`registration.py` holds more than the one literal registration that is allowed."""


class BreakdownKeysInvalid(BenchInvalid):
    """`breakdown_keys.py` is not a single enumeration of allowed literal keys."""


class FailureModeTaxonomyInvalid(BenchInvalid):
    """`failure_modes.yaml` is not a valid taxonomy."""


class RubricInvalid(BenchInvalid):
    """`rubric.py`, or a module of `rubric_lib/`, does not compile, so no case could be judged."""


class DigestManifestInvalid(BenchInvalid):
    """`cases/digests.yaml` does not name exactly the cases that exist."""


class BenchCaseLoadError(BenchInvalid):
    """One case directory does not follow the contract."""


class BenchCaseIDCollision(BenchCaseLoadError):
    """A case claims the id of another case."""


class IntegrityError(EvalError):
    """Something is not what its digest says."""

    exit_code = 3


class BenchCaseDigestMismatch(IntegrityError):
    """The bytes of a case are not the bytes that its digest names."""

    def __init__(self, case_id: str, expected_blake3: str, computed_blake3: str) -> None:
        super().__init__(
            f"case {case_id!r} has changed: its digest is {computed_blake3}, not {expected_blake3}",
            where=f"cases/{case_id}",
            hint="look at what changed; if the change is intended, write the new digest with "
            "`codegenie eval digest TASK_CLASS --write`",
        )
        self.case_id = case_id
        self.expected_blake3 = expected_blake3
        self.computed_blake3 = computed_blake3


class SutChanged(IntegrityError):
    """The code of the system under test has changed since the run was started."""


class ChainTamperDetected(IntegrityError):
    """A record of the audit log fails verification."""


class NotMeasured(EvalError):
    """Nothing was decided, and the agent is not the reason."""


class HarnessFailure(NotMeasured):
    """The harness could not start a process, copy a case or write a file."""


class IsolationNotProved(HarnessFailure):
    """The proof of an isolation class failed or was disturbed, although the kernel has all that it needs."""


class BoxFailed(HarnessFailure):
    """The box of an agent could not be made or was lost. The agent has done nothing that counts."""


class ExecFailed(BoxFailed):
    """The kernel refused to execute the agent's program in its box: `path` and `errno` say which and why."""

    def __init__(self, path: str, errno: int | None, why: str) -> None:
        super().__init__(f"cannot execute {path} in its box: {why}")
        self.path = path
        self.errno = errno


class ModelNotReached(NotMeasured):
    """The model of an agent never answered, so its run would be a column of zeros.

    `void` if the agent cannot have caused this: then the case counts as never asked.
    """

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, void: bool = False
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.void = void


class IsolationUnavailable(NotMeasured):
    """This machine lacks a kernel feature that the requested isolation class needs."""


class IncompleteReportForPromotion(NotMeasured):
    """A report was offered as evidence, but planned verdicts are missing in it."""


class PromotionMustBeHumanAuthorized(EvalError):
    """The gate was asked to promote; only a human may."""

    exit_code = 1
