"""The map of the tests names every directory and helper, and the root of the tests holds no helper."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.engine.table import ROOT

TESTS = ROOT / "tests"
MAP = "README.md"
IN_THE_ROOT = {"__init__.py", "conftest.py"}
NAMED_DIRECTORIES = ("support", "hostile/attackers", "hostile/engine")


def helpers_in_the_root(tests: Path) -> Iterator[str]:
    for file in sorted(tests.glob("*.py")):
        if file.name not in IN_THE_ROOT:
            yield f"a helper in the root: {file.name}"


def missing_in_the_map(tests: Path) -> Iterator[str]:
    text = (tests / MAP).read_text(encoding="utf-8")
    named = {name.rstrip("/") for name in re.findall(r"`([\w/]+)`", text)}
    # Compiled files stay in a working tree after their directory has moved; they make no directory.
    files = [file.relative_to(tests) for file in tests.rglob("*.*") if file.suffix != ".pyc"]
    directories = {file.parts[0] for file in files if len(file.parts) > 1}
    yield from (f"a directory that is not in the map: {name}" for name in sorted(directories - named))
    for place in NAMED_DIRECTORIES:
        modules = {file.stem for file in (tests / place).glob("*.py")}
        yield from (f"a module that is not in the map: {place}/{name}" for name in sorted(modules - named))


def shared_names(tests: Path) -> Iterator[str]:
    files = [file for file in tests.rglob("*.py") if tests / "fixtures" not in file.parents]
    helpers = Counter(file.stem for file in files if not file.name.startswith(("test_", "__", "conftest")))
    yield from (f"two helpers of one name: {name}" for name, count in sorted(helpers.items()) if count > 1)


def gaps(tests: Path) -> list[str]:
    """Say where the map of the tests and the directory disagree."""
    return [*helpers_in_the_root(tests), *missing_in_the_map(tests), *shared_names(tests)]


def test_the_map_names_every_directory_and_helper_and_no_helper_shares_its_name() -> None:
    assert gaps(TESTS) == []


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    for place in NAMED_DIRECTORIES:
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "support" / "benches.py").touch()
    (tmp_path / "conftest.py").touch()
    (tmp_path / MAP).write_text("| `support/` | `benches` |\n| `hostile/` | attacks |\n", encoding="utf-8")
    return tmp_path


def test_a_tree_that_its_map_describes_has_no_gap(small_tree: Path) -> None:
    assert gaps(small_tree) == []


def test_a_directory_of_which_only_compiled_files_are_left_is_not_in_the_map(small_tree: Path) -> None:
    (small_tree / "portfolio" / "__pycache__").mkdir(parents=True)
    (small_tree / "portfolio" / "__pycache__" / "stage.cpython-311.pyc").touch()
    assert gaps(small_tree) == []


@pytest.mark.parametrize(
    ("added", "gap"),
    [
        ("workshop.py", "a helper in the root: workshop.py"),
        ("portfolio/stage.py", "a directory that is not in the map: portfolio"),
        ("support/desk.py", "a module that is not in the map: support/desk"),
        ("hostile/attackers/deeds.py", "a module that is not in the map: hostile/attackers/deeds"),
        ("hostile/engine/scene.py", "a module that is not in the map: hostile/engine/scene"),
        ("hostile/engine/benches.py", "two helpers of one name: benches"),
    ],
)
def test_what_the_map_does_not_name_is_found(small_tree: Path, added: str, gap: str) -> None:
    (small_tree / added).parent.mkdir(exist_ok=True)
    (small_tree / added).touch()
    assert gaps(small_tree) == [gap]
