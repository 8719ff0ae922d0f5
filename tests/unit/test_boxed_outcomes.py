"""What comes of the attempts of an agent in a box: answers, faults, costs, and when an attempt is void."""

from dataclasses import replace

import pytest

from codegenie.eval.boxes.request import BoxEnd
from codegenie.eval.broker.records import Ledger
from codegenie.eval.ports import SutAnswer, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import Budget, Stop
from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.reading import command_spec
from codegenie.eval.suts.agent_spec.records import Prices
from codegenie.eval.suts.boxed.account import Spent, spent
from codegenie.eval.suts.boxed.attempt import Attempted, moved
from codegenie.eval.suts.boxed.outcome import never_reached, outcome, void_cause
from codegenie.eval.suts.boxed.streams import Capture

SPEC = command_spec("sh")
SECRET = "a-secret-of-the-harness"
REDACTOR = Redactor({"KEY": SECRET})
PRICES = Prices(input=3.0, cached=0.3, output=15.0)
COUNTED = Ledger(
    requests=2, successes=2, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000
)


def attempted(end: BoxEnd | None = None, **facts: object) -> Attempted:
    made = Attempted(Capture(), Capture(), end or BoxEnd(exit_code=0, wall_seconds=0.5))
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def came_of(*attempts: Attempted) -> SutAnswer | SutFault:
    return outcome(attempts, SPEC, 60.0, REDACTOR)


