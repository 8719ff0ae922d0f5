"""Reading a sut.toml, a preset or a command: every wrong value is refused with what, where and what to do."""

import os
from pathlib import Path

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.suts.agent_spec.checks import passed_name_problem, upstream_problem
from codegenie.eval.suts.agent_spec.reading import (
    PRESETS,
    command_spec,
    decoded_spec,
    preset,
    preset_revision,
    read_agent_spec,
)

LEAST = 'schema = 1\nname = "agent"\ncommand = ["agent"]\n'
BROKER = """
[network]
mode = "broker"
[broker]
upstream = "https://api.example.com"
credential = { env = "EXAMPLE_API_KEY", header = "x-api-key" }
url_env = { EXAMPLE_BASE_URL = "{broker}" }
paths = ["/v1/messages"]
"""
KEY = "sk-ant-" + "api03-" + "A1b2" * 20


def refused(text: str) -> SutSpecInvalid:
    with pytest.raises(SutSpecInvalid) as caught:
        decoded_spec(text.encode(), "sut.toml")
    return caught.value


# What is taken.


def test_the_least_file_has_the_defaults_of_the_contract() -> None:
    spec = decoded_spec(LEAST.encode(), "sut.toml")

    assert (spec.name, spec.command, spec.stdin, spec.accept_exit) == ("agent", ("agent",), "none", (0,))
    assert (spec.network.mode, spec.broker, spec.workspace.git) == ("none", None, "none")
    assert (spec.limits.seconds, spec.limits.processes, spec.limits.workspace_entries) == (1800, 512, 200_000)
    assert (spec.limits.process_memory_bytes, spec.limits.memory_total_bytes) == (4 << 30, 8 << 30)
    assert (spec.limits.workspace_bytes, spec.limits.file_bytes) == (1 << 30, 2 << 30)


def test_a_file_with_every_table_is_read_whole() -> None:
    text = (
        LEAST.replace('["agent"]', '["agent", "{prompt}", "--model", "{model}", "--config={\\"a\\": {}}"]')
        + """
version_command = ["agent", "--version"]
files = ["run.py", "prompts/"]
readable = ["~/.nvm/versions/node/v22", "/data/tools"]
prompt = "Do what {input:TASK.md} says."
accept_exit = [0, 3]
[environment]
set = { A = "{home}/a", MAX_TOKENS = "9000" }
pass = ["LANGUAGE_PACK"]
[home]
".agent/settings.json" = { text = '{"url": "{broker}"}' }
".agent/auth.json" = { from = "~/.agent/auth.json" }
"""
        + BROKER
        + """models = ["{model}"]
prices = { input = 3, cached = 0.3, output = 15.0 }
[limits]
seconds = 60
cost_usd = 5
[workspace]
git = "init"
exclude = [".aider*", "notes"]
[output]
format = "file"
file = "{home}/traj.json"
cost_usd = "info.cost"
model = "models.*"
"""
    )
    spec = decoded_spec(text.encode(), "sut.toml")

    assert spec.environment.assigned == {"A": "{home}/a", "MAX_TOKENS": "9000"}
    assert spec.environment.passed == ("LANGUAGE_PACK",)
    assert spec.home[".agent/auth.json"].source == "~/.agent/auth.json"
    assert spec.broker is not None
    assert spec.broker.prices is not None
    assert (spec.broker.prices.input, spec.broker.max_requests) == (3.0, 2000)
    assert (spec.limits.seconds, spec.limits.cost_usd, spec.accept_exit) == (60, 5, (0, 3))
    assert spec.workspace.exclude == (".aider*", "notes")


def test_a_record_cannot_be_changed_through_its_tables() -> None:
    spec = preset("claude-code")

    with pytest.raises(TypeError):
        spec.environment.assigned["HOME"] = "/"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_read_and_its_revision_is_that_of_its_bytes(name: str) -> None:
    spec = preset(name)

    assert spec.name == name
    assert spec.network.mode == "broker"
    assert len(preset_revision(name)) == 64


def test_presets_have_different_revisions() -> None:
    assert len({preset_revision(name) for name in PRESETS}) == len(PRESETS)


def test_a_preset_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    for name in ("cursor", "../presets/codex", "", "x" * 5000):
        with pytest.raises(SutSpecInvalid, match="is not a preset") as caught:
            preset(name)
        assert "claude-code" in (caught.value.hint or "")


# Refusals: the row is a text behind the least file, a part of the message, and a part of the hint.

