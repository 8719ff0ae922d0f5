"""What an attempt of an agent used and cost: counted by the broker where there is one. Pure."""

from dataclasses import dataclass

from codegenie.eval.broker.records import Ledger
from codegenie.eval.evidence import CostSource, Usage
from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.records import Prices

_MILLION = 1_000_000
_MODEL_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Spent:
    """What one attempt used and cost, and who says so."""

    usage: Usage | None = None
    cost_usd: float | None = None
    cost_source: CostSource | None = None


def spent(ledger: Ledger | None, stated: StatedUsage, prices: Prices | None) -> Spent:
    """Return what was used. The agent's word counts only for what the broker did not see."""
    calls = None if ledger is None else ledger.successes
    stated = stated.with_calls(calls)
    usage = _stated(stated) if ledger is None else _counted(ledger)
    counted = None if ledger is None or prices is None else cost_of(ledger, prices)
    if counted is not None:
        return Spent(usage, min(counted, LIMITS.cost_usd), "broker")
    return Spent(usage, stated.cost_usd, None if stated.cost_usd is None else "agent")


def _counted(ledger: Ledger) -> Usage:
    # Of an answer without numbers no token is known, and a sum without it would look like all of them.
    known = ledger.unmetered == 0
    return Usage(
        counted_by="broker",
        input_tokens=ledger.input_tokens if known else None,
        cached_tokens=ledger.cached_tokens if known else None,
        output_tokens=ledger.output_tokens if known else None,
        requests=ledger.requests,
        models=_named(ledger.answered_models),
    )


def _stated(stated: StatedUsage) -> Usage | None:
    usage = Usage(
        counted_by="agent",
        input_tokens=stated.input_tokens,
        cached_tokens=stated.cached_tokens,
        output_tokens=stated.output_tokens,
        models=_named(() if stated.model is None else (stated.model,)),
    )
    return None if usage == Usage(counted_by="agent") else usage


def _named(models: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one_line(model, _MODEL_CHARACTERS) for model in models[: LIMITS.named_models])


def cost_of(ledger: Ledger, prices: Prices) -> float | None:
    """Return the cost in USD; None if an answer could not be counted."""
    if ledger.unmetered:
        return None
    cached = min(ledger.cached_tokens, ledger.input_tokens)
    price_of_cached = prices.input if prices.cached is None else prices.cached
    total = (ledger.input_tokens - cached) * prices.input + cached * price_of_cached
    return (total + ledger.output_tokens * prices.output) / _MILLION
