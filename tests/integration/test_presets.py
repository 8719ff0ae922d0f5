"""Each preset against a program that behaves as its agent does, in every form of such an agent."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.environment import Surroundings, agent_environment, broker_variables
from codegenie.eval.suts.agent_spec.filling import BoxPlaces, CaseTexts, filled, filled_rules
from codegenie.eval.suts.agent_spec.identity import version_line
from codegenie.eval.suts.agent_spec.needs import Needs, Places, find_needs
from codegenie.eval.suts.agent_spec.reading import PRESETS, preset
from tests.support.fake_agent_cli import EDITED, EDITING, ENDS, FORMS, ORIGINAL, PROGRAMS, VERSIONS, install
from tests.support.stated_usage import read_usage

MODEL = "model-a"
HANG_SECONDS = 60
GOOD = {
    "claude-code": StatedUsage(0.0125, 2700, 500, 90, MODEL),
    "codex": StatedUsage(None, 2500, 1000, 95),
    "gemini-cli": StatedUsage(None, 1800, 150, 70, MODEL),
    "mini-swe-agent": StatedUsage(0.0, 1750, 400, 55, MODEL),
    "aider": StatedUsage(None, 1200, None, 40),
}
# These state numbers also after a run in which no model answered: Claude no cost, Gemini no tokens.
FAILED = {
    "claude-code": StatedUsage(cost_usd=0.0),
    "codex": StatedUsage(),
    "gemini-cli": StatedUsage(None, 0, 0, 0, MODEL),
    "mini-swe-agent": StatedUsage(cost_usd=0.0),
    "aider": StatedUsage(),
}


@dataclass
class Stage:
    """A preset, its installed program, and the directories of one case."""

    name: str
    bin: Path
    home: Path
    work: Path

    def needs(self) -> Needs:
        spec = preset(self.name)
        return find_needs(spec.command[0], Places((), f"{self.bin}:{os.environ['PATH']}", str(self.home)))

    def start(self, broker: str) -> "subprocess.Popen[bytes]":
        """Start the agent as the preset says, with the environment of the contract and nothing else."""
        spec, needs = preset(self.name), self.needs()
        names = tuple(path.name for path in self.work.iterdir())
        case = CaseTexts("case-1", "class-a", 0, names, lambda name: (self.work / name).read_bytes())
        done = filled(spec, case, MODEL, BoxPlaces(str(self.home), broker))
        for name, content in done.home.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_bytes(content)
        surroundings = Surroundings(str(self.home), str(self.home), needs.shown, "namespace")
        variables = {**done.variables, **broker_variables(spec, "broker")}
        return subprocess.Popen(
            [needs.program, *done.argv[1:]],
            cwd=self.work,
            env=agent_environment(os.environ, surroundings, case, variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def stated(self, stdout: bytes) -> StatedUsage:
        output = preset(self.name).output
        left = self.home / (output.file or "").removeprefix("{home}/")
        return read_usage(output, stdout, left.read_bytes() if left.is_file() else None)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    for name in ("bin", "home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "calc.py").write_text(ORIGINAL, encoding="utf-8")
    return Stage(request.param, tmp_path / "bin", tmp_path / "home", tmp_path / "work")


every_preset = pytest.mark.parametrize("stage", PRESETS, indirect=True)


def without_notes(stated: StatedUsage) -> tuple[object, ...]:
    return stated.cost_usd, stated.input_tokens, stated.cached_tokens, stated.output_tokens, stated.model


def test_there_is_a_fake_of_every_preset() -> None:
    assert sorted(PROGRAMS) == sorted(PRESETS)


@every_preset
@pytest.mark.parametrize("form", [form for form in FORMS if form != "stall"])
def test_a_preset_drives_its_agent_and_reads_what_it_states(stage: Stage, form: str) -> None:
    install(stage.bin, stage.name, form)

    process = stage.start("http://127.0.0.1:9")
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == ENDS[stage.name].get(form, 0), stderr
    edited = (stage.work / "calc.py").read_text(encoding="utf-8")
    assert edited == (EDITED if form in EDITING else ORIGINAL)
    expected = GOOD if form in EDITING else FAILED
    assert without_notes(stage.stated(stdout)) == without_notes(expected[stage.name])


@every_preset
def test_an_agent_that_stalls_states_nothing_and_ends_on_a_signal(stage: Stage) -> None:
    program = install(stage.bin, stage.name, "stall")
    assert program.name == PROGRAMS[stage.name]
    process = stage.start("http://127.0.0.1:9")
    assert process.stdout is not None
    first = process.stdout.read(1) if stage.name != "gemini-cli" else b""
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == (143 if stage.name == "claude-code" else -signal.SIGTERM)
    assert without_notes(stage.stated(first + rest)) == (None,) * 5
    assert (stage.work / "calc.py").read_text(encoding="utf-8") == ORIGINAL


@every_preset
def test_the_version_of_an_agent_is_its_first_line(stage: Stage) -> None:
    install(stage.bin, stage.name, "ok")
    argv = [stage.needs().program, *preset(stage.name).version_command[1:]]

    said = subprocess.run(argv, capture_output=True, check=True, timeout=HANG_SECONDS)

    assert version_line(said.stdout) == VERSIONS[stage.name]


def test_the_statement_of_a_priced_aider_is_the_sum_of_its_messages(tmp_path: Path) -> None:
    (tmp_path / "calc.py").touch()
    stage = Stage("aider", tmp_path / "bin", tmp_path, tmp_path)
    stage.bin.mkdir()
    install(stage.bin, "aider", "priced")
    stdout, _ = stage.start("http://127.0.0.1:9").communicate(timeout=HANG_SECONDS)

    stated = stage.stated(stdout)

    assert (stated.input_tokens, stated.cached_tokens, stated.output_tokens) == (3000, 1100, 60)
    assert stated.cost_usd == pytest.approx(0.0035)


def test_a_cost_that_mini_states_without_a_price_is_unknown() -> None:
    assert GOOD["mini-swe-agent"].with_calls(2).cost_usd is None
    assert FAILED["claude-code"].with_calls(0).cost_usd == 0.0


# A model that answers, so that the agents really ask.


@dataclass
class Model:
    """A model on loopback: what it was asked, and with which status it answers."""

    address: str
    status: int
    asked: list[tuple[str, dict[str, str], dict[str, object]]] = field(default_factory=list)


@contextmanager
def model(status: int, answer: bytes = b"{}") -> Iterator[Model]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(served.status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Model(f"http://127.0.0.1:{server.server_port}", status)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


@every_preset
def test_an_agent_asks_only_what_the_rules_of_its_preset_allow(stage: Stage) -> None:
    install(stage.bin, stage.name, "asked")
    with model(200) as served:
        process = stage.start(served.address)
        _, stderr = process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == 0, stderr
    broker = preset(stage.name).broker
    assert broker is not None
    ((path, headers, body),) = served.asked
    assert path.partition("?")[0] in filled_rules(broker.paths, MODEL)
    assert body.get("model", MODEL) in filled_rules(broker.models, MODEL)
    assert headers[broker.credential.header.lower()] == broker.credential.format.format("broker")
    assert (stage.work / "calc.py").read_text(encoding="utf-8") == EDITED


@every_preset
@pytest.mark.parametrize(
    ("status", "answer", "form"), [(401, b"{}", "401"), (529, b"{}", "529"), (200, b"<html>", "garbage")]
)
def test_what_the_model_answers_decides_how_the_agent_ends(
    stage: Stage, status: int, answer: bytes, form: str
) -> None:
    install(stage.bin, stage.name, "asked")
    with model(status, answer) as served:
        process = stage.start(served.address)
        process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == ENDS[stage.name].get(form, 0)
    assert (stage.work / "calc.py").read_text(encoding="utf-8") == ORIGINAL


@every_preset
def test_a_fake_that_is_called_in_another_way_refuses(stage: Stage) -> None:
    program = install(stage.bin, stage.name, "ok")

    said = subprocess.run([program, "--message", "x"], cwd=stage.work, capture_output=True, check=False)

    assert said.returncode == 64