REFUSED = {
    "unknown key": ("names = 1", "names: this key is not known", "did you mean name"),
    "unknown key in a table": ("[limits]\nsecond = 1", "limits.second: this key", "did you mean seconds"),
    "unknown key far from all": ("zzzzzz = 1", "zzzzzz: this key is not known", "sut-toml.md"),
    "name of our field": ("schema_id = 1", "schema_id: this key is not known", ""),
    "name of our field in a table": ("[environment]\nassigned = {}", "environment.assigned: this key", ""),
    "unicode key": ('"n\u0430me" = 1', "this key is not known", ""),
    "unicode variable": ('[environment]\nset = { "ÄPFEL" = "1" }', "environment.set", ""),
    "duplicate key": ('name = "b"', "not TOML", ""),
    "date": ("prompt = 2026-01-01", "holds a date", "quotes"),
    "NUL in an argument": ('version_command = ["a\\u0000b"]', "version_command", ""),
    "NUL in a variable": ('[environment]\nset = { A = "\\u0000" }', "environment.set", ""),
    "NUL in a path": ('readable = ["/a\\u0000b"]', "readable", ""),
    "number as text": ("prompt = 1", "prompt", ""),
    "text as number": ('[limits]\nprocesses = "512"', "limits.processes", ""),
    "true as number": ("[limits]\nprocesses = true", "limits.processes", ""),
    "no processes": ("[limits]\nprocesses = 0", "limits.processes", ""),
    "no seconds": ("[limits]\nseconds = 0", "limits.seconds", ""),
    "negative seconds": ("[limits]\nseconds = -1", "limits.seconds", ""),
    "endless seconds": ("[limits]\nseconds = inf", "out of range", ""),
    "no number of seconds": ("[limits]\nseconds = nan", "out of range", ""),
    "a year of seconds": ("[limits]\nseconds = 31536000", "limits.seconds", ""),
    "huge memory": ("[limits]\nmemory_total_bytes = 9223372036854775807", "limits.memory_total_bytes", ""),
    "huge workspace": (f"[limits]\nworkspace_bytes = {1 << 80}", "limits.workspace_bytes", ""),
    "no workspace": ("[limits]\nworkspace_bytes = 0", "limits.workspace_bytes", ""),
    "cost cap of 0": ("[limits]\ncost_usd = 0", "limits.cost_usd", ""),
    "negative cost cap": ("[limits]\ncost_usd = -1.0", "limits.cost_usd", ""),
    "exit code of 256": ("accept_exit = [256]", "accept_exit", ""),
    "no exit code": ("accept_exit = []", "accept_exit", ""),
    "unknown placeholder": ('version_command = ["a", "{prompt}"]', "{prompt} is not known here", "without"),
    "home in a prompt": ('prompt = "{home}"\nstdin = "prompt"', "{home} is not known", "{input:NAME}"),
    "misspelt": ('prompt = "{prompts}"\nstdin = "prompt"', "{prompts} is not known", "{case_id}"),
    "input outside": (
        'prompt = "{input:../expected/a}"\nstdin = "prompt"', "does not name a file of input", "",
    ),
    "absolute input": ('prompt = "{input:/etc/passwd}"\nstdin = "prompt"', "does not name a file", ""),
    "prompt that is never used": ('prompt = "hello"', "the agent never gets it", "stdin"),
    "input without prompt": ('stdin = "prompt"', "it is used and is empty", "prompt ="),
    "file above": ('files = ["../secret"]', "is not a plain relative path", "without .."),
    "absolute file": ('files = ["/etc/passwd"]', "is not a plain relative path", ""),
    "file that goes up inside": ('files = ["a/../../b"]', "is not a plain relative path", ""),
    "this directory": ('files = ["."]', "is not a plain relative path", ""),
    "file twice": ('files = ["a/b", "a/"]', "is named twice", ""),
    "relative readable": ('readable = ["tools"]', "is not an absolute path", "begin with /"),
    "readable of another user": ('readable = ["~root/x"]', "is not an absolute path", ""),
    "the root as readable": ('readable = ["/"]', "is not an absolute path", ""),
    "the home as readable": ('readable = ["~/"]', "is not an absolute path", ""),
    "readable that goes up": ('readable = ["~/../root"]', "is not an absolute path", ""),
    "home outside": ('[home]\n"../x" = { text = "" }', "is not a plain relative path", ""),
    "absolute home": ('[home]\n"/etc/x" = { text = "" }', "is not a plain relative path", ""),
    "home file with neither": ("[home]\nx = {}", "give either text or from", ""),
    "home file with both": ('[home]\nx = { text = "", from = "/x" }', "give either text or from", ""),
    "home file and directory": ('[home]\na = {text = ""}\n"a/b" = {text = ""}', "a file and a directory", ""),
    "relative from": ('[home]\nx = { from = "x" }', "is not an absolute path", ""),
    "own variable": ('[environment]\nset = { HOME = "/" }', "the harness sets this variable", "leave it out"),
    "own variable by prefix": ('[environment]\npass = ["CODEGENIE_TRIAL"]', "the harness sets", ""),
    "variable twice": ('[environment]\nset = { A = "1" }\npass = ["A"]', "A is given twice", ""),
    "key by name without network": ('[environment]\npass = ["MY_API_KEY"]', "looks like a key", "[broker]"),
    "token by name": ('[environment]\npass = ["gh_token_2"]', "looks like a key", "[broker]"),
    "key in set": (
        '[environment]\nset = { A_KEY = "0123456789" }', "is not written into this file", "[broker]",
    ),
    "key in pass": (f'[environment]\npass = ["{KEY}"]', "looks like a key", "name the variable"),
    "path in pass": ('[environment]\npass = ["~/.key"]', "does not have the form", "nor a path to it"),
    "key in a comment": (f"# {KEY}", "looks like a key", "name the variable"),
    "key in the prompt": (f'prompt = "{KEY}"', "looks like a key", ""),
    "private key": ('prompt = "-----BEGIN RSA PRIVATE KEY-----"', "looks like a key", ""),
    "broker without table": ('[network]\nmode = "broker"', "belong together", "both or none"),
    "placeholder of a broker": (
        '[environment]\nset = { A = "{broker}" }', "without [broker]", "add [broker]",
    ),
    "unknown mode": ('[network]\nmode = "bridge"', "network.mode", ""),
    "unknown format": ('[output]\nformat = "xml"', "output.format", ""),
    "file without format": ('[output]\nfile = "{home}/x"', "belong together", ""),
    "format without file": ('[output]\nformat = "file"', "belong together", ""),
    "file outside the home": ('[output]\nformat = "file"\nfile = "/etc/x"', "private home", "{home}/NAME"),
    "file above the home": ('[output]\nformat = "file"\nfile = "{home}/../x"', "private home", ""),
    "fields of text": ('[output]\ntake = { type = "x" }', "only lines of jsonl", ""),
    "sum of one": ('[output]\nformat = "json"\nover = "sum"', "nothing to add up", ""),
    "path without a name": ('[output]\nformat = "json"\ncost_usd = "a..b"', "is not a dotted path", ""),
    "sum without a part": ('[output]\nformat = "json"\ncost_usd = "a.b +  + c"', "is not a dotted path", ""),
    "text without number": ('[output]\ncost_usd = "Cost: x"', "one # for the number", "Tokens: # sent"),
    "text that is a number alone": ('[output]\ncost_usd = "#"', "one # for the number", ""),
    "model in text": ('[output]\nmodel = "Model: #"', "no model is read from text", ""),
    "all work left out": ('[workspace]\nexclude = ["*"]', "workspace.exclude", "top directory"),
    "almost all left out": ('[workspace]\nexclude = [".*"]', "workspace.exclude", ""),
    "left out below": ('[workspace]\nexclude = ["src/a"]', "workspace.exclude", ""),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_a_wrong_value_is_refused_with_its_place_and_what_to_do(row: str) -> None:
    text, message, hint = REFUSED[row]
    refusal = refused(LEAST + text + "\n")

    assert message in refusal.message
    assert hint in (refusal.hint or "")
    assert (refusal.where or "").startswith("sut.toml")
    assert KEY not in str(refusal)
    assert refusal.exit_code == 2


BROKER_REFUSED = {
    "plain http": ("https://api.example.com", "http://api.example.com", "without TLS"),
    "two hosts": ("https://api.example.com", "https://a.example.com,https://b", "address of one host"),
    "user in the address": ("https://api", "https://me@api", "address of one host"),
    "path in the address": ("example.com", "example.com/v1", "address of one host"),
    "port of 0": ("example.com", "example.com:0", "address of one host"),
    "port of 65536": ("example.com", "example.com:65536", "address of one host"),
    "file": ("https://api.example.com", "file:///etc/passwd", "address of one host"),
    "path as credential": ("EXAMPLE_API_KEY", "/home/u/key.txt", "broker.credential.env"),
    "header with a line end": ("x-api-key", "x-api\\nkey", "broker.credential.header"),
    "format without a place": ('"x-api-key"', '"x-api-key", format = "Bearer"', "broker.credential.format"),
    "format with two places": ('"x-api-key"', '"x-api-key", format = "{}{}"', "broker.credential.format"),
    "relative path": ("/v1/messages", "v1/messages", "is not a path"),
    "path that goes up": ("/v1/messages", "/v1/../admin", "is not a path"),
    "path with a query": ("/v1/messages", "/v1/messages?beta", "is not a path"),
    "no paths": ('["/v1/messages"]', "[]", "broker.paths"),
    "placeholder in a path": ("/v1/messages", "/v1/{home}", "{home} is not known"),
    "agent that does not know": ("{broker}", "x", "does not learn where the broker is"),
    "placeholder in an address": ("{broker}", "{broker}/{model}", "{model} is not known"),
    "no requests": ("[broker]", "[broker]\nmax_requests = 0", "broker.max_requests"),
    "negative price": (
        "[broker]", "[broker]\nprices = { input = -1.0, output = 1.0 }", "broker.prices.input",
    ),
    "half a price": ("[broker]", "[broker]\nprices = { input = 1.0 }", "broker.prices.output"),
    "absurd price": ("[broker]", "[broker]\nprices = { input = 1e12, output = 1.0 }", "broker.prices.input"),
    "mode of none": ('mode = "broker"', 'mode = "none"', "belong together"),
    "address in the key's variable": ("EXAMPLE_BASE_URL", "EXAMPLE_API_KEY", "has another value already"),
}  # fmt: skip


@pytest.mark.parametrize("row", BROKER_REFUSED)
def test_a_wrong_value_of_a_broker_is_refused_with_its_place_and_what_to_do(row: str) -> None:
    old, new, message = BROKER_REFUSED[row]
    assert old in BROKER
    refusal = refused(LEAST + BROKER.replace(old, new, 1))

    assert message in refusal.message
    assert refusal.hint
    assert (refusal.where or "").startswith("sut.toml")


def test_the_table_of_a_broker_is_taken_as_it_stands_above() -> None:
    assert decoded_spec((LEAST + BROKER).encode(), "sut.toml").broker is not None


@pytest.mark.parametrize("table", ['pass = ["EXAMPLE_API_KEY"]', 'set = { EXAMPLE_API_KEY = "x" }'])
def test_the_credential_of_the_broker_is_not_handed_to_the_agent_as_well(table: str) -> None:
    refusal = refused(LEAST + f"[environment]\n{table}\n" + BROKER)

    assert "never enters the box" in refusal.message
    assert "the word broker" in (refusal.hint or "")


def test_a_key_is_passed_by_name_only_to_an_agent_on_the_host_network() -> None:
    text = LEAST + '[environment]\npass = ["MY_API_KEY"]\n[network]\nmode = "host"\n'

    assert decoded_spec(text.encode(), "sut.toml").environment.passed == ("MY_API_KEY",)
    assert passed_name_problem("MY_API_KEY", "broker") is not None
    assert passed_name_problem("MY_API_KEY", "none") is not None
    assert passed_name_problem("MY_API_KEY", "host") is None
    assert passed_name_problem("HOME", "host") is not None


@pytest.mark.parametrize(
    "upstream", ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:9", "https://a.b:443"]
)
def test_an_upstream_without_tls_is_taken_on_loopback_alone(upstream: str) -> None:
    assert upstream_problem(upstream) is None


@pytest.mark.parametrize(
    "upstream", ["http://127.0.0.1.example.com", "http://localhost.example.com", "http://10.0.0.1"]
)
def test_a_host_that_is_named_like_loopback_is_not_loopback(upstream: str) -> None:
    assert upstream_problem(upstream) == "the key would go out without TLS"


@pytest.mark.parametrize(
    "command",
    [
        "[]",
        '[""]',
        '[" "]',
        '["{prompt}"]',
        '["{home}/agent"]',
        '["{model}"]',
        '"agent --fast"',
        '[["agent"]]',
        "[1]",
    ],
)
def test_a_command_that_names_no_program_is_refused(command: str) -> None:
    refusal = refused(LEAST.replace('["agent"]', command))

    assert refusal.message.startswith("command")
    assert refusal.where == "sut.toml:3"


@pytest.mark.parametrize("name", ["", "A", "-a", "a_b", "a b", "ä", "a\\n", "a" * 65, "a\\u0000"])
def test_a_name_outside_its_grammar_is_refused(name: str) -> None:
    refusal = refused(LEAST.replace('"agent"', f'"{name}"', 1))

    assert refusal.message.startswith("name: ")
    assert refusal.where == "sut.toml:2"


@pytest.mark.parametrize("schema", ["0", "2", '"1"', "true", "1.0"])
def test_another_schema_is_refused(schema: str) -> None:
    refusal = refused(LEAST.replace("schema = 1", f"schema = {schema}"))

    assert refusal.message.startswith("schema: ")
    assert refusal.hint == "write schema = 1"


@pytest.mark.parametrize("key", ["schema", "name", "command"])
def test_a_missing_key_is_named(key: str) -> None:
    text = "".join(line for line in LEAST.splitlines(keepends=True) if not line.startswith(key))

    assert refused(text).message == f"{key}: this key is missing"


def test_the_files_argument_is_an_argument_of_its_own() -> None:
    refusal = refused(LEAST.replace('["agent"]', '["agent", "--files={input_files}"]'))

    assert "stands inside an argument" in refusal.message
    whole = LEAST.replace('["agent"]', '["agent", "{input_files}"]')
    assert decoded_spec(whole.encode(), "sut.toml").command == ("agent", "{input_files}")


def test_ten_thousand_keys_are_refused_by_their_size() -> None:
    refusal = refused(LEAST + "".join(f"k{number} = 1\n" for number in range(10_000)))

    assert "more than the 16384 allowed" in refusal.message


def test_a_thousand_variables_are_refused() -> None:
    refusal = refused(LEAST + "[environment.set]\n" + "".join(f"A{number} = ''\n" for number in range(1000)))

    assert refusal.message.startswith("environment.set: ")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + LEAST.encode(),
        b"\0" * 100,
        b"a" * 16_385,
        b"a = " + b"[" * 9000,
        b"=\n",
    ],
)
def test_bytes_that_are_not_such_a_file_are_refused(raw: bytes) -> None:
    with pytest.raises(SutSpecInvalid):
        decoded_spec(raw, "sut.toml")


