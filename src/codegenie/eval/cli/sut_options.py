"""The options of a command about the system under test, and what they ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from codegenie.eval.cli.settings import Given
from codegenie.eval.models import SutNetwork
from codegenie.eval.suts.boxed.request import SutIsolation
from codegenie.eval.suts.spec import SutRequest

Function = TypeVar("Function", bound=Callable[..., object])


class SutFlags(TypedDict):
    """The values of the options."""

    sut_spec: str
    sut_version: str | None
    sut_env: tuple[str, ...]
    sut_model: str | None
    sut_network: SutNetwork | None
    sut_isolation: SutIsolation
    sut_python: str | None


_OPTIONS = (
    click.option(
        "--sut",
        "sut_spec",
        required=True,
        metavar="SPEC",
        help="null, oracle, replay:DIR, python:module:attr, command:'./agent.sh', preset:NAME or the path"
        " of a sut.toml.",
    ),
    click.option(
        "--sut-version", type=Given(), metavar="V", help="The version of the SUT; part of its identity."
    ),
    click.option(
        "--sut-env",
        "sut_env",
        multiple=True,
        metavar="NAME",
        help="Pass this environment variable to the SUT.",
    ),
    click.option(
        "--sut-model", type=Given(), metavar="NAME", help="The model of the agent; part of its identity."
    ),
    click.option(
        "--sut-network",
        type=click.Choice(["none", "broker", "host"]),
        help="What the agent can reach; the default is that of its file; `command:` and `python:` reach"
        " nothing.",
    ),
    click.option(
        "--sut-isolation",
        type=click.Choice(["auto", "namespace", "landlock", "subprocess"]),
        default="auto",
        show_default=True,
        help="The isolation class in which the agent must run.",
    ),
    click.option(
        "--sut-python",
        type=Given(),
        metavar="PATH",
        help="The interpreter of a `python:` agent; part of its identity.",
    ),
)


def sut_options(function: Function) -> Function:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def sut_request(flags: SutFlags, secrets: tuple[Path, ...]) -> SutRequest:
    """Return what the options ask for; `secrets` are paths that no agent may see."""
    return SutRequest(
        spec=flags["sut_spec"],
        version=flags["sut_version"],
        pass_names=tuple(flags["sut_env"]),
        model=flags["sut_model"],
        network=flags["sut_network"],
        isolation=flags["sut_isolation"],
        interpreter=flags["sut_python"],
        secrets=secrets,
    )
