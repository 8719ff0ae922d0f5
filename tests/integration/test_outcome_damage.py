"""Failures are kept like successes, damage is a miss that is said aloud, and many may write at once."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.canonical import canonical_json
from codegenie.eval.execution_ports import Judged
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.store.outcomes import Miss, OutcomeStore, Place
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import environment
from tests.support.logs import StopAfter, record_run, verified
from tests.support.stores import Bench, FlakySut, memory_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    write_bench(tmp_path / "bench")
    made = Bench(tmp_path)
    made.run()
    return made


# --- failures --------------------------------------------------------------------------------------


def test_a_failure_of_another_run_is_asked_again_and_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Perhaps its provider failed. Under a policy every run asks for everything, and every one counts."""
    write_bench(tmp_path / "bench")
    bench = Bench(tmp_path, FlakySut())
    bench.run()
    assert bench.recorded.report.block_severity_failure_modes == ("sut.exception",)
    bench.run()
    assert bench.recorded.report.passed_count == 1
    assert bench.sut.asked == ["one#0"] * 2
    assert bench.reused() == ["none"]


def test_a_malformed_answer_of_a_rubric_is_kept_too(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    write_bench(tmp_path / "bench", f"open({str(tries)!r}, 'a').write('x')\nraise SystemExit(3)\n")
    bench = Bench(tmp_path)
    for _ in range(2):
        bench.run()
        assert bench.recorded.report.block_severity_failure_modes == ("rubric.malformed_output",)
    assert tries.read_text() == "x"


def test_a_cancelled_trial_is_never_kept(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=["one", "two"])

    async def slow(case: SutCase) -> dict[str, Any]:
        if case.case_id == "two":
            await asyncio.sleep(60)
        return {"answer": f"it is {case.case_id}"}

    watch = StopAfter(1)
    recorded = record_run(
        root,
        tmp_path / "runs",
        slow,
        runner=Runner(progress=watch),
        stop=watch.stop,
        cache_dir=tmp_path / "cache",
    )
    assert not recorded.report.complete
    assert dict(recorded.report.per_case)["two"].failure_modes[0].code == "sut.cancelled"
    assert {path.parent.name for path in (tmp_path / "cache").rglob("*.json")} == {"one"}


# --- damage ----------------------------------------------------------------------------------------


def entries(bench: Bench, kind: str) -> list[Path]:
    return sorted((bench.store / kind).rglob("*.json"))


@pytest.mark.parametrize(("kind", "what"), [("outputs", "output"), ("scores", "score")])
@pytest.mark.parametrize("how", ["flipped", "empty", "truncated", "link", "pipe", "loop", "huge"])
def test_a_damaged_entry_is_a_miss_with_a_warning(bench: Bench, kind: str, what: str, how: str) -> None:
    (path,) = entries(bench, kind)
    raw = path.read_bytes()
    path.unlink()
    if how == "flipped":
        path.write_bytes(raw.replace(b'"cost_usd":0.25', b'"cost_usd":0.26').replace(b"1.0", b"0.5"))
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(raw[:-1])
    elif how == "link":
        path.symlink_to(bench.log)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "huge":
        path.write_bytes(raw)
        os.truncate(path, 1 << 40)
    else:
        path.symlink_to(path)
    expected = f"one: the stored {what} is damaged or was not written by this store, and is measured again"
    assert bench.run() == [expected]
    assert bench.recorded.notes == (expected,), "said without being asked, too"
    assert bench.recorded.report.total_cost_usd == 0.25
    assert bench.run() == [], "it was written anew"
    verified(bench.log)


def test_a_directory_in_the_place_of_an_entry_is_a_miss_and_costs_no_measurement(bench: Bench) -> None:
    (path,) = entries(bench, "outputs")
    path.unlink()
    path.mkdir()

    assert bench.run() == [
        "one: the stored output is damaged or was not written by this store, and is measured again"
    ]
    assert bench.recorded.report.complete
    verified(bench.log)


def test_an_entry_cannot_be_moved_to_another_case(tmp_path: Path) -> None:
    """Both cases have the same input and the same question, but the agent is told which case it is."""
    write_bench(tmp_path / "bench", cases=["one", "two"])
    question = "what is it?\n"
    for name in ("one", "two"):
        (tmp_path / "bench" / TASK_CLASS / "cases" / name / "input" / "question.txt").write_text(question)
    bench = Bench(tmp_path)
    bench.digest()
    bench.run()
    assert bench.recorded.report.passed_count == 1
    one, two = entries(bench, "outputs")
    two.write_bytes(one.read_bytes())
    assert (
        bench.run()[0]
        == "two: the stored output is damaged or was not written by this store, and is measured again"
    )
    assert bench.recorded.report.passed_count == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        "text",
        {"produced": "{}", "cost_usd": None, "log": ""},
        {"produced": "[]", "cost_usd": None, "log": "", "run_id": "r"},
        {"produced": "{", "cost_usd": None, "log": "", "run_id": "r"},
        {"produced": None, "cost_usd": None, "log": "", "run_id": "r"},
        {"produced": "{}", "cost_usd": -1.0, "log": "", "run_id": "r"},
        {
            "produced": {"code": "sut.cancelled", "detail": "x"},
            "cost_usd": None,
            "log": "",
            "run_id": "r",
        },
    ],
)
def test_an_entry_that_is_whole_but_holds_no_output_is_a_miss(bench: Bench, value: object) -> None:
    memory, case = memory_of(bench)
    store = OutcomeStore(bench.store)
    key = memory._output_key(case, 0)  # noqa: SLF001 - the key that a forger would compute
    store.put("outputs", Place(TASK_CLASS, "one"), key, canonical_json(value))
    assert store.get("outputs", Place(TASK_CLASS, "one"), key) == canonical_json(value)
    assert memory.output(case, 0) is None
    assert memory.warnings == [
        "one: the stored output is damaged or was not written by this store, and is measured again"
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"cost_usd":null,"log":"","produced":"{}","run_id":"r"},"more":1',
        b'{"cost_usd":null,"log":"","produced":"{}","run_id":"r","run_id":"r"}',
        b'{"cost_usd":null,"log":"\\ud800","produced":"{}","run_id":"r"}',
        b'{"cost_usd":NaN,"log":"","produced":"{}","run_id":"r"}',
    ],
)
def test_an_entry_whose_hash_is_right_is_still_read_strictly(bench: Bench, raw: bytes) -> None:
    memory, case = memory_of(bench)
    key = memory._output_key(case, 0)  # noqa: SLF001 - the key that a forger would compute
    OutcomeStore(bench.store).put("outputs", Place(TASK_CLASS, "one"), key, raw)
    assert memory.output(case, 0) is None
    assert memory.warnings == [
        "one: the stored output is damaged or was not written by this store, and is measured again"
    ]


