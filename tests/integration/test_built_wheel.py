"""The wheel as a file: its bytes, what it says about itself, and the types that it ships."""

import email
import os
import subprocess
import sys
import sysconfig
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import codegenie
import codegenie.eval
from scripts.build_wheel import build, copy_inputs, declared_version
from scripts.interpreters import VERSIONS
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

USER_PROGRAM = """\
from typing import assert_type

from codegenie.eval import {names}


async def solve(case: SutCase) -> SutResult:
    return SutResult({{"answer": case.case_id}}, cost_usd=0.0)


def weakest(report: BenchRunReport) -> tuple[str, float]:
    scores = {{case_id: score.score for case_id, score in report.per_case}}
    assert_type(scores, dict[str, float])
    return min(scores.items(), key=lambda pair: pair[1])


def said(error: EvalError) -> str:
    return f"{{error.message}} ({{error.exit_code}})"
"""
WRONG_PROGRAM = """\
from codegenie.eval import EvalError


def said(error: EvalError) -> int:
    return error.message
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_two_builds_from_other_places_times_modes_and_environments_give_the_same_bytes(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_inputs(tmp_path / "private", umask=0o077, time=86_400)
    copy_inputs(tmp_path / "a" / "shared", umask=0o002, time=2_000_000_000)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")

    built = [build(tmp_path / name / "out", tmp_path / name) for name in ("private", "a/shared")]

    assert [path.name for path in built] == [wheel.name] * 2
    assert [path.read_bytes() == wheel.read_bytes() for path in built] == [True, True]


def test_a_change_of_one_byte_of_the_source_changes_the_wheel(wheel: Path, tmp_path: Path) -> None:
    copy_inputs(tmp_path / "source", umask=0o022, time=86_400)
    with (tmp_path / "source/src/codegenie/__init__.py").open("a", encoding="utf-8") as file:
        file.write("\n")

    assert build(tmp_path / "out", tmp_path / "source").read_bytes() != wheel.read_bytes()


def test_the_version_stands_in_one_place_and_the_wheel_bears_it(wheel: Path, metadata: Message) -> None:
    assert codegenie.__version__ == declared_version() == metadata["Version"]
    assert wheel.name == f"codegenie-{declared_version()}-py3-none-any.whl"


def test_the_wheel_says_what_it_is_for_whom_and_on_what_it_was_tried(metadata: Message) -> None:
    classifiers = metadata.get_all("Classifier", [])

    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"]
    assert metadata["Keywords"]
    assert {f"Programming Language :: Python :: {version}" for version in VERSIONS[:3]} <= set(classifiers)
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(classifiers)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Provides-Extra") == ["dev"]


def test_the_wheel_names_no_person_and_no_address(metadata: Message) -> None:
    assert (metadata["Author"], metadata["Author-Email"]) == ("The codegenie authors", None)
    assert (metadata["Maintainer"], metadata["Maintainer-Email"]) == (None, None)
    assert metadata.get_all("Project-URL") is None


class TypedUser:
    """A project of its own that has the wheel installed, and mypy."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self.directory = directory
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")],
            check=True,
            timeout=120,
        )
        (self.packages,) = (directory / "venv").glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        # The dependencies are ours. What is editable there is not, for no .pth file of another is read.
        (self.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")

    def checks(self, program: str) -> str:
        """Return what mypy says about a program; nothing if it is clean."""
        (self.directory / "program.py").write_text(program, encoding="utf-8")
        strict = ["--strict", "--no-error-summary", "--config-file=", "program.py"]
        environment = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *strict, f"--python-executable={self.directory}/venv/bin/python"],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout


@pytest.fixture(scope="module")
def typed_user(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> TypedUser:
    return TypedUser(tmp_path_factory.mktemp("typed"), wheel)


def test_a_strictly_typed_program_that_imports_every_public_name_is_clean(typed_user: TypedUser) -> None:
    names = ", ".join(codegenie.eval.__all__)
    unused = "".join(f"print({name})\n" for name in codegenie.eval.__all__)

    assert typed_user.checks(f"{USER_PROGRAM.format(names=names)}\n\n{unused}") == ""


def test_the_types_of_the_wheel_refuse_a_program_that_takes_a_text_for_a_number(
    typed_user: TypedUser,
) -> None:
    assert 'got "str", expected "int"' in typed_user.checks(WRONG_PROGRAM)


def test_without_its_marker_the_types_of_the_wheel_would_count_for_nothing(typed_user: TypedUser) -> None:
    marker = typed_user.packages / "codegenie/py.typed"
    marker.unlink()
    try:
        assert "missing library stubs or py.typed marker" in typed_user.checks(WRONG_PROGRAM)
    finally:
        marker.touch()
