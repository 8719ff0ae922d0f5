"""Measuring travels, counting stays: what an engine gets and gives back is plain data."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.canonical import spelled
from codegenie.eval.engines.local import LocalEngine
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.evidence import Answer, TrialEvidence, WorkItem
from codegenie.eval.ports import MakeEngine, Measure
from codegenie.eval.runner import Runner
from tests.support.benches import ECHO_RUBRIC, write_bench
from tests.support.logs import VERDICTS, StopAfter, read_records, record_run, verified

CASES = [*VERDICTS, "unknown"]


class FarEngine:
    """Sends items and evidence as bytes and reads them anew, as an engine on another machine would."""

    def __init__(self, measure: Measure, concurrency: int) -> None:
        self.sent: list[bytes] = []
        self._near = LocalEngine(self._far(measure), concurrency)

    def _far(self, measure: Measure) -> Measure:
        async def far(item: WorkItem) -> TrialEvidence:
            return TrialEvidence.model_validate_json(spelled(await measure(item)))

        return far

    async def measure(self, items: Iterable[WorkItem], keep: Callable[[TrialEvidence], None]) -> None:
        """Measure every item by its bytes alone."""
        await self._near.measure(self._read_anew(items), keep)

    def _read_anew(self, items: Iterable[WorkItem]) -> Iterator[WorkItem]:
        for item in items:
            self.sent.append(spelled(item))
            yield WorkItem.model_validate_json(self.sent[-1])


def what_was_measured(log: Path) -> list[dict[str, Any]]:
    (finish,) = [record["body"] for record in read_records(log) if record["kind"] == "run.finished"]
    trials: list[dict[str, Any]] = finish["trials"]
    return [{**trial, "wall_clock_ms": 0} for trial in trials]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_crosses_as_bytes_is_measured_like_what_stays(tmp_path: Path, concurrency: int) -> None:
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, cases=CASES)
    engines: dict[str, MakeEngine] = {"near": LocalEngine, "far": FarEngine}
    for name, engine in engines.items():
        record_run(root, tmp_path / name, runner=Runner(engine=engine), concurrency=concurrency, trials=2)
        verified(tmp_path / name)

    assert what_was_measured(tmp_path / "far") == what_was_measured(tmp_path / "near")


def test_a_run_is_resumed_from_what_the_caller_kept(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, cases=CASES)
    store = tmp_path / "cache"
    progress = StopAfter(2)
    first = Runner(engine=FarEngine, progress=progress)
    record_run(root, tmp_path / "runs", runner=first, stop=progress.stop, cache_dir=store)
    engines: list[FarEngine] = []

    def make(measure: Measure, concurrency: int) -> FarEngine:
        engines.append(FarEngine(measure, concurrency))
        return engines[-1]

    record_run(root, tmp_path / "runs", runner=Runner(engine=make), cache_dir=store)

    kinds = [record["kind"] for record in read_records(tmp_path / "runs")]
    assert kinds == ["run.started", "run.resumed", "run.finished"]
    assert len(engines[0].sent) == len(CASES) - 2, "only what is missing is handed out"


def test_a_work_item_names_the_plan_and_holds_nothing_of_the_caller(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, cases=["passed"])
    engines: list[FarEngine] = []

    def make(measure: Measure, concurrency: int) -> FarEngine:
        engines.append(FarEngine(measure, concurrency))
        return engines[-1]

    record_run(root, tmp_path / "runs", runner=Runner(engine=make))

    (start,) = [
        record["body"] for record in read_records(tmp_path / "runs") if record["kind"] == "run.started"
    ]
    item = WorkItem.model_validate_json(engines[0].sent[0])
    assert item.plan_digest == start["plan_digest"]
    assert (item.case.case_id, item.trial, item.asked_before, item.promised) == ("passed", 0, 0, None)


def changed(evidence: TrialEvidence, **fields: object) -> TrialEvidence:
    return evidence.model_copy(update=fields)


LIES: dict[str, Callable[[TrialEvidence], list[TrialEvidence]]] = {
    "another case": lambda evidence: [changed(evidence, case_id="nowhere")],
    "another trial": lambda evidence: [changed(evidence, trial=7)],
    "twice": lambda evidence: [evidence, evidence],
    "a better one afterwards": lambda evidence: [
        evidence,
        changed(evidence, answer=Answer(passed=True, score=1.0)),
    ],
}


@pytest.mark.parametrize("lie", LIES)
def test_evidence_that_an_engine_was_not_asked_for_ends_the_run(tmp_path: Path, lie: str) -> None:
    class Lying(FarEngine):
        async def measure(self, items: Iterable[WorkItem], keep: Callable[[TrialEvidence], None]) -> None:
            def lied(evidence: TrialEvidence) -> None:
                for said in LIES[lie](evidence):
                    keep(said)

            await super().measure(items, lied)

    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, cases=CASES)
    with pytest.raises(HarnessFailure, match="without being asked for it"):
        record_run(root, tmp_path / "runs", runner=Runner(engine=Lying))

    assert [record["kind"] for record in read_records(tmp_path / "runs")] == ["run.started"]
