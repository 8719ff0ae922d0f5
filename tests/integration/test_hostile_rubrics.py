"""Rubrics that flood, fork, hang, crash and lie, beside honest ones, in one run with real children.

The oracle stands outside: heartbeat files, /proc, and the bytes of the siblings' scores in a run without
the hostile cases.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codegenie.eval.models import BenchRunReport
from tests.bench_builder import canonical_score, outcome, run_bench, write_bench
from tests.integration.rubric_attacks import (
    ATTACKS,
    RUBRIC,
    attack_case,
    kills_its_parent,
    leaves_a_stubborn_family,
    starves_whoever_comes_after_it,
)

# Spread over the alphabet, so that honest cases run before, between and after the hostile ones.
HONEST = ("a-first", "f-early", "l-middle", "p-later", "sz-late", "z-last")
NAMES = [attack.__name__ for attack, _, _ in ATTACKS]


@dataclass(frozen=True)
class Aftermath:
    hostile: BenchRunReport
    honest: BenchRunReport
    oracle: Path
    directories: list[str]
    seconds: float


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    base = tmp_path_factory.mktemp("hostile")
    oracle = base / "oracle"
    oracle.mkdir()
    cases = [attack_case(attack, oracle) for attack, _, _ in ATTACKS]
    root = write_bench(base / "bench", RUBRIC, [*cases, *HONEST])
    (base / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(base / "tmp"))
        honest = run_bench(root, only=HONEST)
        started = time.monotonic()
        hostile = run_bench(root, concurrency=3)
    return Aftermath(hostile, honest, oracle, os.listdir(base / "tmp"), time.monotonic() - started)


@pytest.mark.parametrize(("name", "code", "detail"), [(a.__name__, c, d) for a, c, d in ATTACKS], ids=NAMES)
def test_every_hostile_case_has_its_exact_outcome(
    aftermath: Aftermath, name: str, code: str | None, detail: str | None
) -> None:
    if code is None:
        score = dict(aftermath.hostile.per_case)[name]
        assert (score.passed, score.score, score.failure_modes) == (True, 1.0, ())
    else:
        assert outcome(aftermath.hostile, name) == (code, detail)


@pytest.mark.parametrize("case_id", HONEST)
def test_an_honest_sibling_scores_the_same_bytes_as_without_the_hostile_cases(
    aftermath: Aftermath, case_id: str
) -> None:
    with_them, without = (dict(report.per_case)[case_id] for report in (aftermath.hostile, aftermath.honest))

    assert without.passed
    assert canonical_score(with_them) == canonical_score(without)


def test_the_run_goes_on_and_counts_every_planned_case(aftermath: Aftermath) -> None:
    report = aftermath.hostile

    assert sorted(dict(report.per_case)) == sorted([*HONEST, *NAMES])
    assert report.complete
    failing = [code for _, code, _ in ATTACKS if code is not None]
    assert (report.bench_fault_count, report.sut_fault_count) == (len(failing), 0)
    assert report.scored_count == len(HONEST) + len(ATTACKS) - len(failing)
    assert report.block_severity_failure_modes == ("rubric.malformed_output", "rubric.timeout")


def test_no_deadline_is_missed_by_more_than_its_teardown(aftermath: Aftermath) -> None:
    for case_id, score in aftermath.hostile.per_case:
        assert score.wall_clock_ms < 15_000, case_id
    assert aftermath.seconds < 60


@pytest.mark.parametrize("heartbeat", ["heartbeat", "orphan"])
def test_a_daemon_that_left_its_session_is_dead(aftermath: Aftermath, heartbeat: str) -> None:
    path = aftermath.oracle / heartbeat
    before = path.stat().st_size
    time.sleep(0.1)

    assert before > 0, "the daemon never lived: the test proves nothing"
    assert path.stat().st_size == before


def test_a_link_in_place_of_a_directory_leads_the_removal_nowhere(aftermath: Aftermath) -> None:
    assert (aftermath.oracle / "precious" / "thesis").read_text() == "x"


def test_no_directory_is_left_however_deep_and_locked_it_was(aftermath: Aftermath) -> None:
    assert aftermath.directories == []


@pytest.mark.parametrize(
    "attacker", [starves_whoever_comes_after_it, kills_its_parent, leaves_a_stubborn_family]
)
def test_the_next_case_in_the_same_slot_is_served_as_if_nothing_had_happened(
    tmp_path: Path, attacker: Callable[[], None]
) -> None:
    case = attack_case(attacker, tmp_path)
    root = write_bench(tmp_path / "bench", RUBRIC, [case, "z-next", "zz-after"])
    report = run_bench(root, concurrency=1)
    alone = run_bench(root, concurrency=1, only=["z-next", "zz-after"])

    for case_id, score in alone.per_case:
        assert score.passed
        assert canonical_score(dict(report.per_case)[case_id]) == canonical_score(score)
