"""The running account of one line, from which a ledger is made at any time."""

from codegenie.eval.broker.meter import Reading
from codegenie.eval.broker.patience import Clock, Patience
from codegenie.eval.broker.records import Ledger

_MOST_MODELS = 16
_ERROR_CHARACTERS = 300


class Account:
    """Counts what happens on one line. What it is given holds no credential."""

    def __init__(self, clock: Clock, patience: Patience) -> None:
        self._clock = clock
        self._patience = patience
        self.requests = 0
        self.refused = 0
        self._successes = 0
        self._unmetered = 0
        self._unreachable = 0
        self._statuses: dict[int, int] = {}
        self._tokens = [0, 0, 0]
        self._asked: list[str] = []
        self._answered: list[str] = []
        self._first_error: str | None = None
        self._first_refusal: str | None = None
        self._last_activity: float | None = None

    def touch(self) -> None:
        """Note that something was sent or received."""
        self._last_activity = self._clock.now()

    def passed(self, model: str | None) -> None:
        """Count a request that passed the rules."""
        self.requests += 1
        _note(self._asked, model)

    def refuse(self, message: str) -> None:
        """Count a request that did not pass."""
        self.refused += 1
        self._first_refusal = self._first_refusal or _one_line(message)

    def status(self, status: int) -> None:
        """Count one answer of the upstream."""
        self._statuses[status] = self._statuses.get(status, 0) + 1

    def missed(self, reason: str) -> None:
        """Count a try without an answer."""
        self._unreachable += 1
        self.error(reason)

    def error(self, text: str) -> None:
        """Keep the first thing that went wrong with the upstream."""
        self._first_error = self._first_error or _one_line(text)

    def read(self, reading: Reading, *, is_whole: bool) -> None:
        """Count an answer with 2xx, if a model has given it."""
        if not reading.is_from_a_model:
            return
        self._successes += 1
        self._unmetered += not ((is_whole or reading.is_ended) and reading.has_usage)
        _note(self._answered, reading.model)
        found = (reading.input_tokens, reading.cached_tokens, reading.output_tokens)
        self._tokens = [total + (count or 0) for total, count in zip(self._tokens, found, strict=True)]

    def ledger(self) -> Ledger:
        """Return what was counted so far."""
        return Ledger(
            requests=self.requests,
            refused=self.refused,
            successes=self._successes,
            unmetered=self._unmetered,
            unreachable=self._unreachable,
            statuses=dict(self._statuses),
            input_tokens=self._tokens[0],
            cached_tokens=self._tokens[1],
            output_tokens=self._tokens[2],
            asked_models=tuple(self._asked),
            answered_models=tuple(self._answered),
            provider_wait_ms=round(self._patience.waited * 1000),
            patience_over=self._patience.is_over,
            first_error=self._first_error,
            first_refusal=self._first_refusal,
            last_activity=self._last_activity,
        )


def _note(models: list[str], model: str | None) -> None:
    if model is not None and model not in models and len(models) < _MOST_MODELS:
        models.append(model)


def _one_line(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _ERROR_CHARACTERS])
    return " ".join(words.split())[:_ERROR_CHARACTERS]
