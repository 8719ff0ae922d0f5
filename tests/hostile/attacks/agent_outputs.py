"""Agents whose outputs are built to crash, to block or to mislead whoever reads them."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from codegenie.eval.models import BenchRunReport
from tests.hostile.attackers.hostile_bench import HONEST, HOSTILE, judged, run_cases, unless_the_run_ends
from tests.hostile.attackers.in_process_agents import agent_that, answers, measured, passed
from tests.hostile.engine.stage import Outcome, attack, environment, files_that_hold, twin
from tests.support.benches import HONEST_RUBRIC

MIB = 1 << 20


class Lazy(Mapping[str, Any]):
    """An output that is made only when somebody reads it, and then never."""

    def __getitem__(self, key: str) -> str:
        return key

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        threading.Event().wait(12)
        return iter(())


@attack("output_made_when_it_is_read")
def output_made_when_it_is_read(room: Path) -> Outcome:
    return judged(measured(room, lambda _case: Lazy(), timeout_seconds=0.3))


class Eager(Lazy):
    """The same with something in it."""

    def __iter__(self) -> Iterator[str]:
        return iter(("answer",))

    def __getitem__(self, key: str) -> str:
        return f"it is {HOSTILE}"


@twin("output_made_when_it_is_read")
def mapping_that_is_no_dict(room: Path) -> Outcome:
    return passed(room, lambda _case: Eager())


class TwoFaced(dict[str, Any]):
    """A dictionary that has one key and lists it twice."""

    def items(self) -> Any:  # noqa: ANN401 - not what dict.items returns
        return [("answer", "wrong"), ("answer", f"it is {HOSTILE}")]


@attack("output_with_two_faces")
def output_with_two_faces(room: Path) -> Outcome:
    return judged(measured(room, lambda _case: {"answer": f"it is {HOSTILE}", "inner": TwoFaced(answer=1)}))


@twin("output_with_two_faces")
def output_of_a_subclass(room: Path) -> Outcome:
    class Ordinary(dict[str, Any]):
        pass

    return passed(room, lambda case: Ordinary(answers(case), inner=Ordinary(answer=1)))


@attack("output_without_a_number")
def output_without_a_number(room: Path) -> Outcome:
    numbers = {"answer": f"it is {HOSTILE}", "loss": float("nan"), "best": float("inf")}
    return unless_the_run_ends(lambda: judged(measured(room, lambda _case: numbers)))


@twin("output_without_a_number")
def output_with_large_numbers(room: Path) -> Outcome:
    return passed(room, lambda case: {**answers(case), "loss": 1e308, "steps": 2**1000})


@attack("output_without_end")
def output_without_end(room: Path) -> Outcome:
    huge = {"answer": f"it is {HOSTILE}", "diff": "x" * (17 * MIB)}
    outcome = judged(measured(room, lambda _case: huge))
    largest = max(file.stat().st_size for file in (room / "runs").rglob("*") if file.is_file())
    harm = f"{largest} bytes of it are kept" if largest > 16 * MIB else None
    return Outcome(outcome.met, harm, outcome.sibling)


@twin("output_without_end")
def output_of_a_mebibyte(room: Path) -> Outcome:
    return passed(room, lambda case: {**answers(case), "diff": "x" * MIB})


@attack("secret_returned")
def secret_returned(room: Path) -> Outcome:
    secret = "sk-live-4f7a91c03be2d586"
    with environment(SERVICE_TOKEN=secret):
        report = measured(room, lambda case: {**answers(case), "note": secret}, cache_dir=room / "cache")
    kept = files_that_hold(secret.encode(), room / "runs", room / "cache")
    return judged(report, lambda _report: f"the secret is in {len(kept)} files" if kept else None)


@twin("secret_returned")
def word_returned(room: Path) -> Outcome:
    outcome = passed(room, lambda case: {**answers(case), "note": "ordinary"}, cache_dir=room / "cache")
    kept = files_that_hold(b"ordinary", room / "cache")
    return Outcome(outcome.met, None if kept else "the output was not kept", outcome.sibling)


_RECURSIVE_RUBRIC = HONEST_RUBRIC.replace(
    "score =", 'import copy; copy.deepcopy(request["harness_output"])\nscore ='
)


def _nested(room: Path, levels: int) -> BenchRunReport:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"in": inner}
    agent = agent_that(lambda case: {**answers(case), "tree": inner})
    return run_cases(room, _RECURSIVE_RUBRIC, (HONEST, HOSTILE), agent)


@attack("output_that_breaks_its_judge")
def output_that_breaks_its_judge(room: Path) -> Outcome:
    report = _nested(room, 600)
    return judged(report, lambda report: "the bench is blamed" if report.bench_fault_count else None)


@twin("output_that_breaks_its_judge")
def output_with_some_levels(room: Path) -> Outcome:
    outcome = judged(_nested(room, 20))
    return Outcome(outcome.met, None, outcome.sibling)
