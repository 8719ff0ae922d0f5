"""Code that forges its results scores 0 by the worker, honest code 1. A naive suite believes the forger."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attackers.forgeries import FORGERIES, HONEST, Judge
from tests.hostile.engine.forging import main, score_by_naive_suite, score_by_worker
from tests.support.confinement import CONFINED
from tests.support.executing import Bench, opened_bench
from tests.support.ordinary_user import run_as_ordinary_user, run_in_own_processes
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

BELIEVED = [name for name, technique in FORGERIES.items() if technique.fools]
BOTH_WAYS = [
    pytest.param(False, id="one process"),
    pytest.param(True, id="fresh", marks=pytest.mark.all_ways),
]
TASKS = 512


@dataclass
class Stage:
    """One box server for all tests of this file."""

    loop: asyncio.Runner
    bench: Bench

    def run(self, scored: Any) -> Any:  # noqa: ANN401 - a coroutine and what it returns
        return self.loop.run(scored)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with asyncio.Runner() as loop:
        held = AsyncExitStack()
        yield Stage(loop, loop.run(held.enter_async_context(opened_bench())))
        loop.run(held.aclose())


@pytest.mark.parametrize("fresh", BOTH_WAYS)
@pytest.mark.parametrize("name", FORGERIES)
def test_code_that_forges_its_result_scores_nothing_by_the_worker(
    stage: Stage, name: str, fresh: bool
) -> None:
    assert stage.run(score_by_worker(stage.bench, FORGERIES[name], fresh=fresh)) == 0


@pytest.mark.parametrize("fresh", BOTH_WAYS)
@pytest.mark.parametrize("name", HONEST)
def test_honest_code_scores_by_the_worker_even_if_it_prints(stage: Stage, name: str, fresh: bool) -> None:
    assert stage.run(score_by_worker(stage.bench, HONEST[name], fresh=fresh)) == 1


@pytest.mark.parametrize("name", [name for name in FORGERIES if name.startswith(("7", "13", "14"))])
def test_honest_code_beside_code_that_kills_and_leaves_daemons_keeps_its_score(
    stage: Stage, name: str
) -> None:
    async def both() -> list[int]:
        forged = score_by_worker(stage.bench, FORGERIES[name])
        return list(await asyncio.gather(forged, score_by_worker(stage.bench, HONEST["honest"])))

    assert stage.run(both()) == [0, 1]
    assert stage.run(score_by_worker(stage.bench, HONEST["honest"])) == 1


@pytest.mark.parametrize("name", BELIEVED)
def test_a_naive_suite_in_the_same_process_believes_the_forger(stage: Stage, name: str) -> None:
    technique = FORGERIES[name]

    assert stage.run(score_by_naive_suite(stage.bench, technique, technique.fools)) == 1


@pytest.mark.parametrize("judge", sorted({FORGERIES[name].fools for name in BELIEVED}))
def test_each_naive_judge_believes_honest_code_and_not_wrong_code(stage: Stage, judge: Judge) -> None:
    honest, wrong = HONEST["honest"], FORGERIES["wrong"]

    assert stage.run(score_by_naive_suite(stage.bench, honest, judge)) == 1
    assert stage.run(score_by_naive_suite(stage.bench, wrong, judge)) == 0


EXPECTED = {
    **{name: [1, 1] for name in HONEST},
    **{name: [0, 0, 1] if technique.fools else [0, 0] for name, technique in FORGERIES.items()},
}


def scores_by(run: Callable[[Path], "subprocess.CompletedProcess[str]"]) -> dict[str, list[int]]:
    """Return the scores of everything, played in a process of its own."""
    room = Path(tempfile.mkdtemp(prefix="forging-"))
    try:
        done = run(room)
        assert done.returncode == 0, done.stderr[-2000:]
        scores: dict[str, list[int]] = json.loads((room / "scores.json").read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(room, ignore_errors=os.getuid() == 0)
    return scores


@pytest.mark.all_ways
@pytest.mark.parametrize("isolation_class", CONFINED)
def test_an_ordinary_user_gets_the_same_scores(isolation_class: str) -> None:
    assert (
        scores_by(lambda room: run_as_ordinary_user(main.__module__, room, TASKS, isolation_class))
        == EXPECTED
    )


@pytest.mark.all_ways
def test_code_gets_the_same_scores_where_its_box_has_no_namespaces() -> None:
    assert scores_by(lambda room: run_in_own_processes(main.__module__, room, "landlock")) == EXPECTED


def test_code_without_a_pid_namespace_is_not_executed_on_the_host(stage: Stage) -> None:
    with pytest.raises(RuntimeError, match="in one that holds its harness"):
        stage.run(opened_bench(isolation_class="landlock").__aenter__())
