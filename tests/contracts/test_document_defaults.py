"""The pages name the defaults and the signatures that the code has."""

import importlib
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from codegenie.eval import Runner, load_task_class, register_task_class
from codegenie.eval.bench import codegenie_rubric
from codegenie.eval.gate.policy import read_policy
from codegenie.eval.models import RunOptions

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted((ROOT / "src" / "codegenie" / "eval" / "cli").glob("*_command.py"))


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def defaults(text: str, heading: str) -> dict[str, str]:
    """Return the second cell of every row of a section, by the first name in backticks of the first one."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    rows = re.findall(r"^\| `([^` ]+)[^|]* \| ([^|]+) \|", rest.partition("\n## ")[0], re.MULTILINE)
    return dict(rows)


def said_default(option: click.Parameter) -> set[str]:
    """Return how a page may write the default of an option."""
    if option.required:
        return {"required"}
    if isinstance(option, click.Option) and option.is_flag:
        return {"off"}
    value = option.to_info_dict()["default"]
    if isinstance(value, list | tuple) and value:
        (value,) = value
    return {f"`{value}`"} if isinstance(value, str) else {str(value)}


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
def test_every_option_has_the_default_of_the_page(file: Path) -> None:
    command = importlib.import_module(f"codegenie.eval.cli.{file.stem}").command
    said = defaults(page("cli.md"), f"codegenie eval {command.name}")
    options = [option for option in command.params if isinstance(option, click.Option)]
    wrong = {
        option.opts[0]: said[option.opts[0]]
        for option in options
        # Without a default the page says in words what is taken.
        if said_default(option) != {"None"} and said[option.opts[0]] not in said_default(option)
    }

    assert wrong == {}
    in_backticks = {name for name, cell in said.items() if name.startswith("-") and cell.startswith("`")}
    undefined = {option.opts[0] for option in options if said_default(option) == {"None"}}
    # `--json` is another way to write this one, so that its default is known only after both were read.
    assert in_backticks & undefined <= {"--format"}


def test_every_option_of_a_run_has_the_default_of_the_page() -> None:
    said = defaults(page("python.md"), "RunOptions")
    real = {
        name: {None: "none", False: "false"}.get(field.default, str(field.default))
        for name, field in RunOptions.model_fields.items()
    }

    assert {name: cell.strip("`") for name, cell in said.items()} == real


def test_a_policy_of_thresholds_alone_has_the_defaults_of_the_page() -> None:
    said = defaults(page("gate.md"), "Policy file")
    policy = read_policy(b"thresholds: {bronze: 0.5, silver: 0.8, gold: 0.9}\n", "trust-tiers.yaml")

    assert said["minimum_isolation"] == (
        "`subprocess` for the first tier, `landlock` for the second, `namespace` above"
    )
    assert list(policy.minimum_isolation.values()) == ["subprocess", "landlock", "namespace"]
    assert said["minimum_sut_boundary"] == (
        "`process` for the first tier, `landlock` for the second and for `silver`,"
        " `namespace` above and for `gold`"
    )
    assert list(policy.minimum_sut_boundary.values()) == ["process", "landlock", "namespace"]
    assert said["minimum_held_out"] == "0 for the first tier, 5 above"
    assert list(policy.minimum_held_out.values()) == [0, 5, 5]
    assert (said["maximum_age_days"], said["alpha"]) == (str(policy.maximum_age_days), str(policy.alpha))
    assert {said["current_tiers"], said["waivers"]} == {"none"}
    assert not policy.current_tiers
    assert not policy.waivers


def spelled(function: Callable[..., Any], name: str) -> str:
    """Write a signature as the pages do: names and defaults, without types."""
    parts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        value = parameter.default
        shown = json.dumps(value) if isinstance(value, str) else repr(value)
        parts.append(parameter.name if value is parameter.empty else f"{parameter.name}={shown}")
    return f"{name}({', '.join(part for part in parts if part != 'self')})"


@pytest.mark.parametrize(
    ("function", "name", "where"),
    [
        (Runner.__init__, "Runner", "python.md"),
        (Runner.plan, "plan", "python.md"),
        (Runner.execute, "execute", "python.md"),
        (Runner.record, "record", "python.md"),
        (load_task_class, "load_task_class", "python.md"),
        (register_task_class, "register_task_class", "python.md"),
        (codegenie_rubric.emit, "emit", "rubric-wire.md"),
        (codegenie_rubric.read_case, "read_case", "rubric-wire.md"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_signature_on_a_page_is_the_real_one(function: Callable[..., Any], name: str, where: str) -> None:
    assert spelled(function, name) in " ".join(page(where).split())