def test_the_place_of_a_refusal_is_the_line_of_the_key() -> None:
    text = LEAST + "\n[limits]\nseconds = 5\nprocesses = 0\n[workspace]\nprocesses = 0\n"

    assert refused(text).where == "sut.toml:7"
    inline = LEAST + BROKER.replace("x-api-key", "x api key")
    assert refused(inline).where == "sut.toml:9"


# Files on disk.


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    (tmp_path / "sut.toml").write_text(LEAST, encoding="utf-8")

    assert read_agent_spec(tmp_path / "sut.toml").name == "agent"


def test_a_missing_file_a_directory_a_pipe_and_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(LEAST, encoding="utf-8")
    (tmp_path / "link.toml").symlink_to("real.toml")
    (tmp_path / "directory.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("missing", "link", "directory", "pipe", "nul\0"):
        with pytest.raises(SutSpecInvalid):
            read_agent_spec(tmp_path / f"{name}.toml")


def test_a_sparse_file_of_a_gigabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    with open(tmp_path / "sut.toml", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(SutSpecInvalid, match="is larger than 16384 bytes"):
        read_agent_spec(tmp_path / "sut.toml")


# command:


def test_a_command_is_split_as_a_shell_splits_words_and_no_shell_sees_it() -> None:
    spec = command_spec("./My_Agent.sh --say 'two words' $HOME `id` ; rm")

    assert spec.command == ("./My_Agent.sh", "--say", "two words", "$HOME", "`id`", ";", "rm")
    assert (spec.name, spec.network.mode, spec.prompt) == ("my-agent-sh", "none", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("''", "is empty"),
        ("'open", "has no end"),
        ("agent {prompt}", "is used and is empty"),
        ("agent {nothing}", "{nothing} is not known"),
        ("agent {broker}", "without [broker]"),
        ("{home}/agent", "not the name of a program"),
        ("agent a\0b", "does not have the form"),
        (f"agent --key {KEY}", "looks like a key"),
        ("agent " + "x" * 9000, "at most 8192"),
        ("agent \udcff", "surrogate"),
    ],
)
def test_a_wrong_command_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SutSpecInvalid) as caught:
        command_spec(text)

    assert problem in caught.value.message
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("program", "name"), [("/a/B", "b"), ("...", "command"), ("é", "command"), ("x" * 99, "x" * 64)]
)
def test_the_name_of_a_command_follows_the_grammar(program: str, name: str) -> None:
    assert command_spec(program).name == name
