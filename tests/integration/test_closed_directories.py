"""An agent in a directory that is closed to other users, as temporary ones are: its box shows it, too."""

import os
from collections.abc import Iterator

import pytest

from tests.support.agent_desk import RIGHT, AgentDesk, agent_desk, python_program
from tests.support.sampling import sampled

AGENT = f"""\
import os
from pathlib import Path

import package.helper
import linked

HERE = Path(__file__).parent


def solve(case):
    found = []
    for path in HERE.rglob("*"):
        if "expected" in str(path) or "runs" in str(path) or path.name == "private.txt":
            try:
                found.append(path.read_text())
            except OSError:
                pass
    found = [text for text in found if text]
    if found:
        return {{"found": found}}
    (Path(case.input_dir) / "calc.py").write_text({RIGHT!r})
"""


@pytest.fixture
def desk() -> Iterator[AgentDesk]:
    with agent_desk(["one"]) as desk:
        (desk.directory / "agent.py").write_text(AGENT)
        (desk.directory / "package").mkdir()
        (desk.directory / "package/helper.py").write_text("")
        (desk.directory / "linked.py").symlink_to("package/helper.py")
        private = desk.directory / "private.txt"
        private.write_text("a file that is closed itself")
        # As an ordinary user the agent is this user, and may read it.
        private.chmod(0o600 if os.geteuid() == 0 else 0)
        desk.directory.chmod(0o700)
        yield desk


def test_a_python_agent_works_there_and_finds_neither_answers_nor_closed_files(desk: AgentDesk) -> None:
    done = desk.run("python:agent:solve", "--sut-isolation", "namespace")

    assert done.returncode == 0, done.stderr
    (trial,) = desk.trials("one")
    assert desk.output(trial)["files"] == {"calc.py": RIGHT}


@pytest.mark.parametrize("isolation", sampled(("namespace", "landlock"), "namespace".__eq__))
def test_in_a_home_it_finds_its_code_and_no_key(desk: AgentDesk, isolation: str) -> None:
    desk.directory.chmod(0o755)
    (desk.directory / ".ssh").mkdir()
    (desk.directory / ".ssh/expected-by-a-thief").write_text("a key")
    # Ours may lie where without a namespace only root can go.
    python = ("--sut-python", python_program()) if isolation == "landlock" else ()
    done = desk.run("python:agent:solve", "--sut-isolation", isolation, *python, HOME=str(desk.directory))

    assert done.returncode == 0, done.stderr
    (trial,) = desk.trials("one")
    assert desk.output(trial).get("found", []) == []
    assert desk.output(trial)["files"] == {"calc.py": RIGHT}


def test_without_a_namespace_root_is_told_what_to_do(desk: AgentDesk) -> None:
    done = desk.run("python:agent:solve", "--sut-isolation", "landlock")

    if os.geteuid() == 0:
        assert done.returncode == 2
        assert "closed to other users" in done.stderr
        assert "--sut-isolation namespace" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
