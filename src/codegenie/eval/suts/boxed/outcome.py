"""From the attempts of an agent on one case to its answer or its fault. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegenie.eval.broker.records import Ledger
from codegenie.eval.collection.document import harness_output
from codegenie.eval.collection.in_place import kept_work
from codegenie.eval.evidence import ATTEMPT, Account, Attempt
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.suts.boxed.attempt import Attempted

_KEY_REFUSED = 401
_TAIL_BYTES = 4096


def void_cause(made: Attempted) -> str | None:
    """Return why an attempt does not count: only what the harness itself saw, never what the agent did."""
    if made.void is not None:
        return made.void
    ledger = made.ledger
    if ledger is not None and ledger.patience_over and not ledger.successes:
        return f"the provider gave no answer for {ledger.provider_wait_ms // 1000} s ({_first(ledger)})"
    return None


@dataclass(frozen=True, slots=True)
class Missed:
    """Why the model never answered. `void`: the agent cannot have caused it; `unasked`: it never asked."""

    why: str
    void: bool
    unasked: bool = False


def never_reached(ledger: Ledger | None, *, before: bool) -> Missed | None:
    """Return why the model never answered in one case; None if it did, or if there is no broker.

    `before` says whether it answered in an earlier case. Then an agent that asks nothing is at fault itself.
    """
    if ledger is None or ledger.successes:
        return None
    if not ledger.requests and not ledger.refused:
        why = "the agent sent no request to the broker"
        return None if before else Missed(why, void=False, unasked=True)
    # The broker sends the key, so a refused key is never the work of the agent.
    if ledger.statuses.get(_KEY_REFUSED):
        return Missed(f"the provider refused the key ({_KEY_REFUSED})", void=True)
    if not ledger.requests:
        return Missed(f"the broker refused every request: {ledger.first_refusal}", void=False)
    away = ledger.unreachable > 0 and not ledger.statuses
    return Missed(f"the provider never gave a usable answer ({_first(ledger)})", void=away)


def _first(ledger: Ledger) -> str:
    if ledger.first_error:
        return ledger.first_error
    statuses = ", ".join(str(status) for status in sorted(ledger.statuses))
    # Every other end of a request leaves a status or an error.
    return f"status {statuses}" if statuses else "its answer had not begun when the agent ended"


def outcome(
    attempts: Sequence[Attempted], spec: AgentSpec, seconds: float, redactor: Redactor
) -> SutAnswer | SutFault:
    """Return what the last attempt of a program produced, with an account of all attempts."""
    made = attempts[-1]
    fault = fault_of_the_end(made, f"no end within {seconds:g} s", redactor) or _fault_of_the_exit(
        made, spec, redactor
    )
    if fault is not None:
        return with_account(attempts, replace(fault, work=kept_work(made.collected, made.notes)), redactor)
    tail = made.stdout.kept(redactor)[-_TAIL_BYTES:].decode("utf-8", "replace")
    written = harness_output(made.collected, {"exit_code": made.end.exit_code, "stdout_tail": tail})
    work = kept_work(made.collected, (*made.notes, *written.notes))
    return with_account(attempts, SutAnswer(written.output, None, work=work), redactor)


def with_account(
    attempts: Sequence[Attempted], produced: SutAnswer | SutFault, redactor: Redactor
) -> SutAnswer | SutFault:
    """Return what was produced, with what all attempts cost and left behind."""
    left_behind = (
        *(
            kept
            for n, each in enumerate(attempts[:-1], 1)
            for kept in each.artifacts(redactor, f"{ATTEMPT}{n}_")
        ),
        *attempts[-1].artifacts(redactor),
    )
    # What was spent in void attempts was spent, too.
    costs = [each.spent.cost_usd for each in attempts if each.spent.cost_usd is not None]
    return replace(
        produced,
        cost_usd=sum(costs) if costs else None,
        account=_account(attempts, redactor),
        left_behind=left_behind,
    )


def fault_of_the_end(made: Attempted, late: str, redactor: Redactor) -> SutFault | None:
    """Return the fault of an attempt that did not end by itself; None if it did. `late` is for a timeout."""
    void = void_cause(made)
    if void is not None:
        detail = redactor.detail(f"not measured in {LIMITS.attempts} attempts: {void}")
        return SutFault("sut.cancelled", detail, void=True)
    end = made.end
    if made.over_cost is not None:
        return SutFault("sut.exception", f"ended at the cost cap of {made.over_cost:g} USD for one case")
    if end.ended_over is not None:
        return SutFault("sut.exception", f"ended: it used more {end.ended_over} than its limit")
    return SutFault("sut.timeout", late) if end.timed_out else None


def _fault_of_the_exit(made: Attempted, spec: AgentSpec, redactor: Redactor) -> SutFault | None:
    return None if made.end.exit_code in spec.accept_exit else how_it_ended(made, redactor)


def how_it_ended(made: Attempted, redactor: Redactor) -> SutFault:
    """Return the fault of a program that failed: its exit code or signal, and its last line."""
    end = made.end
    how = f"signal:{end.signal}" if end.exit_code is None else f"exit:{end.exit_code}"
    last = last_line(made, redactor)
    return SutFault("sut.exception", f"{how}: {last}" if last else how)


def last_line(made: Attempted, redactor: Redactor) -> str:
    """Return the last thing that an agent said, without secrets."""
    return redactor.clean(made.stderr.last_line() or made.stdout.last_line())


def _account(attempts: Sequence[Attempted], redactor: Redactor) -> Account:
    records = tuple(
        Attempt(
            n=n,
            cause=None if (cause := void_cause(made)) is None else redactor.detail(cause),
            wall_ms=round(made.end.wall_seconds * 1000),
            provider_wait_ms=0 if made.ledger is None else made.ledger.provider_wait_ms,
            left=made.end.left,
            usage=made.spent.usage,
            cost_usd=made.spent.cost_usd,
            log="sut_stdout" if n == len(attempts) else f"{ATTEMPT}{n}_sut_stdout",
        )
        for n, made in enumerate(attempts, 1)
    )
    last = attempts[-1].spent
    return Account(usage=last.usage, cost_source=last.cost_source, attempts=records)