BLOCKED = {"code": "answer.wrong", "severity": "info", "detail": None}


@pytest.mark.parametrize(
    "change",
    [
        {"score": 2.0},
        {"score": 0.0},
        {"passed": "yes"},
        {"breakdown": {"charm": 1.0}},
        {"failure_modes": [BLOCKED]},
        {"failure_modes": [{**BLOCKED, "code": "answer.fine"}]},
        {"more": 1},
    ],
)
def test_an_entry_that_holds_no_answer_under_the_rules_of_the_bench_is_a_miss(
    bench: Bench, change: dict[str, Any]
) -> None:
    """Otherwise one forged entry would put a finish into the log that `verify` refuses."""
    memory, case = memory_of(bench)
    output = Judged(canonical_json({"answer": "it is one"}))
    key = memory._answer_key(case, output)  # noqa: SLF001 - the key that a forger would compute
    value = {"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}
    store = OutcomeStore(bench.store)
    store.put("scores", Place(TASK_CLASS, "one"), key, canonical_json(value))
    assert memory.answer(case, output) is not None
    store.put("scores", Place(TASK_CLASS, "one"), key, canonical_json({**value, **change}))
    assert memory.answer(case, output) is None
    bench.run()
    verified(bench.log)


# --- many at once ----------------------------------------------------------------------------------

PUTTER = """\
import sys
from pathlib import Path
from codegenie.eval.store.outcomes import Miss, OutcomeStore, Place

store = OutcomeStore(Path(sys.argv[1]))
for number in range(100):
    store.put("outputs", Place("c", "one"), {"trial": 0}, b'"' + sys.argv[2].encode() + b"x" * 20_000 + b'"')
    assert not isinstance(store.get("outputs", Place("c", "one"), {"trial": 0}), Miss)
"""


def test_many_processes_write_the_same_entry_and_nobody_reads_half_of_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PUTTER, str(tmp_path)]
    writers = [subprocess.Popen([*argv, str(number)], env=environment()) for number in range(4)]
    assert [one.wait(60) for one in writers] == [0] * 4
    assert len(list(tmp_path.rglob("*"))) == 5, "three directories, one entry, one key, no leftovers"
    assert not isinstance(OutcomeStore(tmp_path).get("outputs", Place("c", "one"), {"trial": 0}), Miss)
