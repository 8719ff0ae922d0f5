"""What a box shows of a Python agent, and what is refused before a box exists."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.runner import Runner
from codegenie.eval.suts import spec
from codegenie.eval.suts.boxed.python import BoxedPythonSut
from codegenie.eval.suts.boxed.python_setup import python_setup, refuse_closed_paths
from codegenie.eval.suts.boxed.request import PythonRequest
from tests.support.benches import TASK_CLASS, write_bench


@pytest.fixture
def request_here(tmp_path: Path) -> PythonRequest:
    directory = Path(os.path.realpath(tmp_path)) / "project"
    directory.mkdir()
    return PythonRequest("agent:solve", str(directory))


def refusal(request: PythonRequest, home: str = "/nowhere/home") -> SutSpecInvalid:
    with (
        pytest.raises(SutSpecInvalid) as refused,
        python_setup(request, {**os.environ, "HOME": home, "MODEL_API_KEY": "k"}),
    ):
        pass
    return refused.value


def test_the_box_shows_the_directory_and_the_interpreter_and_hides_the_secrets(
    request_here: PythonRequest,
) -> None:
    secret = f"{request_here.directory}/bench"
    with python_setup(replace(request_here, secrets=(secret,)), dict(os.environ)) as setup:
        assert request_here.directory in setup.view.readable
        assert (setup.view.secrets, setup.view.network) == ((secret,), "none")
        shown = (*setup.view.readable, "/usr", "/opt")
        for needed in (os.path.realpath(sys.executable), os.path.realpath(os.__file__)):
            assert any(needed.startswith(f"{each}/") for each in shown)


def test_the_answers_of_a_harness_that_is_installed_beside_the_agent_are_hidden(
    request_here: PythonRequest,
) -> None:
    for place in ("lib/python3.11", ".venv/lib/python3.12"):
        package = Path(request_here.directory, place, "site-packages/codegenie/eval")
        (package / "_bench").mkdir(parents=True)
        (package / "benches.zip").touch()
    with python_setup(request_here, dict(os.environ)) as setup:
        hidden = {os.path.relpath(path, request_here.directory) for path in setup.view.secrets}

    assert hidden >= {
        f"{place}/site-packages/codegenie/eval/{name}"
        for place in ("lib/python3.11", ".venv/lib/python3.12")
        for name in ("_bench", "benches.zip")
    }


def test_private_copies_of_cases_are_hidden_where_they_lie_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bench(tmp_path / "bench")
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    plan = Runner().plan(task_class_name=TASK_CLASS)
    seen: list[PythonRequest] = []
    monkeypatch.setattr(spec, "BoxedPythonSut", seen.append)
    spec.open_sut(spec.SutRequest("python:agent:solve"), plan)

    assert os.path.realpath(tmp_path / "tmp") in seen[0].secrets


@pytest.mark.parametrize("place", ["", "/inner"])
def test_a_directory_that_is_a_secret_or_lies_in_one_is_not_shown(
    request_here: PythonRequest, place: str
) -> None:
    below = f"{request_here.directory}{place}"
    os.makedirs(below, exist_ok=True)
    refused = refusal(replace(request_here, directory=below, secrets=(request_here.directory,)))

    assert f"{below} lies where benches, answers or records are" in refused.message
    assert "outside of benches and records" in str(refused.hint)


def test_the_root_and_what_holds_the_directories_of_everybody_are_not_shown(
    request_here: PythonRequest,
) -> None:
    for directory in ("/", "/tmp", "/home"):
        refused = refusal(replace(request_here, directory=directory))
        assert f"would see all of {directory}" in refused.message
        assert "a directory that holds the agent" in str(refused.hint)


def hidden(request: PythonRequest, home: str) -> set[str]:
    """Return what of the directory a box hides, by its path in it."""
    with python_setup(request, {**os.environ, "HOME": home}) as setup:
        inside = [path for path in setup.view.secrets if path.startswith(f"{request.directory}/")]
    return {os.path.relpath(path, request.directory) for path in inside}


def test_of_a_home_only_code_is_shown(request_here: PythonRequest) -> None:
    here = Path(request_here.directory)
    for name in (".ssh/id", "notes/keys", "package/__init__.py", "token.txt", "helper.py", ".hidden.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).touch()

    assert hidden(request_here, str(here)) == {".ssh", "notes", "token.txt", ".hidden.py"}


@pytest.mark.parametrize("home", ["", "."])
def test_a_home_that_is_no_path_hides_nothing(
    request_here: PythonRequest, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(request_here.directory)
    Path(request_here.directory, "data.json").touch()

    assert hidden(request_here, home) == set()


def test_a_home_below_the_directory_is_hidden_but_for_the_python_in_it(request_here: PythonRequest) -> None:
    here = Path(request_here.directory)
    (here / "home/.ssh").mkdir(parents=True)
    assert hidden(request_here, f"{here}/home") == {"home"}

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{here}/home/python"], check=True)
    other = replace(request_here, interpreter=f"{here}/home/python/bin/python")
    assert hidden(other, f"{here}/home") == {"home/.ssh"}


def test_a_home_with_too_much_to_hide_is_refused(request_here: PythonRequest) -> None:
    for number in range(LIMITS.closed_directory_entries + 1):
        Path(request_here.directory, f"{number}.txt").touch()
    refused = refusal(request_here, request_here.directory)

    assert "more than 256 entries that a box has to hide" in refused.message


def test_a_directory_that_no_box_can_show_is_refused_with_a_way_out(request_here: PythonRequest) -> None:
    refused = refusal(replace(request_here, directory="/dev/shm"))

    assert "the box cannot show /dev/shm" in refused.message
    assert "from another directory" in str(refused.hint)


def test_a_key_needs_the_network_of_the_host(request_here: PythonRequest) -> None:
    asked = replace(request_here, pass_names=("MODEL_API_KEY",))
    refused = refusal(asked)

    assert "MODEL_API_KEY looks like a key" in refused.message
    assert str(refused.hint) == "--sut-network host hands it over; such a run does not count for gold"
    host = {**os.environ, "MODEL_API_KEY": "k"}
    with python_setup(replace(asked, network="host"), host) as setup:
        assert (setup.passed, setup.view.network) == ({"MODEL_API_KEY": "k"}, "host")


@pytest.mark.parametrize(
    ("name", "problem"), [("HOME", "sets this variable"), ("NOT_EXPORTED", "there is no such variable")]
)
def test_a_variable_that_cannot_be_handed_over_is_refused(
    request_here: PythonRequest, name: str, problem: str
) -> None:
    assert problem in refusal(replace(request_here, pass_names=(name,))).message


def test_a_function_has_no_broker(request_here: PythonRequest) -> None:
    with pytest.raises(SutSpecInvalid, match=r"the agent has no \[broker\]"):
        BoxedPythonSut(replace(request_here, network="broker"))


def test_an_interpreter_that_is_not_there_is_refused(request_here: PythonRequest) -> None:
    refused = refusal(replace(request_here, interpreter="no-such-python"))

    assert refused.message.startswith("--sut-python no-such-python: ")


@pytest.mark.parametrize("closed", ["project", "above"])
def test_what_the_user_of_roots_boxes_cannot_enter_is_refused_without_a_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    directory = Path(os.path.realpath(tmp_path)) / "above" / "project"
    directory.mkdir(parents=True, mode=0o755)
    place = directory if closed == "project" else directory.parent
    place.chmod(0o700)
    with python_setup(PythonRequest("agent:solve", str(directory)), dict(os.environ)) as setup:
        with pytest.raises(SutSpecInvalid, match="cannot enter") as refused:
            refuse_closed_paths(setup, "landlock")
        refuse_closed_paths(setup, "namespace")
        refuse_closed_paths(setup, "subprocess")

    assert "chmod o+rx" in str(refused.value.hint)
    assert "--sut-isolation namespace" in str(refused.value.hint)
