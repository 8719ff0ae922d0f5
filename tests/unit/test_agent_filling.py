"""Placeholders are filled in one pass, and the environment of an agent is built from nothing."""

from collections.abc import Mapping

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.suts.agent_spec.environment import (
    Surroundings,
    agent_environment,
    broker_credential,
    broker_variables,
    passed_variables,
    search_path,
)
from codegenie.eval.suts.agent_spec.filling import (
    BoxPlaces,
    CaseTexts,
    Filled,
    check_model,
    filled,
    filled_rules,
    wants_model,
)
from codegenie.eval.suts.agent_spec.reading import PRESETS, command_spec, decoded_spec, preset
from codegenie.eval.suts.agent_spec.records import AgentSpec

PLACES = BoxPlaces("/home/agent", "http://127.0.0.1:4711")


def spec_of(text: str) -> AgentSpec:
    return decoded_spec(f'schema = 1\nname = "agent"\n{text}'.encode(), "sut.toml")


def case_of(files: Mapping[str, bytes]) -> CaseTexts:
    return CaseTexts("case-1", "class-a", 2, tuple(files), files.get)


def fill(text: str, files: Mapping[str, bytes], model: str | None = None) -> Filled:
    return filled(spec_of(text), case_of(files), model, PLACES)


PROMPTED = (
    'command = ["agent", "{prompt}"]\nprompt = "Do {input:TASK.md} for {case_id}/{task_class}/{trial}."\n'
)


def test_a_prompt_holds_the_text_of_an_input_and_the_names_of_the_case() -> None:
    done = fill(PROMPTED, {"TASK.md": b"the task"})

    assert done.argv == ("agent", "Do the task for case-1/class-a/2.")
    assert done.stdin == b""


def test_a_task_that_contains_placeholders_stays_as_it_is() -> None:
    task = b"{home} {broker} {prompt} {input:TASK.md} {case_id} {}"

    assert fill(PROMPTED, {"TASK.md": task}).argv[1] == f"Do {task.decode()} for case-1/class-a/2."


def test_a_prompt_on_the_standard_input_is_not_an_argument() -> None:
    text = 'command = ["agent"]\nstdin = "prompt"\nprompt = "Do {input:a/b.md}"\n'

    assert (done := fill(text, {"a/b.md": "ä\0".encode()})).stdin == "Do ä\0".encode()
    assert done.argv == ("agent",)


def test_braces_of_json_and_of_a_shell_are_ordinary_text() -> None:
    arguments = '{"a": {}} ${HOME} {A} { home } {} {{home}}'

    filled_argument = fill(f"command = ['agent', '{arguments}']\n", {}).argv[1]

    assert filled_argument == '{"a": {}} ${HOME} {A} { home } {} {/home/agent}'


def test_variables_and_files_of_the_home_are_filled() -> None:
    text = """command = ["agent", "{model}"]
[environment]
set = { A = "{home}/a:{model}" }
[home]
"config.toml" = { text = 'url = "{broker}/v1"' }
"given" = { from = "~/given" }
[network]
mode = "broker"
[broker]
upstream = "https://a.example"
credential = { env = "A_KEY", header = "x" }
url_env = { A_URL = "{broker}/v2" }
paths = ["/m/{model}:run"]
models = ["{model}", "other"]
"""
    spec = spec_of(text)
    done = filled(spec, case_of({}), "model-a", PLACES)

    assert done.variables == {"A": "/home/agent/a:model-a", "A_URL": "http://127.0.0.1:4711/v2"}
    assert done.home == {"config.toml": b'url = "http://127.0.0.1:4711/v1"'}
    assert spec.broker is not None
    assert filled_rules(spec.broker.paths, "model-a") == ("/m/model-a:run",)
    assert filled_rules(spec.broker.models, "model-a") == ("model-a", "other")


def test_an_agent_that_needs_a_broker_is_refused_without_one() -> None:
    with pytest.raises(SutSpecInvalid, match="this run has no broker"):
        filled(preset("codex"), case_of({}), "m", BoxPlaces("/home/agent"))


def test_the_files_of_the_input_become_arguments_that_are_not_options() -> None:
    names = {"b.py": b"", "--config=evil": b"", "a b.py": b"", "{home}": b""}

    done = fill('command = ["agent", "{input_files}", "end"]\n', names)

    assert done.argv == ("agent", "./--config=evil", "./a b.py", "./b.py", "./{home}", "end")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "which the case does not have"),
        ({"TASK.md": b"\xff"}, "not UTF-8"),
        ({"TASK.md": b"x" * (256 * 1024 + 1)}, "more than the 262144 allowed"),
        ({"TASK.md": b"x" * (128 * 1024)}, "the kernel takes 131071"),
        ({"TASK.md": b"a\0b"}, "NUL"),
    ],
)
def test_an_input_that_cannot_stand_in_an_argument_is_refused_with_its_case(
    files: Mapping[str, bytes], problem: str
) -> None:
    with pytest.raises(SutSpecInvalid, match=problem) as caught:
        fill(PROMPTED, files)

    assert caught.value.where == "case case-1"


def test_more_files_or_longer_names_than_arguments_can_hold_are_refused() -> None:
    text = 'command = ["agent", "{input_files}"]\n'

    with pytest.raises(SutSpecInvalid, match="more than the 1000"):
        fill(text, {f"f{number}": b"" for number in range(1001)})
    with pytest.raises(SutSpecInvalid, match="more than 1048576"):
        fill(text, {"x" * 2000 + str(number): b"" for number in range(1000)})


