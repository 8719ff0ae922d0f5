"""Runs a program as an ordinary user who may have so many processes, in a pid namespace of its own.

The kernel does not count the processes of root. So where tests run as root, the program gets a user that
exists for it alone, and whatever it does to processes, it does to those of its namespace. What it has to read
may lie in a closed directory, such as root's home: there it sees that part of it, and no other. Where tests
run as an ordinary user, the program runs as the same one in a user namespace of its own: there the kernel
counts the processes of that namespace alone, and a neighbour's do not count.
"""

import os
import subprocess
import sys
from pathlib import Path

import codegenie
from tests.hostile.engine.stage import unmeasured
from tests.hostile.engine.table import ROOT

# One for each worker, and none that the machine knows.
_USER = 61777 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NEEDED = sorted({str(ROOT), sys.prefix, sys.base_prefix, str(Path(codegenie.__file__).parent)})
_UNSHARED = [
    "unshare", "--mount", "--propagation", "private", "--ipc", "--pid", "--fork", "--mount-proc",
    "--kill-child",
]  # fmt: skip
_SECONDS = 400
_OPEN_UP = r"""
set -e
stage=$1; user=$2; tasks=$3; shift 3
number=0
for path in $BEHIND; do
    number=$((number + 1)); mkdir -p "$stage/$number"; mount --bind "$path" "$stage/$number"
done
for place in $CLOSED; do mount -t tmpfs -o mode=0755 none "$place"; done
number=0
for path in $BEHIND; do
    number=$((number + 1)); mkdir -p "$path"; mount --bind "$stage/$number" "$path"
done
exec setpriv --reuid "$user" --regid "$user" --clear-groups prlimit --nproc="$tasks" "$@"
"""


def _closed() -> dict[str, str]:
    """Return the directories that keep others from what the program needs, and what lies behind them."""
    above = {parent for path in _NEEDED for parent in Path(path).parents}
    closed = [place for place in above if not place.stat().st_mode & 0o001]
    behind = [path for path in _NEEDED if any(place in Path(path).parents for place in closed)]
    return {"CLOSED": " ".join(map(str, closed)), "BEHIND": " ".join(behind)}


def run_as_ordinary_user(
    module: str, room: Path, tasks: int, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE ROOM ARGUMENTS` as a user who may have so many processes and threads.

    The room lies where that user can enter, and so not below a directory of pytest.
    """
    program = [sys.executable, "-m", module, str(room), *arguments]
    if os.getuid() == 0:
        stage = room / "stage"
        stage.mkdir()
        os.chown(room, _USER, _USER)
        shell = ["sh", "-c", _OPEN_UP, "sh", str(stage), str(_USER), str(tasks)]
        return _run([*_UNSHARED, *shell, *program])
    return _run([*_UNSHARED, "--user", "--map-current-user", "prlimit", f"--nproc={tasks}", *program])


def run_in_own_processes(module: str, room: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE ROOM ARGUMENTS` as the user of the tests, as the first process that it sees."""
    mapped = [] if os.getuid() == 0 else ["--user", "--map-current-user"]
    return _run([*_UNSHARED, *mapped, sys.executable, "-m", module, str(room), *arguments])


def _run(program: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**unmeasured(), **_closed(), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
