"""The environment of an agent: built from nothing, and the variables that its file and the user name."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.models import IsolationClass
from codegenie.eval.suts.agent_spec.checks import passed_name_problem
from codegenie.eval.suts.agent_spec.filling import CaseTexts
from codegenie.eval.suts.agent_spec.needs import is_shown
from codegenie.eval.suts.agent_spec.records import AgentSpec, NetworkMode

BROKER_WORD = "broker"
"""Stands in the box where an agent looks for its key."""
_LOCALE = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+")
_ALWAYS_IN_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where an agent runs: its private places, the paths that are shown to it, and the class of its box."""

    home: str
    tmp: str
    shown: tuple[str, ...]
    isolation: IsolationClass


def home_of(host: Mapping[str, str]) -> str:
    """Return the home of the user. A variable that is missing, empty or relative names none."""
    home = host.get("HOME", "")
    return home if os.path.isabs(home) else "/"


def agent_environment(
    host: Mapping[str, str], surroundings: Surroundings, case: CaseTexts, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment. `variables` are those of the file, the broker and --sut-env."""
    built = {name: value for name, value in host.items() if _LOCALE.fullmatch(name)}
    built |= {
        "PATH": search_path(host.get("PATH", ""), surroundings.shown),
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "CI": "1",
    }
    built |= variables
    built |= {
        "HOME": surroundings.home,
        "TMPDIR": surroundings.tmp,
        "USER": "agent",
        "LOGNAME": "agent",
        "CODEGENIE_CASE_ID": case.case_id,
        "CODEGENIE_TASK_CLASS": case.task_class,
        "CODEGENIE_TRIAL": str(case.trial),
    }
    if surroundings.isolation == "landlock":
        # There /etc/gitconfig is denied and not missing, which git takes for an error.
        built["GIT_CONFIG_NOSYSTEM"] = "1"
    return built


def search_path(host: str, shown: Sequence[str]) -> str:
    """Return the entries of the host's PATH that the box shows, and the usual ones after them."""
    entries = [entry for entry in host.split(":") if entry.startswith("/") and is_shown(entry, shown)]
    return ":".join(dict.fromkeys([*entries, *_ALWAYS_IN_PATH]))


def passed_variables(
    spec: AgentSpec, mode: NetworkMode, names: Sequence[str], host: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of the host that the agent gets: those of `pass` and of --sut-env.

    With network `host` the agent talks to its provider itself, so it also gets the broker's credential.
    Raises SutSpecInvalid if one of them is not set, is the harness's own, or is a key that stays outside.
    """
    wanted = list(dict.fromkeys([*spec.environment.passed, *names]))
    credential = spec.broker.credential.env if spec.broker else None
    if credential is not None:
        if mode == "broker" and credential in wanted:
            raise SutSpecInvalid(
                f"{credential} is the broker's credential, which never enters the box", hint="leave it out"
            )
        if mode == "host" and credential not in wanted:
            wanted.append(credential)
    for name in wanted:
        problem = passed_name_problem(name, mode)
        if problem:
            raise SutSpecInvalid(problem[0], hint=problem[1])
    return {name: _of_the_host(name, host) for name in wanted}


def broker_credential(spec: AgentSpec, host: Mapping[str, str]) -> str:
    """Return the key that the broker sends. Raises SutSpecInvalid if it is not set or not one line."""
    if spec.broker is None:
        raise RuntimeError("an agent without [broker] has no credential")
    name = spec.broker.credential.env
    value = _of_the_host(name, host)
    if not value.isascii() or not value.isprintable() or value != value.strip() or not value:
        raise SutSpecInvalid(
            f"{name} does not hold a key: it is empty, or has spaces at its ends or other characters",
            hint=f"export {name} again, without quotes and line ends in the value",
        )
    return value


def broker_variables(spec: AgentSpec, mode: NetworkMode) -> dict[str, str]:
    """Return the variable in which the agent looks for its key: with a broker it holds a word."""
    if mode != "broker" or spec.broker is None:
        return {}
    return {spec.broker.credential.env: BROKER_WORD}


def _of_the_host(name: str, host: Mapping[str, str]) -> str:
    if name not in host:
        raise SutSpecInvalid(f"{name}: there is no such variable", hint=f"export {name}, or leave it out")
    return host[name]
