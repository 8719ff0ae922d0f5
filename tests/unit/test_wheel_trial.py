"""The trial of the wheel fails when a command does: by its exit code, by its words, or by a warning."""

from pathlib import Path

import pytest

from scripts.try_wheel import Failed, NewUser, check_traces, closed_parent, installed_files


@pytest.fixture
def user(tmp_path: Path) -> NewUser:
    """Return somebody whose `codegenie` does what a test writes into it."""
    for name in (
        "work",
        "temporary",
        "venv/bin",
        "venv/lib/python3/site-packages/codegenie/eval/__pycache__",
    ):
        (tmp_path / name).mkdir(parents=True)
    return NewUser(tmp_path, None)


def with_command(user: NewUser, text: str) -> NewUser:
    command = user.home / "venv/bin/codegenie"
    command.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    command.chmod(0o755)
    return user


def test_a_command_that_says_what_it_should_is_noted(user: NewUser) -> None:
    with_command(user, 'echo "all is well: $1"; exit 1').codegenie("verdict", says="well: verdict", code=1)

    assert user.said == ["  codegenie verdict: exit 1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo fine; exit 3", "exit 3, not 0"),
        ("echo nothing of it", "not 0 and 'fine'"),
        ("echo fine; echo 'x.py:1: DeprecationWarning: fork() may lead to deadlocks' >&2", "and it warns"),
    ],
)
def test_a_command_that_ends_speaks_or_warns_otherwise_fails_the_trial(
    user: NewUser, text: str, problem: str
) -> None:
    with pytest.raises(Failed, match=problem):
        with_command(user, text).codegenie("demo", says="fine")


def test_a_command_is_told_to_warn_and_nothing_of_ours(
    user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/ours")

    with_command(user, "env").codegenie(says="PYTHONWARNINGS=default")
    with pytest.raises(Failed):
        user.codegenie(says="/of/ours")


def test_a_file_that_is_left_below_tmpdir_or_in_the_package_fails_the_trial(user: NewUser) -> None:
    before = installed_files(user)
    check_traces(user, before)
    (user.home / "temporary/left").touch()
    with pytest.raises(Failed, match="left"):
        check_traces(user, before)
    (user.home / "temporary/left").unlink()
    (user.home / "venv/lib/python3/site-packages/codegenie/new.py").touch()

    with pytest.raises(Failed, match="something in the installed package"):
        check_traces(user, before)


def test_the_outermost_closed_directory_above_an_installation_is_found(tmp_path: Path) -> None:
    outer, inner = tmp_path / "home", tmp_path / "home" / "inner"
    prefix = str(inner / "python")
    for place in (outer, inner):
        place.mkdir()
        place.chmod(0o755)
    assert closed_parent(prefix, outer) is None

    inner.chmod(0o700)
    assert closed_parent(prefix, outer) == str(inner)

    outer.chmod(0o700)
    assert closed_parent(prefix, outer) == str(outer)
