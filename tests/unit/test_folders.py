"""A `.codegenie` that the harness makes ignores itself in git, and nothing else that it makes does."""

import subprocess
from pathlib import Path

import pytest

from codegenie.eval.system.folders import make_folder
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call, eval_argv


def git(directory: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(directory), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


def test_git_sees_nothing_of_a_run(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    git(tmp_path, "init", "-q")

    done = call(eval_argv("run", TASK_CLASS, "--sut", "null", "--quiet"), tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".codegenie/eval/runs/HEAD").is_file()
    assert git(tmp_path, "status", "--porcelain").split() == ["??", "bench/"]


def test_a_directory_of_another_name_is_left_as_its_owner_wants_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "runs" / "artifacts" / "ab")

    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "artifacts", "ab"]


def test_a_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".codegenie").mkdir()

    make_folder(tmp_path / ".codegenie" / "eval" / "runs")
    make_folder(tmp_path / ".codegenie" / "eval" / "runs")

    assert [path.name for path in (tmp_path / ".codegenie").iterdir()] == ["eval"]


def test_a_file_in_the_place_of_a_directory_is_the_systems_refusal(tmp_path: Path) -> None:
    (tmp_path / ".codegenie").touch()

    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / ".codegenie" / "eval")
