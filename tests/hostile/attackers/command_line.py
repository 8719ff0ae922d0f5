"""The command line in a process of its own, called in a directory that belongs to the attacker."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import call, environment, eval_argv

RUNS = Path(".codegenie") / "eval" / "runs"  # where a run writes its log, seen from the room


def ask(room: Path, *arguments: str, **variables: str) -> tuple[str, dict[str, Any]]:
    """Call the command line in a room; return its exit code with the type of a refusal, and its document."""
    program, *rest = eval_argv(*arguments, "--json")
    # -P: the room is the attacker's, and `-m` would let it replace modules of the harness itself.
    done = call([program, "-P", *rest], room, environment(**variables))
    document: dict[str, Any] = json.loads(done.stdout)
    kind = document.get("error", {}).get("type")
    return f"exit {done.returncode} {kind}" if kind else f"exit {done.returncode}", document
