"""What a sut.toml may not say, beyond the form of each value: pure checks that look at two values at once.

Each check yields the key that is wrong, what is wrong with it, and what to do. No message holds a value that
could be a key.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from codegenie.eval.limits import LIMITS
from codegenie.eval.suts.agent_spec.placeholders import (
    IN_BROKER_URL,
    IN_COMMAND,
    IN_ENVIRONMENT,
    IN_HOME_FILE,
    IN_PROMPT,
    INPUT_FILES,
    ONLY_MODEL,
    holds,
    is_plain_path,
    placeholder_problem,
)
from codegenie.eval.suts.agent_spec.records import PLUS, AgentSpec, BrokerTable, NetworkMode, OutputTable

OWN_VARIABLES = frozenset({"HOME", "TMPDIR", "USER", "LOGNAME", "GIT_CONFIG_NOSYSTEM"})
"""The harness sets these for every agent."""
_OWN_PREFIX = "CODEGENIE_"
_KEY_NAME = re.compile(r"[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)[A-Z0-9_]*", re.IGNORECASE)
# Wider than the shapes of the fence: in this file a false alarm costs a line, and a key would be in a log.
_KEY_SHAPE = re.compile(
    r"\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{20,}|\bA[KS]IA[A-Z2-7]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\bxox[abeoprs]-[\w-]{20,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{30,}"
    r"|\beyJ[\w-]{20,}\.[\w-]{20,}|-----BEGIN [A-Z ]{0,40}PRIVATE KEY",
    re.ASCII,
)
_UPSTREAM = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]")
_URL_PATH = re.compile(r"/(?:[A-Za-z0-9_.~:@!$&'()*+,;={}-]+(?:/|$))*", re.ASCII)
_HOME_PATH = "{home}/"
_DOTTED = re.compile(r"[^.#*]+(?:\.[^.#*]+|\.\*)*")
_HIGHEST_PORT = 65_535


class Finding(NamedTuple):
    """A key of the file, what is wrong with it, and what to do about it."""

    key: str
    problem: str
    hint: str


Check = Callable[[AgentSpec], Iterator[Finding]]


def findings(spec: AgentSpec) -> Iterator[Finding]:
    """Yield everything that is wrong with the values of a file that has the right form."""
    for check in _CHECKS:
        yield from check(spec)


def key_line(text: str) -> int | None:
    """Return the first line of a text that holds something shaped like a key."""
    found = _KEY_SHAPE.search(text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def looks_like_a_key(name: str) -> bool:
    """Say whether a variable of this name usually holds a credential."""
    return _KEY_NAME.fullmatch(name) is not None


def passed_name_problem(name: str, mode: NetworkMode) -> tuple[str, str] | None:
    """Return why a variable may not be passed with this network, and what to do; None if it may."""
    if name in OWN_VARIABLES or name.startswith(_OWN_PREFIX):
        return f"{name}: the harness sets this variable for every agent", "leave it out"
    if mode != "host" and looks_like_a_key(name):
        return (
            f"{name} looks like a key, and with network {mode} the agent does not get one",
            "name it in [broker] credential, so that the key stays outside the box",
        )
    return None


def _command(spec: AgentSpec) -> Iterator[Finding]:
    for key, argv in (("command", spec.command), ("version_command", spec.version_command)):
        if argv and (not argv[0].strip() or holds(argv[:1], "prompt") or "{" in argv[0]):
            yield Finding(
                key, "its first word is not the name of a program", "begin with a program or a path"
            )
    yield from _filled("command", spec.command[1:], IN_COMMAND)
    yield from _filled("version_command", spec.version_command, ())
    if any(INPUT_FILES in argument and argument != INPUT_FILES for argument in spec.command):
        yield Finding("command", f"{INPUT_FILES} stands inside an argument", "make it an argument of its own")


def _prompt(spec: AgentSpec) -> Iterator[Finding]:
    yield from _filled("prompt", (spec.prompt,), IN_PROMPT)
    used = spec.stdin == "prompt" or holds(spec.command, "prompt")
    if used and not spec.prompt.strip():
        yield Finding("prompt", "it is used and is empty", 'write prompt = "…", or leave out {prompt}')
    if spec.prompt and not used:
        yield Finding(
            "prompt", "the agent never gets it", 'put {prompt} into command, or write stdin = "prompt"'
        )


def _environment(spec: AgentSpec) -> Iterator[Finding]:
    table, broker = spec.environment, spec.broker
    yield from _filled("environment.set", tuple(table.assigned.values()), IN_ENVIRONMENT)
    for name, value in table.assigned.items():
        if name in OWN_VARIABLES or name.startswith(_OWN_PREFIX):
            yield Finding(
                f"environment.set.{name}", "the harness sets this variable for every agent", "leave it out"
            )
        if looks_like_a_key(name) and len(value) >= LIMITS.secret_characters:
            yield Finding(
                f"environment.set.{name}",
                "it looks like a key, and a key is not written into this file",
                "name the variable in [broker] credential, or in pass with network host",
            )
    if broker is not None and broker.credential.env in {*table.passed, *table.assigned}:
        yield Finding(
            "environment.pass",
            f"{broker.credential.env} is the broker's credential, which never enters the box",
            "leave it out: the agent gets the word broker in its place",
        )
        return
    for name in table.passed:
        problem = passed_name_problem(name, spec.network.mode)
        if problem:
            yield Finding("environment.pass", *problem)
    twice = sorted({*table.passed} & {*table.assigned}) or sorted(
        {*(broker.url_env if broker else ())} & {*table.passed, *table.assigned}
    )
    if twice:
        yield Finding("environment", f"{twice[0]} is given twice", "give it once")


def _files(spec: AgentSpec) -> Iterator[Finding]:
    inside = "name files and directories below the directory of this file, without .. and without links"
    names = sorted(name.rstrip("/") for name in spec.files)
    for name in names:
        if not is_plain_path(name):
            yield Finding("files", f"{name[:80]!a} is not a plain relative path", inside)
    for name in names:
        if names.count(name) > 1 or any(name.startswith(f"{other}/") for other in names):
            yield Finding("files", f"{name[:80]!a} is named twice", "name a directory or its files, once")
    for key, paths in (
        ("readable", spec.readable),
        ("home", tuple(file.source for file in spec.home.values() if file.source is not None)),
    ):
        for path in paths:
            if not is_absolute_after_expansion(path):
                yield Finding(
                    key,
                    f"{path[:80]!a} is not an absolute path",
                    "begin with / or ~/, without . and ..; do not name / or ~ itself",
                )


def is_absolute_after_expansion(path: str) -> bool:
    """Say whether a path is absolute once `~` is replaced, goes up nowhere and is more than the start."""
    parts = path.split("/")
    rest = [part for part in parts[1:] if part]
    return parts[0] in {"", "~"} and bool(rest) and not {".", ".."} & set(rest)


def _home(spec: AgentSpec) -> Iterator[Finding]:
    for name, file in spec.home.items():
        if not is_plain_path(name):
            yield Finding(
                "home", f"{name[:80]!a} is not a plain relative path", "name a file below the private home"
            )
        if any(other.startswith(f"{name}/") for other in spec.home):
            yield Finding("home", f"{name[:80]!a} is a file and a directory", "give one of them another name")
        if file.text is not None:
            yield from _filled("home", (file.text,), IN_HOME_FILE)


def _network(spec: AgentSpec) -> Iterator[Finding]:
    broker = spec.broker
    if (spec.network.mode == "broker") != (broker is not None):
        missing = "there is no [broker]" if broker is None else f"mode is {spec.network.mode}"
        yield Finding(
            "network", f"mode broker and [broker] belong together, and {missing}", "give both or none"
        )
    texts = (*spec.command, *spec.environment.assigned.values())
    texts += tuple(file.text or "" for file in spec.home.values())
    if broker is None:
        if holds(texts, "broker"):
            yield Finding("network", "{broker} is used without [broker]", "add [broker] with its upstream")
        return
    if not holds((*texts, *broker.url_env.values()), "broker"):
        yield Finding(
            "broker.url_env", "the agent does not learn where the broker is", "put {broker} into url_env"
        )
    yield from _broker(broker)


def _broker(broker: BrokerTable) -> Iterator[Finding]:
    problem = upstream_problem(broker.upstream)
    if problem:
        yield Finding("broker.upstream", problem, "write https://HOST, and the path in paths and url_env")
    yield from _filled("broker.url_env", tuple(broker.url_env.values()), IN_BROKER_URL)
    yield from _filled("broker.models", broker.models, ONLY_MODEL)
    yield from _filled("broker.paths", broker.paths, ONLY_MODEL)
    for path in broker.paths:
        if not _URL_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
            yield Finding("broker.paths", f"{path[:80]!a} is not a path", "begin with /, without ? and ..")
    for name in broker.url_env:
        if name in OWN_VARIABLES or name == broker.credential.env:
            yield Finding("broker.url_env", f"{name} has another value already", "leave it out")


def upstream_problem(upstream: str) -> str | None:
    """Return why a broker cannot use an upstream. Only loopback is reached without TLS: the key is in it."""
    found = _UPSTREAM.fullmatch(upstream)
    if found is None or not 0 < int(found["port"] or 443) <= _HIGHEST_PORT:
        return "it is not the address of one host"
    if found["scheme"] == "http" and not _LOOPBACK.fullmatch(found["host"]):
        return "the key would go out without TLS"
    return None


def _output(spec: AgentSpec) -> Iterator[Finding]:
    output = spec.output
    if (output.format == "file") != (output.file is not None):
        yield Finding("output.file", 'file and format = "file" belong together', "give both or none")
    if output.file is not None and not (
        output.file.startswith(_HOME_PATH) and is_plain_path(output.file.removeprefix(_HOME_PATH))
    ):
        yield Finding("output.file", "it does not lie in the private home", 'write file = "{home}/NAME"')
    if output.take and output.format != "jsonl":
        yield Finding("output.take", "only lines of jsonl are taken by their fields", "leave it out")
    if output.over == "sum" and output.format not in {"jsonl", "text"}:
        yield Finding("output.over", "there is one document and nothing to add up", "leave it out")
    for key in ("cost_usd", "input_tokens", "cached_tokens", "output_tokens", "model"):
        yield from _path(f"output.{key}", getattr(output, key), output)


def _path(key: str, path: str | None, output: OutputTable) -> Iterator[Finding]:
    if path is None:
        return
    if output.format != "text":
        paths = [path] if key == "output.model" else path.split(PLUS)
        if not all(map(_DOTTED.fullmatch, paths)):
            yield Finding(key, "it is not a dotted path", "write names with dots between them, or * for all")
    elif key == "output.model":
        yield Finding(key, "no model is read from text", "leave it out")
    elif path.count("#") != 1 or "*" in path or len(path.strip()) < len("# x"):
        yield Finding(key, "it is not a piece of a line with one # for the number", 'write "Tokens: # sent"')


def _filled(key: str, texts: tuple[str, ...], allowed: frozenset[str] | tuple[()]) -> Iterator[Finding]:
    for text in texts:
        problem = placeholder_problem(text, allowed)
        if problem:
            known = ", ".join(f"{{{name}NAME}}" if ":" in name else f"{{{name}}}" for name in sorted(allowed))
            yield Finding(key, problem, f"known here: {known}" if known else "write it without placeholders")


_CHECKS: tuple[Check, ...] = (_command, _prompt, _environment, _files, _home, _network, _output)
