"""The command line: parse, call, print, return a number. It chooses concrete parts and decides nothing.

Commands are imported when they are called, so that `--help` imports only click.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from codegenie import __version__
from codegenie.eval.cli.output import open_streams
from codegenie.eval.errors import EvalError, HarnessFailure, SettingsInvalid
from codegenie.eval.sanitising import printable

_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "Run a task class against a system under test and report.",
        "verify": "Recompute everything that a log or a bundle claims.",
        "promote-verdict": "Say whether the log proves a tier. A human promotes.",
        "tiers": "Show the promotion policy, or write a first one.",
        "abandon": "Close a run that will not finish as a failed one.",
        "runs": "List the runs of a log, the newest first.",
        "cases": "List the cases of a run with outcome, time, cost and failure.",
        "show": "Show a run, or what one case of it left behind.",
        "export": "Pack one run into a file that a third party can verify.",
        "digest": "Compare or write the digests of a task class's cases.",
        "fence": "Check benches for mistakes and risks, without running them.",
        "list": "List the task classes, including the shipped ones.",
        "doctor": "Prove each isolation class on this machine, and say what is missing.",
        "cache": "Clean up the outcome store.",
        "demo": "Run the shipped bench and show what is refused.",
    }
)
_INTERRUPTED = 130
_NOT_DELIVERED = 4


class _LazyGroup(click.Group):
    """A group that knows its commands' names and first lines, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"codegenie.eval.cli.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        name = args[0] if args else ""
        if name not in _COMMANDS and not name.startswith("-"):
            close = get_close_matches(name, _COMMANDS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the commands are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command {printable(name)!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    no_args_is_help=False,
)
@click.version_option(__version__, prog_name="codegenie")
def _root() -> None:
    """Decide whether an AI agent may be trusted with a class of work."""


@_root.group(name="eval", cls=_LazyGroup, no_args_is_help=False)
@click.pass_context
def _evaluate(ctx: click.Context) -> None:
    """Run benches, and keep and judge the evidence."""
    from codegenie.eval.cli.settings import file_settings

    # The fence may be run inside the bench that it checks, and files of that bench must not configure it.
    if ctx.invoked_subcommand != "fence":
        ctx.default_map = dict.fromkeys(_COMMANDS, file_settings())


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command. Every end is an exit code, and no traceback reaches a user."""
    open_streams()
    try:
        code = _run(arguments)
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). The user caused this, so there is no message.
        code = _NOT_DELIVERED
    except OSError as error:
        code = _NOT_DELIVERED
        with contextlib.suppress(OSError):
            click.echo(f"codegenie: cannot write the output: {error.strerror}", err=True)
    return _NOT_DELIVERED if _output_was_lost() and not code else code


def _output_was_lost() -> bool:
    """Flush the streams now: a failure at exit would print a traceback. Return whether output was lost."""
    lost = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            lost = True
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
    return lost


def _run(arguments: Sequence[str]) -> int:
    try:
        _check_arguments(arguments)
        result = _root.main(args=list(arguments), prog_name="codegenie", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo("codegenie: interrupted", err=True)
        # click turns a KeyboardInterrupt into an Abort; the exception of a signal has its own exit code.
        return getattr(error.__cause__ or error, "exit_code", _INTERRUPTED)
    except SystemExit:
        # click exits with 1 if the reader has closed the pipe, but 1 is the code of a verdict here.
        return _NOT_DELIVERED
    except Exception as error:  # noqa: BLE001 - the last handler of the command line
        return _refuse(_typed(error), as_json="--json" in arguments)
    return result if isinstance(result, int) else 0


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that no record can hold: bytes that are not text in the user's encoding."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= char <= "\udfff" for char in argument):
            raise SettingsInvalid(f"the argument {ascii(argument)[:80]} is not UTF-8")


def _typed(error: Exception) -> EvalError:
    """Give every error the form in which it is shown; an error that is not typed is reported as a bug."""
    if isinstance(error, EvalError):
        return error
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"{context.get_usage()}; see `{context.command_path} --help`" if context else None
        return SettingsInvalid(error.format_message(), hint=hint)
    if os.environ.get("CODEGENIE_DEBUG"):
        raise error
    if isinstance(error, OSError):
        where = None if error.filename is None else str(error.filename)
        return HarnessFailure(f"the operating system reports an error: {error.strerror}", where=where)
    return EvalError(
        f"internal error: {type(error).__name__}: {error}",
        hint="this is a bug in codegenie; set CODEGENIE_DEBUG=1 to see where, and report it",
    )


def _refuse(error: EvalError, *, as_json: bool) -> int:
    """Print what is wrong, where, and what to do next; return the exit code."""
    if as_json:
        document: dict[str, Any] = {
            "schema": "codegenie.eval.refusal/1",
            "error": {
                "type": type(error).__name__,
                "message": printable(error.message),
                "where": None if error.where is None else printable(error.where),
                "hint": None if error.hint is None else printable(" ".join(error.hint.split())),
            },
        }
        click.echo(json.dumps(document, indent=2))
        return error.exit_code
    lines = [f"codegenie: {printable(' '.join(error.message.split()))}"]
    if error.where:
        lines.append(f"  where: {printable(error.where)}")
    if error.hint:
        lines.append(f"  next:  {printable(' '.join(error.hint.split()))}")
    click.echo("\n".join(lines), err=True)
    return error.exit_code
