"""Defaults from `[tool.codegenie.eval]` of the pyproject.toml in the working directory, and shared options.

A flag wins over the environment (`CODEGENIE_EVAL_*`), and the environment wins over the file. Thresholds are
not settings: they are in the policy file.
"""

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

import click

from codegenie.eval.errors import SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.planning import DEFAULT_BENCH_ROOT, DEFAULT_OUT_DIR

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CACHE_DIR = ".codegenie/eval/cache"
DEFAULT_TIERS = "trust-tiers.yaml"

_FILE = "pyproject.toml"
_LARGEST_NUMBER = 10**15
_KINDS: dict[str, tuple[type, ...]] = {
    "bench_root": (str, list),
    "out": (str,),
    "cache": (str,),
    "tiers": (str,),
    "concurrency": (int,),
    "isolation": (str,),
    "spawn": (str,),
    "timeout": (int, float),
    "max_cost_usd": (int, float),
}


def file_settings() -> dict[str, Any]:
    """Return the settings table of ./pyproject.toml, or {}. Raises SettingsInvalid if an entry is wrong."""
    raw = _read_file()
    if raw is None or b"codegenie" not in raw:
        return {}
    table: Any = _parsed(raw)
    for name in ("tool", "codegenie", "eval"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise SettingsInvalid(f"{name!r} of [tool.codegenie.eval] is not a table", where=_FILE)
    for name, value in table.items():
        _check_setting(name, value)
    # An option that may be repeated takes a list, even for one value.
    root = table.get("bench_root")
    return {**table, "bench_root": [root]} if isinstance(root, str) else dict(table)


def _parsed(raw: bytes) -> dict[str, Any]:
    """Parse the whole file; the settings of other tools in it are not checked."""
    import tomllib

    if any(line.count(b".") > LIMITS.settings_dots_per_line for line in raw.split(b"\n")):
        raise SettingsInvalid(
            f"{_FILE}: a line has more than {LIMITS.settings_dots_per_line} dots", where=_FILE
        )
    if _steps(raw) > LIMITS.settings_steps:
        raise SettingsInvalid(f"{_FILE} has too many keys in tables that are too deep", where=_FILE)
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise SettingsInvalid(f"{_FILE} is not TOML: {error}", where=_FILE) from None


def _steps(raw: bytes) -> int:
    """Count the steps of tomllib: for each line it walks the header above it and the key, part by part."""
    steps = header = 0
    for line in raw.split(b"\n"):
        parts = line.count(b".") + 1
        if line.lstrip().startswith(b"["):
            header = parts
        steps += header + parts
    return steps


def _read_file() -> bytes | None:
    try:
        # O_NONBLOCK: if a pipe has this name, opening it must not wait for a writer.
        descriptor = os.open(_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsInvalid(f"cannot read {_FILE}: {error.strerror}", where=_FILE) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LIMITS.settings_bytes:
            raise SettingsInvalid(
                f"{_FILE} is not a regular file of at most {LIMITS.settings_bytes} bytes", where=_FILE
            )
        return os.read(descriptor, LIMITS.settings_bytes)
    finally:
        os.close(descriptor)


def _check_setting(name: str, value: object) -> None:
    if name not in _KINDS:
        raise SettingsInvalid(
            f"[tool.codegenie.eval] has no setting {ascii(name)[:80]}",
            where=_FILE,
            hint=f"the settings are {', '.join(_KINDS)}",
        )
    words = value if isinstance(value, list) else ["unused"]
    if (
        isinstance(value, bool)
        or not isinstance(value, _KINDS[name])
        or not words
        or not all(isinstance(word, str) for word in words)
    ):
        raise SettingsInvalid(f"[tool.codegenie.eval] {name} has a value of the wrong kind", where=_FILE)
    # Python cannot print an integer of 4,301 digits, and no option accepts one of 16 digits.
    if isinstance(value, int) and abs(value) >= _LARGEST_NUMBER:
        raise SettingsInvalid(f"[tool.codegenie.eval] {name} is out of range", where=_FILE)


def json_option(function: F) -> F:
    """Add --json, which every command takes."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def expect_head_option(function: F) -> F:
    """Add --expect-head, for a log or a bundle whose head the user has kept."""
    return click.option(
        "--expect-head", "expected", metavar="HASH", help="A record with this hash must be in the chain."
    )(function)


class Given(click.types.StringParamType):
    """A text that is not empty. An empty path would silently mean the working directory."""

    # Several directories in a variable are split like PATH.
    envvar_list_splitter = os.pathsep

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - click's signature
        """Refuse an empty text; the command itself checks the rest."""
        text: str = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("is empty", param, ctx)
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
            self.fail(f"{ascii(text)[:80]} holds a zero byte or is not UTF-8", param, ctx)
        return text


def bench_root_option(function: F) -> F:
    """Add --bench-root, which may be given more than once."""
    return click.option(
        "--bench-root",
        "bench_root",
        type=Given(),
        multiple=True,
        default=[DEFAULT_BENCH_ROOT],
        show_default=DEFAULT_BENCH_ROOT,
        envvar="CODEGENIE_EVAL_BENCH_ROOT",
        metavar="DIR",
        help="The directory that holds task classes; may be repeated.",
    )(function)


def configured_bench_roots() -> list[str]:
    """Return the bench roots for a command without that option: from the environment, then from the file."""
    variable = os.environ.get("CODEGENIE_EVAL_BENCH_ROOT")
    if variable:
        return variable.split(os.pathsep)
    roots: list[str] = file_settings().get("bench_root", [DEFAULT_BENCH_ROOT])
    return roots


def out_option(function: F) -> F:
    """Add --out, where records of runs are kept."""
    return click.option(
        "--out",
        type=Given(),
        default=DEFAULT_OUT_DIR,
        show_default=True,
        envvar="CODEGENIE_EVAL_OUT",
        metavar="DIR",
        help="Where the records of runs are kept.",
    )(function)


def cache_option(function: F) -> F:
    """Add --cache, where outcomes are kept for reuse."""
    return click.option(
        "--cache",
        type=Given(),
        default=DEFAULT_CACHE_DIR,
        show_default=True,
        envvar="CODEGENIE_EVAL_CACHE",
        metavar="DIR",
        help="Where outcomes are kept for reuse.",
    )(function)


def tiers_option(function: F) -> F:
    """Add --tiers, the promotion policy."""
    return click.option(
        "--tiers",
        type=Given(),
        default=DEFAULT_TIERS,
        show_default=True,
        envvar="CODEGENIE_EVAL_TIERS",
        metavar="FILE",
        help="The promotion policy.",
    )(function)
