"""What the trials of a run used together, as lines of text."""

from collections.abc import Iterator, Sequence

from codegenie.eval.accounting import Totals, VoidAttempt
from codegenie.eval.wording import counted

_NAMED = 5
_WHO = {
    frozenset({"broker"}): " (counted by the broker)",
    frozenset({"agent"}): " (stated by the agent)",
    frozenset({"broker", "agent"}): " (partly counted by the broker, partly stated by the agent)",
}


def render_totals(totals: Totals, trials_per_case: int) -> Iterator[str]:
    """Yield the lines on tokens and on attempts: of the latter only if one was void, which is news."""
    if totals.counted_by:
        yield f"tokens           {' · '.join(_tokens(totals))}{_WHO[frozenset(totals.counted_by)]}"
    if totals.void:
        measured = counted(totals.trials, "trial" if trials_per_case > 1 else "case")
        void = _listed([_void(one, trials_per_case) for one in sorted(totals.void)])
        yield f"attempts         {totals.attempts} for {measured}: {void}"


def _tokens(totals: Totals) -> Iterator[str]:
    cached = f" ({_number(totals, 'cached_tokens')} cached)" if totals.known["cached_tokens"] else ""
    yield f"{_number(totals, 'input_tokens')} in{cached}"
    yield f"{_number(totals, 'output_tokens')} out"
    if totals.known_for["requests"]:
        yield f"{_number(totals, 'requests')} request{'' if totals.known['requests'] == 1 else 's'}"
    if totals.models:
        yield _listed(sorted(totals.models))


def _number(totals: Totals, name: str) -> str:
    if not totals.known_for[name]:
        return "unknown"
    return f"{'' if totals.total(name) is not None else 'at least '}{totals.known[name]:,}"


def _void(void: VoidAttempt, trials_per_case: int) -> str:
    name = f"{void.case_id}#{void.trial}" if trials_per_case > 1 else void.case_id
    return f"{name} void ({void.cause})"


def _listed(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_NAMED])
    return f"{shown} and {len(items) - _NAMED} more" if len(items) > _NAMED else shown
