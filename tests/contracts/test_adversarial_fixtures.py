"""The hostile fixtures are what their script builds, and are what the story says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from codegenie.eval.bench.digest_list import digest_statuses
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.models import RUNNER_CODES

ROOT = Path(__file__).resolve().parents[2]
BENCH_ROOT = ROOT / "tests" / "fixtures" / "bench"
NAMES = ("adversarial-task-class", "adversarial-task-class-malformed-yaml")


def contents(root: Path) -> dict[str, bytes]:
    """Return every file of the hostile classes by its path."""
    files = [found for name in NAMES for found in (root / name).rglob("*") if found.is_file()]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def seed(root: Path) -> None:
    script = ROOT / "scripts" / "seed_adversarial_fixtures.py"
    subprocess.run([sys.executable, str(script), str(root)], check=True, timeout=60)


def test_the_committed_fixtures_are_what_the_script_builds(tmp_path: Path) -> None:
    seed(tmp_path)
    assert contents(tmp_path) == contents(BENCH_ROOT)


def test_building_them_again_changes_no_byte_and_removes_what_does_not_belong(tmp_path: Path) -> None:
    seed(tmp_path)
    first = contents(tmp_path)
    (tmp_path / NAMES[0] / "conftest.py").write_text("raise SystemExit\n", encoding="utf-8")
    seed(tmp_path)
    assert contents(tmp_path) == first


def test_exactly_the_poisoned_case_has_a_stale_digest() -> None:
    statuses = digest_statuses(load_task_class(NAMES[0], bench_root=BENCH_ROOT))
    assert {entry.case_id: entry.status for entry in statuses} == {
        "banned_breakdown_key": "current",
        "env_read_attempt": "current",
        "poisoned_case": "stale",
        "rubric_timeout": "current",
        "valid_baseline": "current",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_hostile_case_is_held_out(name: str) -> None:
    heads = sorted((BENCH_ROOT / name / "cases").glob("*/case.toml"))
    assert heads
    assert {tomllib.loads(head.read_text(encoding="utf-8"))["curation_class"] for head in heads} == {
        "held-out"
    }


def test_the_hostile_class_declares_no_tier_one_key_and_the_seven_codes() -> None:
    task_class = load_task_class(NAMES[0], bench_root=BENCH_ROOT)
    assert dict(task_class.min_cases_for_promotion) == {}
    assert task_class.breakdown_keys == ("passed",)
    assert task_class.taxonomy.keys() == RUNNER_CODES.keys()


def test_the_readme_links_every_scenario_to_an_adr_that_exists() -> None:
    readme = BENCH_ROOT / NAMES[0] / "README.md"
    rows = re.findall(r"^\| `(\w+)` .*\((\S+\.md)\) \|$", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(case_id for case_id, _ in rows) == sorted(
        entry.name for entry in (BENCH_ROOT / NAMES[0] / "cases").iterdir() if entry.is_dir()
    )
    assert [link for _, link in rows if not (readme.parent / link).is_file()] == []
