"""Which Pythons of a machine the wheel is tried on: those that start and say who they are."""

import os
import sys
from pathlib import Path

import pytest

from scripts.interpreters import VERSIONS, ask, find

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = next(version for version in VERSIONS if version != OWN)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home of a user whose PATH holds one directory."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def python_that_says(version: str) -> str:
    return f"#!/bin/sh\nprintf '%s\\n' {version} /opt/python{version} /opt\n"


def versions_found(version: str, home: Path) -> list[str]:
    return [found.program for found in find(version, {"HOME": str(home)})]


def test_the_python_that_asks_is_found_once_although_a_name_on_path_leads_to_it_too(home: Path) -> None:
    (home / "bin" / f"python{OWN}").symlink_to(os.path.realpath(sys.executable))

    assert versions_found(OWN, home) == [os.path.realpath(sys.executable)]


def test_a_name_on_path_is_found(home: Path) -> None:
    program(home / "bin" / f"python{OTHER}", python_that_says(OTHER))

    assert versions_found(OTHER, home) == [f"/opt/python{OTHER}"]


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n",
        "#!/nonexistent/interpreter\n",
        f"{python_that_says(OTHER)}exit 1\n",
        "#!/bin/sh\necho 3.99\n",
    ],
    ids=["a shim that refuses", "no interpreter", "no venv", "something else"],
)
def test_a_name_that_exists_but_does_not_run_is_not_found(home: Path, text: str) -> None:
    program(home / "bin" / f"python{OTHER}", text)

    assert versions_found(OTHER, home) == []


def test_a_python_behind_a_shim_is_found_where_its_manager_keeps_it(home: Path) -> None:
    program(home / "bin" / f"python{OTHER}", "#!/bin/sh\nexit 127\n")
    program(home / f".pyenv/versions/{OTHER}.1/bin/python{OTHER}", python_that_says(OTHER))

    assert versions_found(OTHER, home) == [f"/opt/python{OTHER}"]


def test_the_directory_that_pyenv_is_told_is_looked_into(home: Path) -> None:
    program(home / f"elsewhere/versions/{OTHER}.1/bin/python{OTHER}", python_that_says(OTHER))

    found = find(OTHER, {"HOME": str(home / "nothing"), "PYENV_ROOT": str(home / "elsewhere")})

    assert [python.version for python in found] == [OTHER]


@pytest.mark.parametrize(
    "place", ["x" * 300, "file/below", "."], ids=["unusable", "not a directory", "empty"]
)
def test_a_manager_that_cannot_be_looked_into_has_no_python(home: Path, place: str) -> None:
    (home / "file").touch()

    assert find(OTHER, {"HOME": str(home), "PYENV_ROOT": str(home / place)}) == []


def test_a_python_is_believed_and_not_its_name(home: Path) -> None:
    (home / "bin" / f"python{OTHER}").symlink_to(sys.executable)

    assert versions_found(OTHER, home) == []


def test_a_python_says_where_it_is_installed() -> None:
    asked = ask(sys.executable)

    assert asked is not None
    assert (asked.version, asked.prefix) == (OWN, sys.base_prefix)
