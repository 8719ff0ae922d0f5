"""`make test-agents` without real agents: what it installs, what is a fault, and what it cannot drive."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.reading import PRESETS
from scripts import drive_agents, install_agents
from scripts.drive_agents import KEY, Drive, faults_of
from scripts.install_agents import NotInstalled, Pinned, agents_directory, installed
from tests.support.fake_answers import CACHED, INPUT, OUTPUT
from tests.support.fake_coder import KEY_ABSENT, KEY_PRESENT, RIGHT, mending_command
from tests.support.fake_model import FakeModel, Seen

CLAUDE = Pinned("claude-code", "1.0", ("m",), ("namespace",), npm=("p@1.0",))
USAGE: dict[str, Any] = {"input_tokens": 2 * INPUT, "cached_tokens": 2 * CACHED, "output_tokens": 2 * OUTPUT}
DIFF = "--- a/calc.py\n+++ b/calc.py\n def add(a, b):\n-    return a - b\n+    return a + b\n"


def ended(code: int, stdout: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess([], code, stdout, "")


def seen(body: bytes = b"", key: str = KEY) -> Seen:
    return Seen("POST", "/v1/messages", {"x-api-key": key}, body)


def good() -> Drive:
    fake = FakeModel(seen=[seen(), seen(KEY_ABSENT.encode())])
    trial: dict[str, Any] = {"usage": USAGE, "answer": {"score": 1.0}}
    return Drive(CLAUDE, "m", "namespace", 1.0, ended(0), fake, (), trial, DIFF, StatedUsage(**USAGE))


def refused() -> Drive:
    fake = FakeModel(form="401", seen=[seen()])
    said = ended(4, '{"error": {"message": "the provider refused the key (401)"}}')
    return Drive(CLAUDE, "m", "namespace", 1.0, said, fake, ())


# The pins.


def test_every_preset_is_pinned_to_a_version_and_to_what_is_installed() -> None:
    pins = install_agents.pinned_programs(install_agents.PINS)

    assert sorted(pinned.name for pinned in pins) == sorted(PRESETS)
    for pinned in pins:
        assert any(wanted.endswith(pinned.version) for wanted in (*pinned.npm, *pinned.pip))
        assert all("==" in wanted for wanted in pinned.pip)
        assert all("@" in wanted[1:] for wanted in pinned.npm)
        assert pinned.classes[0] == "namespace"


def test_each_class_meets_a_good_and_a_refused_key_and_other_models_meet_the_first_class() -> None:
    pinned = Pinned("codex", "1", ("a", "b"), ("namespace", "landlock"))

    assert list(drive_agents.drives_of(pinned)) == [
        ("a", "namespace", "ok"),
        ("a", "namespace", "401"),
        ("a", "landlock", "ok"),
        ("a", "landlock", "401"),
        ("b", "namespace", "ok"),
    ]


# What is a fault.


def test_a_drive_without_fault_has_none() -> None:
    assert faults_of(good()) == []
    assert faults_of(refused()) == []


def counted(**changed: int) -> dict[str, Any]:
    return {"usage": {**USAGE, **changed}, "answer": {"score": 1.0}}


FAULTS: dict[str, tuple[Callable[[], Drive], str]] = {
    "exit code": (lambda: replace(good(), done=ended(4)), "exit 4: nothing was said"),
    "score": (lambda: replace(good(), trial={"usage": USAGE, "answer": {"score": 0.0}}), "score 0.0"),
    "no answer": (lambda: replace(good(), trial={"usage": USAGE, "answer": None}), "score None"),
    "other edit": (lambda: replace(good(), diff=DIFF + "+more\n"), "show --diff has 3 changed lines"),
    "no edit": (lambda: replace(good(), diff=""), "show --diff has 0 changed lines"),
    "counted too few": (lambda: replace(good(), trial=counted(input_tokens=INPUT)), "the broker counted 900"),
    "stated too few": (
        lambda: replace(good(), stated=StatedUsage(**{**USAGE, "cached_tokens": 1})),
        "the program states 1 cached_tokens, the broker counted 600",
    ),
    "states nothing": (lambda: replace(good(), stated=StatedUsage()), "the program states None input_tokens"),
    "key in the box": (
        lambda: replace(good(), fake=FakeModel(seen=[seen(), seen(KEY_PRESENT.encode())])),
        "did not find that the key is absent",
    ),
    "did not look": (lambda: replace(good(), fake=FakeModel(seen=[seen(), seen()])), "did not find that"),
    "key in a request": (
        lambda: replace(good(), fake=FakeModel(seen=[seen(KEY.encode()), seen(KEY_ABSENT.encode())])),
        "the agent knew the key",
    ),
    "request without key": (
        lambda: replace(good(), fake=FakeModel(seen=[seen(key="x"), seen(KEY_ABSENT.encode())])),
        "without the key",
    ),
    "key printed": (lambda: replace(good(), done=ended(0, KEY)), "the key was printed"),
    "key kept": (lambda: replace(good(), kept=("log.json",)), "the key is kept in log.json"),
    "401 with exit 0": (lambda: replace(refused(), done=ended(0)), "a refused key ended with exit 0"),
    "401 for another reason": (
        lambda: replace(refused(), done=ended(4, '{"error": {"message": "no box"}}')),
        "a refused key ended with exit 4: no box",
    ),
    "401 unasked": (lambda: replace(refused(), fake=FakeModel(form="401")), "the provider was not asked"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_drive_that_is_not_as_it_should_be_names_its_fault(name: str) -> None:
    made, fault = FAULTS[name]

    assert any(fault in found for found in faults_of(made()))
    assert fault in made().row(faults_of(made()))


# What is installed.


def npm(directory: Path, text: str) -> None:
    program = directory / "npm"
    program.write_text(f"#!/bin/sh\necho . >> {directory}/calls\n{text}\n", encoding="utf-8")
    program.chmod(0o755)


INSTALLS = """mkdir -p node_modules/.bin
printf '#!/bin/sh\\necho 1.0 \\\\(Claude Code\\\\)\\n' > node_modules/.bin/claude
chmod +x node_modules/.bin/claude"""


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", f"{made}:/usr/bin:/bin")
    return made


def test_a_program_is_installed_once_and_again_if_that_was_not_finished(
    bin_directory: Path, tmp_path: Path
) -> None:
    npm(bin_directory, INSTALLS)
    unfinished = CLAUDE.home(tmp_path) / "node_modules" / "half"
    unfinished.mkdir(parents=True)

    first = installed(CLAUDE, tmp_path)
    second = installed(CLAUDE, tmp_path)

    assert first == second == tmp_path / "claude-code-1.0" / "node_modules/.bin/claude"
    assert not unfinished.exists()
    assert (bin_directory / "calls").read_text() == ".\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo no such package; exit 1", "npm ended with 1: no such package"),
        ("true", "claude"),
        (INSTALLS.replace("1.0", "1.1"), "claude does not state version 1.0"),
    ],
)
def test_a_program_that_cannot_be_had_says_why(
    bin_directory: Path, tmp_path: Path, text: str, reason: str
) -> None:
    npm(bin_directory, text)

    with pytest.raises(NotInstalled, match=reason):
        installed(CLAUDE, tmp_path)


def test_programs_lie_outside_the_repository_and_where_the_user_says(tmp_path: Path) -> None:
    named = agents_directory({"CODEGENIE_AGENTS_DIR": str(tmp_path)})
    usual = agents_directory({"HOME": "/home/u"})

    assert named == tmp_path
    assert usual.name == "codegenie-agents"
    # Root's own cache is closed to the user of a box.
    assert usual.parent == Path("/var/cache" if os.geteuid() == 0 else "/home/u/.cache")


def test_a_program_that_is_not_driven_fails_unless_it_is_left_out_by_name(
    bin_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    npm(bin_directory, "echo no such package; exit 1")
    monkeypatch.setenv("CODEGENIE_AGENTS_DIR", str(tmp_path / "agents"))
    pins = tmp_path / "pins.toml"
    pins.write_text(
        '[codex]\nversion = "1"\nnpm = ["x@1"]\nmodels = ["m"]\nclasses = ["namespace"]\n', encoding="utf-8"
    )

    assert drive_agents.main([], pins) == 1
    said = capsys.readouterr().out
    assert "NOT DRIVEN: codex 1: npm ended with 1: no such package" in said
    assert said.endswith("FAILED\n")
    assert drive_agents.main(["--without", "codex"], pins) == 0
    assert "not driven: codex, left out by --without" in capsys.readouterr().out


# The command that looks for the key.


@pytest.mark.parametrize("place", ["nowhere", "environment", "home", "workspace"])
def test_the_command_of_the_model_mends_the_file_and_finds_the_key_where_it_is(
    tmp_path: Path, place: str
) -> None:
    # Unlike that of other tests, which run beside this one.
    key = "sk-of-this-test-alone-" + os.urandom(8).hex()
    environment = {"PATH": "/usr/bin:/bin"}
    for variable, name in {"HOME": "home", "TMPDIR": "tmp", "WORK": "workspace"}.items():
        (tmp_path / name).mkdir()
        environment[variable] = str(tmp_path / name)
    if place == "environment":
        environment["MODEL_KEY"] = key
    elif place != "nowhere":
        (tmp_path / place / "notes").write_text(f"the key is {key}", encoding="utf-8")

    argv = ["/bin/sh", "-c", mending_command(key)]
    done = subprocess.run(
        argv, cwd=tmp_path / "workspace", env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == (KEY_ABSENT if place == "nowhere" else KEY_PRESENT)
    assert (tmp_path / "workspace/calc.py").read_text(encoding="utf-8") == RIGHT
    assert key not in mending_command(key)
    assert KEY_ABSENT not in mending_command(key)
    assert all(path.read_bytes() == b"" for path in (tmp_path / "tmp").iterdir())
