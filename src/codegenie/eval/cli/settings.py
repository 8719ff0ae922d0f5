"""Defaults from `[tool.codegenie.eval]` of the pyproject.toml in the working directory, and shared options.

A flag wins over the environment (`CODEGENIE_EVAL_*`), that over the file. Thresholds are not settings:
they live in the policy file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from codegenie.eval.errors import SettingsInvalid

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: dict[str, tuple[type, ...]] = {
    "bench_root": (str, list),
    "concurrency": (int,),
    "isolation": (str,),
    "timeout": (int, float),
    "max_cost_usd": (int, float),
}


def file_settings() -> dict[str, Any]:
    """Return the settings table of ./pyproject.toml; empty where there is none."""
    try:
        raw = Path("pyproject.toml").read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsInvalid(f"cannot read pyproject.toml: {error.strerror}") from None
    if b"codegenie" not in raw:
        return {}
    import tomllib

    try:
        table: Any = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise SettingsInvalid(f"pyproject.toml is not TOML: {error}", where="pyproject.toml") from None
    for name in ("tool", "codegenie", "eval"):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        raise SettingsInvalid("[tool.codegenie.eval] is not a table", where="pyproject.toml")
    for name, value in table.items():
        if name not in _KINDS:
            raise SettingsInvalid(
                f"[tool.codegenie.eval] has no setting {name!r}",
                where="pyproject.toml",
                hint=f"the settings are {', '.join(_KINDS)}",
            )
        if isinstance(value, bool) or not isinstance(value, _KINDS[name]):
            raise SettingsInvalid(
                f"[tool.codegenie.eval] {name} has a value of the wrong kind", where="pyproject.toml"
            )
    return table


def json_option(function: F) -> F:
    """Add --json, which every command takes."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def bench_root_option(function: F) -> F:
    """Add --bench-root, which may be given more than once."""
    return click.option(
        "--bench-root",
        "bench_root",
        multiple=True,
        default=["bench"],
        show_default="bench",
        envvar="CODEGENIE_EVAL_BENCH_ROOT",
        metavar="DIR",
        help="Where task classes lie; may be given more than once.",
    )(function)