# Models.


def test_a_model_is_asked_for_exactly_where_the_file_uses_it() -> None:
    assert all(wants_model(preset(name)) for name in PRESETS)
    assert not wants_model(command_spec("agent"))
    with pytest.raises(SutSpecInvalid, match="needs a model"):
        check_model(preset("codex"), None)
    with pytest.raises(SutSpecInvalid, match="takes no model"):
        check_model(command_spec("agent"), "m")


@pytest.mark.parametrize("model", ["", "-m", "a b", "a\n", "a\0", "ä", "{home}", "x" * 129, "../a?b"])
def test_a_model_that_could_be_an_option_or_an_address_is_refused(model: str) -> None:
    with pytest.raises(SutSpecInvalid, match="is not the name of a model"):
        check_model(preset("codex"), model)


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5.1", "org/model:free", "a@20260101"])
def test_the_usual_names_of_models_are_taken(model: str) -> None:
    check_model(preset("codex"), model)


# Environment.

HOST = {
    "PATH": "/home/u/.nvm/bin:/usr/bin:relative::/home/u/secret/bin:/opt/tool/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "LC_evil": "x",
    "HOME": "/home/u",
    "AWS_SECRET": "value-of-a-secret",
    "EXTRA": "extra",
    "LD_PRELOAD": "/x.so",
}


def test_the_environment_of_an_agent_holds_what_the_contract_names_and_nothing_else() -> None:
    surroundings = Surroundings("/home/agent", "/tmp", ("/home/u/.nvm/bin/node",), "namespace")

    built = agent_environment(HOST, surroundings, case_of({}), {"A": "1"})

    assert built == {
        "PATH": "/home/u/.nvm/bin:/usr/bin:/opt/tool/bin:/usr/local/bin:/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "HOME": "/home/agent",
        "TMPDIR": "/tmp",
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "CI": "1",
        "CODEGENIE_CASE_ID": "case-1",
        "CODEGENIE_TASK_CLASS": "class-a",
        "CODEGENIE_TRIAL": "2",
        "A": "1",
    }


def test_in_landlock_git_does_not_look_for_its_system_file() -> None:
    surroundings = Surroundings("/h", "/t", (), "landlock")

    assert agent_environment({}, surroundings, case_of({}), {})["GIT_CONFIG_NOSYSTEM"] == "1"


def test_a_named_variable_replaces_the_usual_one_but_never_the_harness_s_own() -> None:
    given = {
        "TERM": "xterm",
        "PATH": "/x",
        "HOME": "/root",
        "CODEGENIE_TRIAL": "9",
        "TMPDIR": "/",
        "USER": "root",
    }

    built = agent_environment(HOST, Surroundings("/h", "/t", (), "namespace"), case_of({}), given)

    assert (built["TERM"], built["PATH"]) == ("xterm", "/x")
    assert (built["HOME"], built["TMPDIR"], built["USER"], built["CODEGENIE_TRIAL"]) == (
        "/h",
        "/t",
        "agent",
        "2",
    )


def test_the_search_path_has_its_usual_entries_on_an_empty_host() -> None:
    assert search_path("", ()) == "/usr/local/bin:/usr/bin:/bin"


def test_passed_variables_are_those_that_are_named_with_the_values_of_the_host() -> None:
    spec = spec_of('command = ["a"]\n[environment]\npass = ["LANG"]\n')

    assert passed_variables(spec, "none", ["EXTRA", "LANG"], HOST) == {"LANG": "C.UTF-8", "EXTRA": "extra"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [("MISSING", "there is no such variable"), ("AWS_SECRET", "looks like a key"), ("HOME", "harness")],
)
def test_a_variable_that_an_agent_does_not_get_is_refused(name: str, problem: str) -> None:
    with pytest.raises(SutSpecInvalid, match=problem) as caught:
        passed_variables(command_spec("agent"), "none", [name], HOST)

    assert "value-of-a-secret" not in str(caught.value)


def test_the_key_of_a_broker_stays_outside_and_the_agent_gets_a_word() -> None:
    spec, host = preset("claude-code"), {"ANTHROPIC_API_KEY": "the-real-key"}

    assert passed_variables(spec, "broker", [], host) == {}
    assert broker_variables(spec, "broker") == {"ANTHROPIC_API_KEY": "broker"}
    assert broker_credential(spec, host) == "the-real-key"
    with pytest.raises(SutSpecInvalid, match="never enters the box"):
        passed_variables(spec, "broker", ["ANTHROPIC_API_KEY"], host)


def test_on_the_host_network_the_agent_gets_the_key_itself() -> None:
    spec, host = preset("claude-code"), {"ANTHROPIC_API_KEY": "the-real-key"}

    assert passed_variables(spec, "host", [], host) == host
    assert broker_variables(spec, "host") == {}


@pytest.mark.parametrize(
    "value", ["", " zq-secret", "zq-secret\n", "zq-secret\r\nx-evil: 1", "zq-secret-ключ"]
)
def test_a_key_that_would_break_a_header_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SutSpecInvalid, match="does not hold a key") as caught:
        broker_credential(preset("codex"), {"OPENAI_API_KEY": value})

    assert "zq-secret" not in str(caught.value)


def test_a_missing_key_is_asked_for() -> None:
    with pytest.raises(SutSpecInvalid, match="OPENAI_API_KEY: there is no such variable"):
        broker_credential(preset("codex"), {})
