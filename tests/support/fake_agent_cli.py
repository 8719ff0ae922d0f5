"""A program that behaves as one of five agents in one of their forms, and `install`, which puts it on disk.

What is installed is one file: this source, with its settings and the fixture in it, so a box that shows one
file shows all of it. It needs the standard library only. It checks that it is called as the agent is, prints
the fixture of its form, ends as the agent ends, and in a good form it really edits a file of its directory.
With `calls_model` it first asks the model at the address that its surroundings name. With the form `asked`,
what the model answers decides about the form.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

SETTINGS: dict[str, Any] = {}

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "agent-output"
PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "gemini-cli": "gemini",
    "mini-swe-agent": "mini",
    "aider": "aider",
}
FORMS = ("ok", "401", "429", "429-once", "500", "529", "garbage", "stall")
EDITING = ("ok", "429-once", "priced")
VERSIONS = {
    "claude-code": "2.1.0 (Claude Code)",
    "codex": "codex-cli 0.166.0",
    "gemini-cli": "0.61.0",
    "mini-swe-agent": "👋 This is mini-swe-agent version 2.4.0.",
    "aider": "aider 0.86.0",
}
# Gemini ends with the status of the last answer, as far as it fits into a byte. Aider always ends with 0.
ENDS = {
    "claude-code": {"401": 1, "429": 1, "500": 1, "529": 1, "garbage": 1},
    "codex": {"401": 1, "429": 1, "500": 1, "529": 1, "garbage": 1},
    "gemini-cli": {"401": 145, "429": 173, "500": 244, "529": 17, "garbage": 1},
    "mini-swe-agent": {"401": 1, "429": 1, "500": 1, "529": 1, "garbage": 1},
    "aider": {},
}
ORIGINAL = "def add(a, b):\n    return a - b\n"
EDITED = "def add(a, b):\n    return a + b\n"


def install(directory: Path, agent: str, form: str, *, calls_model: bool = False) -> Path:
    """Write the program of an agent into a directory, and return its path."""
    forms = FORMS if form == "asked" else (form,)
    settings = {
        "agent": agent,
        "form": form,
        "calls_model": calls_model or form == "asked",
        "stdout": {one: (FIXTURES / agent / f"{one}.stdout").read_text(encoding="utf-8") for one in forms},
        "trajectory": {one: _trajectory(agent, one) for one in forms},
    }
    source = Path(__file__).read_text(encoding="utf-8")
    line = "SETTINGS: dict[str, Any] = {}\n"
    assert line in source
    program = directory / PROGRAMS[agent]
    filled = source.replace(line, f"SETTINGS: dict[str, Any] = json.loads({json.dumps(settings)!r})\n", 1)
    program.write_text("#!/usr/bin/env python3\n" + filled, encoding="utf-8")
    program.chmod(0o755)
    return program


def _trajectory(agent: str, form: str) -> str | None:
    path = FIXTURES / agent / f"{form}.traj.json"
    return path.read_text(encoding="utf-8") if path.exists() else None


# The program.


def usage(problem: str) -> NoReturn:
    sys.stderr.write(f"error: {problem}\n")
    sys.exit(64)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        usage(message)


def parsed(agent: str, arguments: list[str]) -> argparse.Namespace:
    """Read the arguments as the agent does; every flag without which it would ask a human is required."""
    parser = Parser(allow_abbrev=False)
    if agent == "claude-code":
        parser.add_argument("-p", dest="prompt", required=True)
        parser.add_argument("--output-format", choices=["stream-json"], required=True)
        parser.add_argument("--model", required=True)
        flags(parser, "--verbose", "--dangerously-skip-permissions")
    elif agent == "codex":
        parser.add_argument("subcommand", choices=["exec"])
        parser.add_argument("-m", dest="model", required=True)
        parser.add_argument("-c", dest="settings", action="append", required=True)
        parser.add_argument("prompt")
        flags(parser, "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    elif agent == "gemini-cli":
        parser.add_argument("-p", dest="prompt", required=True)
        parser.add_argument("--output-format", choices=["stream-json"], required=True)
        parser.add_argument("-m", dest="model", required=True)
        flags(parser, "--yolo")
    elif agent == "mini-swe-agent":
        parser.add_argument("-t", dest="prompt", required=True)
        parser.add_argument("-m", dest="model", required=True)
        parser.add_argument("-o", dest="trajectory", required=True)
        flags(parser, "--yolo", "--exit-immediately")
    else:
        parser.add_argument("--message", dest="prompt", required=True)
        parser.add_argument("--model", required=True)
        parser.add_argument("--input-history-file", required=True)
        parser.add_argument("--chat-history-file", required=True)
        parser.add_argument("files", nargs="*")
        flags(parser, "--yes-always", "--no-git", "--no-stream", "--no-pretty", "--no-fancy-input")
        flags(parser, "--no-check-update", "--analytics-disable")
    return parser.parse_args(arguments)


def flags(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, action="store_true", required=True)


def question(agent: str, options: argparse.Namespace) -> urllib.request.Request:
    """Make the request that the agent would send, to the address from its surroundings."""
    environment = os.environ
    message = [{"role": "user", "content": options.prompt}]
    tool = {"name": "Bash", "description": "run a command"}
    model = options.model
    if agent == "claude-code":
        address = environment["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true"
        headers = {"x-api-key": environment["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
        body = {"max_tokens": 100, "messages": message, "tools": [{**tool, "input_schema": {}}]}
    elif agent == "codex":
        base = next(re.search(r'base_url="([^"]+)"', one) for one in options.settings if "base_url" in one)
        address = (base[1] if base else "") + "/responses"
        headers = {"authorization": "Bearer " + environment["OPENAI_API_KEY"]}
        own = {**tool, "type": "function", "parameters": {}}
        group = {"type": "namespace", "name": "team", "description": "", "tools": [own]}
        search = {"type": "tool_search", "execution": "client", "description": "", "parameters": {}}
        # Which of these it sends depends on the model.
        added = {"type": "additional_tools", "role": "developer", "tools": [group]}
        body = {"input": [added, *message], "tools": [own, group, search]}
    elif agent == "gemini-cli":
        address = f"{environment['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/{model}:generateContent"
        headers = {"x-goog-api-key": environment["GEMINI_API_KEY"]}
        body = {
            "contents": [{"role": "user", "parts": [{"text": options.prompt}]}],
            "tools": [{"functionDeclarations": [tool]}],
        }
    else:
        address = environment["OPENAI_API_BASE"] + "/chat/completions"
        headers = {"authorization": "Bearer " + environment["OPENAI_API_KEY"]}
        model = model.removeprefix("openai/")
        body = {"messages": message}
    if agent != "gemini-cli":
        body["model"] = model
    raw = json.dumps(body).encode()
    headers["content-type"] = "application/json"
    return urllib.request.Request(address, raw, headers, method="POST")  # noqa: S310 - the harness names it


def asked_model(agent: str, options: argparse.Namespace) -> str:
    """Ask the model once, and return the form that its answer leads to."""
    # Without a proxy: the broker is on loopback, and the box has no other way out.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(question(agent, options), timeout=600) as answer:
            json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return str(error.code) if str(error.code) in FORMS else "500"
    except (urllib.error.URLError, TimeoutError, ValueError):
        return "garbage"
    return "ok"


def edit(agent: str) -> None:
    """Edit a file of the working directory: calc.py where there is one."""
    calc = Path("calc.py")
    target = calc if calc.exists() else Path(f"edited-by-{agent}.txt")
    target.write_text(EDITED, encoding="utf-8")


def leave_with_143(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(143)


def main() -> int:
    agent, arguments = SETTINGS["agent"], sys.argv[1:]
    if arguments in (["--version"], ["--help"]):
        sys.stdout.write(VERSIONS[agent] + "\n")
        return 0
    if agent == "claude-code":
        signal.signal(signal.SIGTERM, leave_with_143)
    options = parsed(agent, arguments)
    if agent == "codex" and not any(one == 'web_search="disabled"' for one in options.settings):
        usage("the provider would search the web")
    form = SETTINGS["form"]
    if SETTINGS["calls_model"]:
        answered = asked_model(agent, options)
        form = answered if form == "asked" else form
    sys.stdout.write(SETTINGS["stdout"][form])
    sys.stdout.flush()
    if SETTINGS["trajectory"][form]:
        Path(options.trajectory).write_text(SETTINGS["trajectory"][form], encoding="utf-8")
    while form == "stall":
        time.sleep(3600)
    if form in EDITING:
        edit(agent)
    end: int = ENDS[agent].get(form, 0)
    if end:
        sys.stderr.write(f"{PROGRAMS[agent]}: the model answered with {form}\n")
    return end


if __name__ == "__main__":
    sys.exit(main())
