"""Proves both classes by a copy of the source that lacks one restriction, and says what noticed."""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.engine.switching import switched_source
from tests.hostile.engine.table import TABLES, Switch

UNNOTICED = TABLES / "proof" / "unnoticed.toml"
PATIENCE_SECONDS = 120.0
_OWN = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
# What a user's shell may bring along, so that it is seen where it is inherited: a signal that is ignored, as
# by nohup, and a group.
_AS_USERS_DO = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.geteuid() == 0:
    os.setgroups([4])
os.execv(sys.executable, sys.argv[1:])
"""


@dataclass(frozen=True)
class Noticed:
    """What noticed that a restriction is gone; None if both classes were proved."""

    by: str | None


def unnoticed() -> dict[str, str]:
    """Return the restrictions whose loss no proof can show, with the reason of each."""
    rows = tomllib.loads(UNNOTICED.read_text(encoding="utf-8"))["unnoticed"]
    return {row["name"]: row["why"] for row in rows}


def notice(switch: Switch | None) -> Noticed:
    """Prove both classes without a restriction."""
    with tempfile.TemporaryDirectory(prefix="codegenie-proof-") as directory:
        source = switched_source(switch, Path(directory) / "source")
        # Mounts as systemd shares them, so that one that is not made private is seen.
        rights = ["--propagation", "shared"] if os.geteuid() == 0 else ["--user", "--map-current-user"]
        doctor = [sys.executable, "-m", "codegenie", "eval", "doctor", "--json"]
        argv = ["unshare", *rights, *_OWN, sys.executable, "-c", _AS_USERS_DO, *doctor]
        done = subprocess.run(
            argv,
            cwd=directory,
            env=source.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        # A doctor that could not look has noticed nothing.
        raise RuntimeError(f"doctor ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    classes = json.loads(done.stdout)["classes"]
    whys = [f"{each['isolation_class']}: {each['why_not']}" for each in classes if not each["proved"]]
    return Noticed("; ".join(whys) or None)
