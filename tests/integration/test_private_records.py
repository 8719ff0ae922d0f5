"""What the harness keeps is for its owner alone, whatever the umask says."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.benches import ECHO_RUBRIC, write_bench
from tests.support.commands import call, eval_argv, run_argv, write_agent
from tests.support.logs import VERDICTS, stopped_run
from tests.support.sampling import sampled

WITH_UMASK = ["sh", "-c", 'umask "$1"; shift; exec "$@"', "sh"]


def modes(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]
    }


def too_open(root: Path) -> dict[str, str]:
    return {
        name: oct(mode)
        for name, mode in modes(root).items()
        if mode != (0o700 if (root / name).is_dir() else 0o600)
    }


@pytest.mark.parametrize("umask", sampled(["000", "077", "027"], "000".__eq__))
def test_log_artefacts_and_store_are_private_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    write_bench(tmp_path / "bench")
    write_agent(tmp_path)
    places = ("--out", "new/deep/runs", "--cache", "new/store")
    assert call([*WITH_UMASK, umask, *run_argv(*places)], tmp_path).returncode == 0
    found = modes(tmp_path / "new")
    for place in ("deep/runs/artifacts/", "deep/runs/0000", "store/outputs/", "store/scores/"):
        assert any(name.startswith(place) for name in found)
    assert too_open(tmp_path / "new") == {}


def test_the_journal_of_an_open_run_is_private(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, VERDICTS)
    before = os.umask(0)
    try:
        stopped_run(root, tmp_path / "runs", 2)
    finally:
        os.umask(before)
    assert len([*(tmp_path / "runs" / "journal").iterdir()]) == 1
    assert too_open(tmp_path / "runs") == {}


def test_the_directory_of_codegenie_is_private_down_to_its_note_for_git(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    write_agent(tmp_path)
    assert call([*WITH_UMASK, "000", *run_argv()], tmp_path).returncode == 0
    found = modes(tmp_path / ".codegenie")
    assert (found["."], found[".gitignore"], found["eval/runs/HEAD"]) == (0o700, 0o600, 0o600)


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    write_agent(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(0o755)
    assert call(run_argv("--out", "runs"), tmp_path).returncode == 0
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o755


def test_what_the_user_keeps_in_the_sources_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    assert call([*WITH_UMASK, "022", *eval_argv("tiers", "--write")], tmp_path).returncode == 0
    assert stat.S_IMODE((tmp_path / "trust-tiers.yaml").stat().st_mode) == 0o644
