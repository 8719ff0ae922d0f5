"""Drive real agent programs through box, broker and a model on this machine. Installs what is missing.

    .venv/bin/python -m scripts.drive_agents [--without NAME ...]

Each program of `scripts/agents.toml` is measured by its shipped preset, whose upstream alone is replaced.
The model asks for one edit of calc.py, and for a look around for the key. A program that cannot be had is
named at the end with the reason, and fails the command, unless `--without` names it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegenie.eval.suts import agent_spec
from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.reading import preset
from scripts.install_agents import PINS, NotInstalled, Pinned, agents_directory, installed, pinned_programs
from scripts.locks import ROOT
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.benches import TASK_CLASS
from tests.support.commands import eval_argv
from tests.support.fake_answers import CACHED, INPUT, OUTPUT
from tests.support.fake_coder import KEY_ABSENT, KEY_PRESENT, Coder
from tests.support.fake_model import FakeModel, fake_model
from tests.support.stated_usage import read_usage

PRESETS = Path(agent_spec.__file__).parents[1] / "presets"
KEY = "sk-the-key-of-the-user-0123456789"
CASE = "one"
# An aider takes half a minute on two busy processors. A hang is worse than a wait.
CASE_SECONDS, COMMAND_SECONDS = 600, 900
EDIT = ["-    return a - b", "+    return a + b"]
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True)
class Drive:
    """One run of one program, and all that is asserted about it."""

    pinned: Pinned
    model: str
    isolation: str
    seconds: float
    done: "subprocess.CompletedProcess[str]"
    fake: FakeModel
    kept: tuple[str, ...]
    trial: dict[str, Any] | None = None
    diff: str = ""
    stated: StatedUsage | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """What the broker counted."""
        return (self.trial or {}).get("usage") or {}

    def row(self, faults: Sequence[str]) -> str:
        """Return the row of the report."""
        usage = self.usage
        tokens = "/".join(
            str(usage.get(name, "-")) for name in ("input_tokens", "cached_tokens", "output_tokens")
        )
        cells = [
            self.pinned.name,
            self.pinned.version,
            self.model,
            self.isolation,
            self.fake.form,
            str(self.done.returncode),
            f"{self.seconds:.0f}",
            str(len(self.fake.seen)),
            tokens if usage else "-",
            "; ".join(faults) or "as it should be",
        ]
        return f"| {' | '.join(cells)} |"


COLUMNS = (
    "program",
    "version",
    "model",
    "class",
    "provider",
    "exit",
    "seconds",
    "requests",
    "tokens",
    "result",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def faults_of(drive: Drive) -> list[str]:
    """Return what is not as it should be."""
    return [
        *_leaks(drive),
        *(_faults_when_refused(drive) if drive.fake.form == "401" else _faults_when_ok(drive)),
    ]


def _leaks(drive: Drive) -> Iterator[str]:
    if any(KEY not in " ".join(seen.headers.values()) for seen in drive.fake.seen):
        yield "a request reached the provider without the key"
    if any(KEY.encode() in seen.body for seen in drive.fake.seen):
        yield "the agent knew the key"
    if KEY in drive.done.stdout + drive.done.stderr:
        yield "the key was printed"
    yield from (f"the key is kept in {name}" for name in drive.kept)


def _faults_when_refused(drive: Drive) -> Iterator[str]:
    if drive.done.returncode != 4 or "the provider refused the key (401)" not in drive.done.stdout:
        yield f"a refused key ended with exit {drive.done.returncode}: {_last_word(drive)}"
    if not drive.fake.seen:
        yield "the provider was not asked"


def _faults_when_ok(drive: Drive) -> Iterator[str]:
    if drive.done.returncode != 0 or drive.trial is None:
        yield f"exit {drive.done.returncode}: {_last_word(drive)}"
        return
    score = (drive.trial.get("answer") or {}).get("score")
    if score != 1.0:
        yield f"score {score}"
    changed = [line for line in drive.diff.splitlines() if re.match(r"[-+](?![-+])", line)]
    if changed != EDIT:
        yield f"show --diff has {len(changed)} changed lines that are not the edit"
    yield from _miscounts(drive)
    bodies = b"".join(seen.body for seen in drive.fake.seen)
    # An agent without a shell cannot look around.
    has_shell = drive.pinned.name != "aider"
    if KEY_PRESENT.encode() in bodies or (KEY_ABSENT.encode() in bodies) != has_shell:
        yield "the agent did not find that the key is absent"


def _miscounts(drive: Drive) -> Iterator[str]:
    answers, stated = len(drive.fake.seen), drive.stated or StatedUsage()
    truth = {"input_tokens": INPUT, "cached_tokens": CACHED, "output_tokens": OUTPUT}
    for name, each in truth.items():
        counted, said = drive.usage.get(name), getattr(stated, name)
        if counted != each * answers:
            yield f"the broker counted {counted} {name} of {each * answers}"
        # Aider states cached tokens of some providers only, and then the preset reads them.
        is_stated = said is not None or (drive.pinned.name, name) != ("aider", "cached_tokens")
        if is_stated and said != counted:
            yield f"the program states {said} {name}, the broker counted {counted}"


def _last_word(drive: Drive) -> str:
    try:
        said = json.loads(drive.done.stdout).get("error", {}).get("message")
    except ValueError:
        said = None
    return str(said or (drive.done.stderr.strip().splitlines() or ["nothing was said"])[-1])[:200]


def drive(pinned: Pinned, program: Path, model: str, isolation: str, form: str) -> Drive:
    """Measure one program once."""
    with agent_desk((CASE,)) as desk, fake_model(FakeModel(form=form, key=KEY, answer=Coder(KEY))) as fake:
        text = (PRESETS / f"{pinned.name}.toml").read_text(encoding="utf-8")
        replaced = re.sub(r'upstream = "[^"]*"', f'upstream = "{fake.url}"', text)
        (desk.directory / f"{pinned.name}.toml").write_text(replaced, encoding="utf-8")
        options = ["--sut-model", model, "--sut-isolation", isolation, "--timeout", str(CASE_SECONDS)]
        arguments = [TASK_CLASS, "--sut", f"{pinned.name}.toml", *options, "--no-cache", "--quiet", "--json"]
        began = time.monotonic()
        done = _command(desk, program, "run", *arguments)
        seconds = time.monotonic() - began
        made = (pinned, model, isolation, seconds, done, fake, tuple(_files_with_the_key(desk.directory)))
        if done.returncode != 0:
            return Drive(*made)
        trials = json.loads(_command(desk, program, "show", "latest", CASE, "--json").stdout)["trials"]
        diff = _command(desk, program, "show", "latest", CASE, "--diff").stdout
        return Drive(*made, trials[0], diff, _stated(desk, pinned, trials[0]))


def _command(desk: AgentDesk, program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
    path = f"{program.parent}:{environment.get('PATH', '/usr/bin:/bin')}"
    return subprocess.run(
        eval_argv(*arguments),
        cwd=desk.directory,
        env={**environment, **keys, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


def _stated(desk: AgentDesk, pinned: Pinned, trial: dict[str, Any]) -> StatedUsage:
    left = desk.artifact(trial, "agent_file") if "agent_file" in trial["artifacts"] else None
    return read_usage(preset(pinned.name).output, desk.artifact(trial, "sut_stdout"), left)


def _files_with_the_key(directory: Path) -> Iterator[str]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and KEY.encode() in path.read_bytes():
            yield str(path.relative_to(directory))


def drives_of(pinned: Pinned) -> Iterator[tuple[str, str, str]]:
    """Yield model, class and form of the provider: all with the first model, the rest in the first class."""
    first, *others = pinned.models
    for isolation in pinned.classes:
        yield from ((first, isolation, form) for form in ("ok", "401"))
    yield from ((model, pinned.classes[0], "ok") for model in others)


def main(arguments: Sequence[str], pins: Path = PINS) -> int:
    """Install and drive every program; return the exit status."""
    programs = pinned_programs(pins)
    parser = argparse.ArgumentParser(prog="drive_agents", description="Drive real agent programs.")
    parser.add_argument("--without", action="append", default=[], choices=[one.name for one in programs])
    left_out = parser.parse_args(arguments).without
    directory = agents_directory(os.environ)
    print(f"programs in {directory}\n\n{HEAD}", flush=True)
    is_good, not_driven = True, []
    for pinned in programs:
        if pinned.name in left_out:
            not_driven.append(f"not driven: {pinned.name}, left out by --without")
            continue
        try:
            program = installed(pinned, directory)
        except NotInstalled as reason:
            not_driven.append(f"NOT DRIVEN: {pinned.name} {pinned.version}: {reason}")
            is_good = False
            continue
        for model, isolation, form in drives_of(pinned):
            one = drive(pinned, program, model, isolation, form)
            faults = faults_of(one)
            is_good = is_good and not faults
            print(one.row(faults), flush=True)
    print("\n".join(["", *not_driven, "all as it should be" if is_good else "FAILED"]))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