FAULTS = {
    "another exit code": (attempted(BoxEnd(exit_code=3)), "sut.exception", "exit:3"),
    "a signal": (attempted(BoxEnd(signal="SEGV")), "sut.exception", "signal:SEGV"),
    "no end in time": (attempted(BoxEnd(signal="KILL", timed_out=True)), "sut.timeout", "no end within 60 s"),
    "an exit in its grace": (
        attempted(BoxEnd(exit_code=0, timed_out=True)),
        "sut.timeout",
        "no end within 60 s",
    ),
    "too much memory": (
        attempted(BoxEnd(ended_over="memory")),
        "sut.exception",
        "ended: it used more memory",
    ),
    "too many files": (
        attempted(BoxEnd(ended_over="workspace")),
        "sut.exception",
        "ended: it used more workspace",
    ),
    "the cost cap of a case": (
        attempted(BoxEnd(), over_cost=0.5),
        "sut.exception",
        "ended at the cost cap of 0.5",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_every_other_end_is_a_typed_fault(what: str) -> None:
    made, code, detail = FAULTS[what]
    produced = came_of(made)

    assert isinstance(produced, SutFault)
    assert (produced.code, produced.void) == (code, False)
    assert produced.detail.startswith(detail)


def test_the_last_words_stand_in_the_fault_without_secrets() -> None:
    made = attempted(BoxEnd(exit_code=1))
    made.stderr.feed(f"first\nit said {SECRET}\n\n".encode())
    produced = came_of(made)

    assert isinstance(produced, SutFault)
    assert produced.detail == "exit:1: it said [redacted]"


VOID = {
    "the box could not be made": attempted(BoxEnd(), void="no space left"),
    "the provider was silent for all patience": attempted(
        BoxEnd(exit_code=1), ledger=Ledger(requests=1, patience_over=True, statuses={503: 9})
    ),
}
NOT_VOID = {
    "it exits with 75": attempted(BoxEnd(exit_code=75)),
    "it was late": attempted(BoxEnd(timed_out=True)),
    "it filled its workspace": attempted(BoxEnd(ended_over="workspace")),
    "the provider refused after a first success": attempted(
        BoxEnd(exit_code=1), ledger=Ledger(requests=9, successes=1, patience_over=True, statuses={429: 8})
    ),
    "its requests were refused by the broker": attempted(BoxEnd(exit_code=1), ledger=Ledger(refused=5)),
}


@pytest.mark.parametrize("what", VOID)
def test_an_attempt_is_void_for_what_the_harness_saw(what: str) -> None:
    assert void_cause(VOID[what]) is not None
    produced = came_of(VOID[what])
    assert isinstance(produced, SutFault)
    assert (produced.code, produced.void) == ("sut.cancelled", True)


@pytest.mark.parametrize("what", NOT_VOID)
def test_an_attempt_is_never_void_for_what_the_agent_did(what: str) -> None:
    assert void_cause(NOT_VOID[what]) is None


def test_every_attempt_stands_in_the_account_and_its_cost_counts() -> None:
    first = attempted(BoxEnd(wall_seconds=2.0), void=f"lost {SECRET}", spent=Spent(None, 0.25, "agent"))
    second = attempted(BoxEnd(exit_code=0, wall_seconds=1.0, left=2), spent=Spent(None, 0.5, "agent"))
    produced = came_of(first, second)

    assert isinstance(produced, SutAnswer)
    assert produced.cost_usd == 0.75
    assert produced.account is not None
    told = [(each.n, each.cause, each.wall_ms, each.left) for each in produced.account.attempts]
    assert told == [(1, "lost [redacted]", 2000, 0), (2, None, 1000, 2)]
    assert {"attempt_1_sut_stdout", "sut_stdout"} <= {name for name, _ in produced.left_behind}


MISSED = {
    "a refused key": (Ledger(requests=1, statuses={401: 1}), "refused the key (401)", True),
    "a provider that is away": (Ledger(requests=1, unreachable=1, first_error="refused"), "(refused)", True),
    "an answer that never began": (Ledger(requests=1), "(its answer had not begun when the", False),
    "a page of a hotel network": (Ledger(requests=1, statuses={200: 1}), "(status 200)", False),
    "requests that the broker refuses": (Ledger(refused=3, first_refusal="broker: no"), "broker: no", False),
    "no request at all": (Ledger(), "sent no request", False),
}


@pytest.mark.parametrize("what", MISSED)
def test_a_model_that_never_answered_is_named_and_void_only_without_the_agent(what: str) -> None:
    ledger, why, void = MISSED[what]
    missed = never_reached(ledger, before=False)

    assert missed is not None
    assert why in missed.why
    assert missed.void is void


def test_an_agent_that_stops_asking_is_at_fault_itself() -> None:
    assert never_reached(Ledger(), before=True) is None
    assert never_reached(Ledger(requests=1, statuses={401: 1}), before=True) is not None
    assert never_reached(COUNTED, before=False) is None
    assert never_reached(None, before=False) is None


def test_the_broker_counts_before_the_agent_is_believed() -> None:
    stated = StatedUsage(cost_usd=0.01, input_tokens=1, output_tokens=1)
    counted = spent(COUNTED, stated, PRICES)

    assert counted.cost_source == "broker"
    assert counted.cost_usd == pytest.approx(0.6 * 3.0 + 0.4 * 0.3 + 0.1 * 15.0)
    assert counted.usage is not None
    assert (counted.usage.input_tokens, counted.usage.counted_by) == (1_000_000, "broker")
    assert spent(COUNTED, stated, None).cost_usd == 0.01
    assert spent(None, stated, None).cost_source == "agent"
    assert spent(None, StatedUsage(), None) == Spent()


def test_an_answer_without_numbers_makes_the_tokens_unknown_and_not_small() -> None:
    counted = spent(replace(COUNTED, unmetered=1), StatedUsage(), PRICES)

    assert counted.usage is not None
    assert (counted.usage.input_tokens, counted.usage.output_tokens) == (None, None)
    assert (counted.cost_usd, counted.cost_source) == (None, None)


def test_a_stated_cost_of_nothing_is_unknown_if_a_model_was_asked() -> None:
    assert spent(COUNTED, StatedUsage(cost_usd=0.0), None).cost_usd is None


def test_a_stream_keeps_its_beginning_and_its_end_and_half_secrets_of_neither() -> None:
    capture = Capture()
    head, tail = 1 << 20, 4 << 20
    capture.feed(b"a" * (head - 5) + SECRET.encode()[:5])
    capture.feed(SECRET.encode()[5:] + b"m" * (3 * tail) + SECRET.encode()[:9])
    capture.feed(SECRET.encode()[9:] + b"z" * (tail - len(SECRET) + 9))
    kept = capture.kept(REDACTOR).decode()

    assert kept.startswith("aaa")
    assert kept.endswith("zzz")
    assert "bytes are left out]" in kept
    for size in range(5, len(SECRET)):
        assert SECRET[:size] not in kept[head - 60 : head + 60]
        assert SECRET[-size:] not in kept


def test_an_argument_in_the_directory_of_the_agent_moves_with_it() -> None:
    assert moved("/agent/run.sh", "/somewhere/agent") == "/somewhere/agent/run.sh"
    assert [moved(each, "/x") for each in ("/agents/a", "--f=/agent/a", "/agent")] == [
        "/agents/a",
        "--f=/agent/a",
        "/agent",
    ]


def test_a_cost_cap_ends_a_run_whose_agent_does_not_say_what_it_costs() -> None:
    stop = Stop()
    Budget(5.0, stop, must_be_known=True).charge(None)
    assert (stop.requested, stop.reason) == (True, "cost cap without stated cost: 1 case was run")

    for budget in (Budget(5.0, stop := Stop()), Budget(None, stop, must_be_known=True)):
        budget.charge(None)
        assert not stop.requested
