"""What all trials of a run used together: tokens, requests, attempts and time.

A number that is unknown for one trial is unknown for the run. The known part of it is kept, because it is a
lower bound. Nothing depends on the order in which the trials came.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from codegenie.eval.evidence import CostSource, TrialEvidence

COUNTED = ("input_tokens", "cached_tokens", "output_tokens", "requests")
"""The numbers of a trial's usage that are added up."""


class VoidAttempt(NamedTuple):
    """An attempt that does not count, because the harness or the provider failed."""

    case_id: str
    trial: int
    n: int
    cause: str


@dataclass(slots=True)
class Totals:
    """The sums over the trials that were added."""

    trials: int = 0
    # The known part of each number, and for how many trials it is known.
    known: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    known_for: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    models: set[str] = field(default_factory=set)
    counted_by: set[CostSource] = field(default_factory=set)
    attempts: int = 0
    provider_wait_ms: int = 0
    void: list[VoidAttempt] = field(default_factory=list)
    sum_ms: int = 0
    longest_ms: int = 0

    def add(self, trial: TrialEvidence) -> None:
        """Add one trial."""
        self.trials += 1
        self.sum_ms += trial.wall_clock_ms
        self.longest_ms = max(self.longest_ms, trial.wall_clock_ms)
        if trial.usage is not None:
            self.models.update(trial.usage.models)
            self.counted_by.add(trial.usage.counted_by)
            for name in COUNTED:
                count = getattr(trial.usage, name)
                if count is not None:
                    self.known[name] += count
                    self.known_for[name] += 1
        for attempt in trial.attempts:
            self.attempts += 1
            self.provider_wait_ms += attempt.provider_wait_ms
            if attempt.cause is not None:
                self.void.append(VoidAttempt(trial.case_id, trial.trial, attempt.n, attempt.cause))

    @classmethod
    def of(cls, trials: Iterable[TrialEvidence]) -> Self:
        """Return the sums over some trials."""
        totals = cls()
        for trial in trials:
            totals.add(trial)
        return totals

    def total(self, name: str) -> int | None:
        """Return the sum of one number; None if it is unknown for a trial, or if there are no trials."""
        return self.known[name] if self.trials and self.known_for[name] == self.trials else None

    def usage(self) -> dict[str, object]:
        """Return the `usage` of a document: null where a number is unknown."""
        tried = self.attempts > 0
        return {
            **{name: self.total(name) for name in COUNTED},
            "models": sorted(self.models) if self.counted_by else None,
            "provider_wait_ms": self.provider_wait_ms if tried else None,
            "attempts": self.attempts if tried else None,
            "void_attempts": len(self.void) if tried else None,
        }

    def durations(self) -> dict[str, int]:
        """Return the `durations` of a document."""
        return {"sum_ms": self.sum_ms, "longest_ms": self.longest_ms}
