"""git itself takes the patches. It is a second witness beside the reading in `tests/support/patches.py`."""

import os
import shutil
import subprocess
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings

from codegenie.eval.collection.patches import patch_of
from tests.support.patches import Tree, applied, changes_between, trees

ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C.UTF-8"}


def write(tree: Tree, place: Path) -> None:
    for path, (content, executable) in tree.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
        (place / path).chmod(0o755 if executable else 0o644)


def read(place: Path) -> Tree:
    found = [file for file in place.rglob("*") if file.is_file()]
    return {
        str(file.relative_to(place)): (file.read_bytes(), bool(file.stat().st_mode & 0o100)) for file in found
    }


def git_applied(patch: bytes, before: Tree, place: Path) -> Tree:
    """Return what `git apply` makes of a tree. This test needs git, and fails where it is not installed."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    write(before, place)
    if patch:
        environment = {**os.environ, **ALONE, "GIT_CEILING_DIRECTORIES": str(place.parent)}
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"],
            cwd=place,
            input=patch,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode() + patch.decode()
    return read(place)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(before=trees, after=trees)
@example(before={"a": (b"x", False)}, after={"a/b": (b"x", False)})
@example(before={"a": (b"x", False)}, after={"a/b": (b"x\ny\n", True)})
@example(before={"a/b": (b"x\n", False)}, after={"a": (b"x\n", True)})
@example(before={"a/b": (b"x\n", False)}, after={"a": (b"y\n", True)})
@example(before={"two words": (b"x\n", False)}, after={"two words": (b"y\n", False), 'quo"te': (b"", True)})
def test_git_makes_of_a_patch_what_the_own_reading_makes_of_it(
    tmp_path: Path, before: Tree, after: Tree
) -> None:
    patch, _ = patch_of(changes_between(before, after))

    assert git_applied(patch, before, tmp_path / "tree") == applied(patch, before) == after


def test_git_takes_a_patch_of_twelve_thousand_files_whole(tmp_path: Path) -> None:
    before = {f"old/{n}.txt": (b"%d\n" % n, False) for n in range(0, 12_000, 3)}
    after = {f"new/{n % 40}/{n}.txt": (b"%d\n%s" % (n, b"x" * (n % 7)), n % 11 == 0) for n in range(12_000)}
    patch, left_out = patch_of(changes_between(before, after))

    assert left_out == 0
    assert git_applied(patch, before, tmp_path / "tree") == after


def test_git_takes_a_hunk_that_replaces_too_many_lines_to_compare(tmp_path: Path) -> None:
    before = {"large.txt": (b"".join(b"%d\n" % n for n in range(30_000)), False)}
    after = {"large.txt": (b"".join(b"%d\n" % (n * n) for n in range(30_000)) + b"end", False)}
    patch, _ = patch_of(changes_between(before, after))

    assert patch.count(b"\n@@ ") == 1
    assert git_applied(patch, before, tmp_path / "tree") == applied(patch, before) == after
