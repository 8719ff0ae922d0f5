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
from tests.hostile.attackers import rubric_programs as attacks
from tests.support.benches import canonical_score, outcome, run_bench, write_bench
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

MALFORMED = "rubric.malformed_output"
Attack = tuple[Callable[[], None], str | None, str | None]

# Function, code and detail; without a code the case passes: the deed is harmless, or aimed at others.
ATTACKS: list[Attack] = [
    (attacks.floods_stdout, MALFORMED, "resource_limit:stdout"),
    (attacks.floods_stdout_and_ends_in_order, MALFORMED, "resource_limit:stdout"),
    (attacks.floods_stderr, MALFORMED, "exit:120: " + "x" * 189 + "…"),
    (attacks.floods_stderr_and_ends_in_order, None, None),
    (attacks.says_nothing, MALFORMED, "stdout: empty"),
    (attacks.leaves_by_the_back_door, MALFORMED, "stdout: empty"),
    (attacks.exits_with_three_after_a_perfect_answer, MALFORMED, "exit:3"),
    (attacks.raises_after_a_perfect_answer, MALFORMED, "exit:1: ValueError: no\ufffd[31m luck"),
    (attacks.kills_itself_after_a_perfect_answer, MALFORMED, "signal:KILL"),
    (attacks.crashes_after_a_perfect_answer, MALFORMED, "signal:SEGV"),
    (attacks.sleeps_past_its_deadline, "rubric.timeout", None),
    (attacks.ignores_every_signal_it_can, "rubric.timeout", None),
    (attacks.stops_itself, "rubric.timeout", None),
    (attacks.ends_its_main_thread_only, "rubric.timeout", None),
    (attacks.leaves_a_child_on_stdout, MALFORMED, "process_leak"),
    (attacks.leaves_a_daemon, MALFORMED, "process_leak"),
    (attacks.walks_away, MALFORMED, "process_leak"),
    (attacks.leaves_a_stubborn_family, MALFORMED, "process_leak"),
    (attacks.forks_without_end, MALFORMED, "process_leak"),
    (attacks.allocates_without_end, MALFORMED, "resource_limit:memory"),
    (attacks.writes_a_large_file, MALFORMED, "resource_limit:file_size"),
    (attacks.buries_its_directory, None, None),
    (attacks.locks_its_directory, None, None),
    (attacks.removes_its_directory, None, None),
    (attacks.puts_a_link_where_its_directory_was, None, None),
    (attacks.kills_its_parent, MALFORMED, "supervisor_killed"),
    (attacks.kills_its_parent_and_leaves_a_daemon, MALFORMED, "supervisor_killed"),
    (attacks.stops_its_parent, "rubric.timeout", None),
    (attacks.stops_its_parent_and_leaves_in_order, "rubric.timeout", None),
    (attacks.closes_its_descriptors, MALFORMED, "stdout: empty"),
    (attacks.never_reads_its_request, None, None),
    (
        attacks.prints_before_and_after,
        MALFORMED,
        "stdout: not one JSON document: Expecting value: line 1 column 1 (char 0)",
    ),
    (
        attacks.answers_twice,
        MALFORMED,
        "stdout: not one JSON document: Extra data: line 1 column 84 (char 83)",
    ),
    (
        attacks.rewrites_its_answer,
        MALFORMED,
        "stdout: not one JSON document: Extra data: line 1 column 84 (char 83)",
    ),
    (attacks.starves_whoever_comes_after_it, None, None),
]

SECONDS = {
    attacks.sleeps_past_its_deadline: 1,
    attacks.ignores_every_signal_it_can: 1,
    attacks.stops_itself: 1,
    attacks.ends_its_main_thread_only: 1,
    attacks.stops_its_parent: 1,
    attacks.stops_its_parent_and_leaves_in_order: 1,
}

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
    cases = [attacks.attack_case(attack, oracle, SECONDS.get(attack, 30)) for attack, _, _ in ATTACKS]
    root = write_bench(base / "bench", attacks.RUBRIC, [*cases, *HONEST])
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
    """A case that nobody ends does not end at all; a busy machine only takes its time."""
    for case_id, score in aftermath.hostile.per_case:
        assert score.wall_clock_ms < 120_000, case_id
    assert aftermath.seconds < 600


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
    "attacker",
    [attacks.starves_whoever_comes_after_it, attacks.kills_its_parent, attacks.leaves_a_stubborn_family],
)
def test_the_next_case_in_the_same_slot_is_served_as_if_nothing_had_happened(
    tmp_path: Path, attacker: Callable[[], None]
) -> None:
    case = attacks.attack_case(attacker, tmp_path)
    root = write_bench(tmp_path / "bench", attacks.RUBRIC, [case, "z-next", "zz-after"])
    report = run_bench(root, concurrency=1)
    alone = run_bench(root, concurrency=1, only=["z-next", "zz-after"])

    for case_id, score in alone.per_case:
        assert score.passed
        assert canonical_score(dict(report.per_case)[case_id]) == canonical_score(score)
