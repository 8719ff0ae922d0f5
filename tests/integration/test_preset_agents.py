"""Every preset, driven by a program that behaves as the agent, through box, broker and a fake provider."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.suts.agent_spec import reading
from scripts.drive_agents import drive, faults_of
from scripts.install_agents import Pinned
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.fake_agent_cli import install
from tests.support.fake_model import CACHED, INPUT, MODEL, OUTPUT, FakeModel, fake_model
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

KEY = "sk-the-key-of-the-user-0123456789"
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}
PRESETS = Path(reading.__file__).parents[1] / "presets"


@pytest.fixture(scope="module")
def desk() -> Iterator[AgentDesk]:
    with agent_desk() as made:
        (made.directory / "bin").mkdir()
        yield made


@contextmanager
def provider(form: str = "ok") -> Iterator[FakeModel]:
    with fake_model(FakeModel(form=form, key=KEY)) as fake:
        yield fake


def measured(
    desk: AgentDesk, agent: str, fake: FakeModel, *arguments: str, form: str = "asked"
) -> subprocess.CompletedProcess[str]:
    """Measure a preset, whose upstream is replaced by the fake provider."""
    install(desk.directory / "bin", agent, form, calls_model=True)
    text = (PRESETS / f"{agent}.toml").read_text(encoding="utf-8")
    replaced = re.sub(r'upstream = "[^"]*"', f'upstream = "{fake.url}"', text)
    assert replaced != text
    (desk.directory / f"{agent}.toml").write_text(replaced, encoding="utf-8")
    path = f"{desk.directory}/bin:/usr/bin:/bin"
    return desk.run(f"{agent}.toml", "--sut-model", MODEL, "--json", *arguments, PATH=path, **KEYS)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    assert "report" in document, document
    report: dict[str, Any] = document["report"]
    return report


@pytest.mark.parametrize("agent", reading.PRESETS)
def test_a_preset_mends_every_case_and_its_tokens_are_counted_outside(desk: AgentDesk, agent: str) -> None:
    with provider() as fake:
        report = report_of(measured(desk, agent, fake, "--no-cache"))
    (trial,) = desk.trials("one")

    assert (report["passed_count"], report["sut_network"]) == (2, "broker")
    assert report["sut_upstream"] == fake.url.removeprefix("http://")
    usage = trial["usage"]
    assert (usage["input_tokens"], usage["cached_tokens"], usage["output_tokens"]) == (INPUT, CACHED, OUTPUT)
    assert (usage["counted_by"], usage["requests"], usage["models"]) == ("broker", 1, [MODEL])
    assert "+    return a + b" in desk.ask("show", "latest", "one", "--diff").stdout
    assert (
        desk.artifact(trial, "sut_stdout").decode().splitlines()[0]
        in desk.ask("show", "latest", "one", "--log").stdout
    )
    # Every request had the real key, and it is nowhere else.
    assert all(KEY in json.dumps(seen.headers) for seen in fake.seen)
    kept = [
        path for path in desk.directory.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert kept == []


def test_what_presets_did_is_judged_again_with_the_same_result(desk: AgentDesk) -> None:
    assert desk.document("verify", "--rescore")["ok"] is True


REFUSED = [(agent, form) for form in ("401", "garbage", "redirect") for agent in reading.PRESETS]
REFUSED_ALWAYS = {
    ("claude-code", "401"),
    ("claude-code", "garbage"),
    ("claude-code", "redirect"),
    ("aider", "401"),
}


@pytest.mark.parametrize(
    ("agent", "form"),
    [
        # All forms by one agent, and the first by an agent of another provider.
        pytest.param(agent, form, marks=() if (agent, form) in REFUSED_ALWAYS else pytest.mark.all_ways)
        for agent, form in REFUSED
    ],
)
def test_a_model_that_never_answers_ends_the_run_and_is_no_column_of_zeros(
    desk: AgentDesk, agent: str, form: str
) -> None:
    with provider(form) as fake:
        done = measured(desk, agent, fake, "--no-cache")
    refusal = json.loads(done.stdout)["error"]

    assert (done.returncode, refusal["type"]) == (4, "ModelNotReached")
    assert ("the provider refused the key (401)" in refusal["message"]) == (form == "401")
    assert KEY not in done.stdout + done.stderr


def test_after_a_refused_key_the_same_command_measures_without_a_trace(desk: AgentDesk) -> None:
    with provider("401") as fake:
        assert measured(desk, "claude-code", fake).returncode == 4
        fake.form = "ok"
        report = report_of(measured(desk, "claude-code", fake))
    trials = [*desk.trials("one"), *desk.trials("two")]

    assert report["passed_count"] == 2
    assert [trial.get("interrupted", 0) for trial in trials] == [0, 0]


@pytest.mark.parametrize("form", sampled(["429-once", "503-once"], lambda form: form == "429-once"))
def test_the_broker_waits_for_a_busy_provider_and_the_agent_hears_nothing(desk: AgentDesk, form: str) -> None:
    with provider(form) as fake:
        report = report_of(measured(desk, "codex", fake, "--no-cache", "--concurrency", "1"))
    (trial,) = desk.trials("one")

    assert report["passed_count"] == 2
    assert trial["attempts"][0]["provider_wait_ms"] >= 900
    assert trial["usage"]["requests"] == 1


def test_an_agent_that_stalls_is_late_and_its_tokens_are_still_counted(desk: AgentDesk) -> None:
    with provider() as fake:
        limits = ("--no-cache", "--cases", "one", "--timeout", "4")
        report = report_of(measured(desk, "claude-code", fake, *limits, form="stall"))
    (trial,) = desk.trials("one")

    assert report["per_case"][0][1]["failure_modes"][0]["code"] == "sut.timeout"
    assert trial["usage"]["output_tokens"] == OUTPUT


def test_a_key_that_is_not_set_is_refused_before_anything_starts(desk: AgentDesk) -> None:
    install(desk.directory / "bin", "claude-code", "ok")
    path = f"{desk.directory}/bin:/usr/bin:/bin"
    done = desk.run("preset:claude-code", "--sut-model", MODEL, PATH=path)

    assert done.returncode == 2
    assert "ANTHROPIC_API_KEY: there is no such variable" in done.stderr


@pytest.mark.parametrize("flag", ["--sut-env"])
def test_a_key_is_not_passed_where_the_broker_holds_it(desk: AgentDesk, flag: str) -> None:
    with provider() as fake:
        done = measured(desk, "claude-code", fake, flag, "ANTHROPIC_API_KEY")

    assert done.returncode == 2
    assert "never enters the box" in json.loads(done.stdout)["error"]["message"]


def test_a_cost_cap_without_stated_cost_ends_the_run_after_its_first_case(desk: AgentDesk) -> None:
    with provider() as fake:
        limits = ("--no-cache", "--max-cost-usd", "1", "--concurrency", "1")
        done = measured(desk, "codex", fake, *limits)

    assert done.returncode == 4
    assert "cost cap without stated cost: 1 case was run" in done.stdout


def test_an_agent_that_does_not_ask_its_broker_is_no_column_of_zeros(desk: AgentDesk) -> None:
    with provider() as fake:
        spec = desk.script("echo it lacks a module >&2\nexit 1\n", "silent.sh")
        assert spec
        (desk.directory / "silent.toml").write_text(
            'schema = 1\nname = "silent"\ncommand = ["./silent.sh"]\n[network]\nmode = "broker"\n[broker]\n'
            f'upstream = "{fake.url}"\ncredential = {{ env = "OPENAI_API_KEY", header = "x-api-key" }}\n'
            'url_env = { MODEL_URL = "{broker}" }\npaths = ["/v1/messages"]\n',
            encoding="utf-8",
        )
        done = desk.run("silent.toml", "--json", **KEYS)

    assert (done.returncode, json.loads(done.stdout)["error"]["type"]) == (4, "ModelNotReached")
    assert "the agent sent no request to the broker; its last line: it lacks a module" in done.stdout


def test_make_test_agents_finds_an_agent_that_states_other_tokens_and_does_not_look_around(
    desk: AgentDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program = install(desk.directory / "bin", "claude-code", "asked", calls_model=True)
    pinned = Pinned("claude-code", "2.1.0", (MODEL,), ("namespace",))
    driven = drive(pinned, program, MODEL, "namespace", "ok")

    assert driven.row([]).startswith("| claude-code | 2.1.0 | fake-model-1 | namespace | ok | 0 |")
    assert faults_of(driven) == [
        "the program states 2700 input_tokens, the broker counted 900",
        "the program states 500 cached_tokens, the broker counted 300",
        "the program states 90 output_tokens, the broker counted 30",
        "the agent did not find that the key is absent",
    ]


def test_a_model_that_changes_during_the_run_is_noted(desk: AgentDesk) -> None:
    with provider() as fake:
        fake.model_after_first = "fake-model-2"
        document = json.loads(measured(desk, "claude-code", fake, "--no-cache", "--concurrency", "1").stdout)

    assert any("the model changed during the run" in note for note in document["notes"])


def test_a_log_of_a_boxed_agent_needs_the_proof_of_its_box(desk: AgentDesk) -> None:
    records = sorted((desk.directory / ".codegenie/eval/runs").glob("0*.json"))
    start = next(
        json.loads(file.read_text()) for file in reversed(records) if b"run.started" in file.read_bytes()
    )

    assert start["body"]["sut_isolation"]["isolation_class"] == "namespace"
    assert start["body"]["sut_isolation"]["probes"]
