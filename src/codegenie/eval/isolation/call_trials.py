"""Sends the second probe through a launcher: filtered calls, entries of other architectures, the deadline.

Each trial has its own process, because some trials end theirs. They run before the first probe, in the same
zygote: if a trial leaves something behind, for example a mount, the next probe sees it.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, IsolationNotProved
from codegenie.eval.isolation.launchers import Launcher
from codegenie.eval.isolation.machine import Machine
from codegenie.eval.system.child_files import read_head, stream_file
from codegenie.eval.system.processes import ProcessEnd

DOORS = {"old-door": ("SYS", "SEGV"), "x32": ("SYS",)}
"""The signal that ends a process which enters the kernel by another architecture; SEGV if the kernel does not
have that entry."""

_PROGRAM = Path(__file__).with_name("probe_calls_program.py")
_SECONDS = 30.0
_ANSWER_BYTES = 16 * 1024
_DEADLINE_SECONDS = 0.05
# A busy machine may be late once. A deadline that is not enforced is late every time.
_LATE_SECONDS = 2.0
_TRIES = 3
_HINT = "run again; codegenie does not fall back to a weaker class"


async def tried_calls(launcher: Launcher, machine: Machine) -> dict[str, bool]:
    """Return for each name of the second probe whether it got through."""
    library = _executable_library()
    request = {"mode": "calls", "landlock_abi": machine.landlock_abi, "library": library}
    end, said = await _ran(launcher, request, _SECONDS)
    answer, _, more = said.partition(b"\n")
    # A library that is executed prints its name and version.
    reached = {**_answered(answer, end), "exec-library": bool(more)}
    for name, signals in DOORS.items():
        # Other architectures have no second entry into the kernel, so there is nothing to refuse.
        reached[name] = machine.architecture == "x86_64" and not await _ended_by(launcher, name, signals)
    reached["deadline"] = not await _deadline_is_kept(launcher)
    return reached


async def _ended_by(launcher: Launcher, mode: str, signals: tuple[str, ...]) -> bool:
    end, _ = await _ran(launcher, {"mode": mode}, _SECONDS)
    return end.signal in signals


async def _deadline_is_kept(launcher: Launcher) -> bool:
    """Return whether a process that waits is ended when its time is over, by the harness's own clock."""
    loop = asyncio.get_running_loop()
    for _ in range(_TRIES):
        began = loop.time()
        end, _ = await _ran(launcher, {"mode": "deadline"}, _DEADLINE_SECONDS)
        if end.timed_out and loop.time() - began < _DEADLINE_SECONDS + _LATE_SECONDS:
            return True
    return False


async def _ran(launcher: Launcher, request: dict[str, Any], seconds: float) -> tuple[ProcessEnd, bytes]:
    with (
        launcher.room([("rubric.py", _PROGRAM.read_bytes())]) as room,
        stream_file(json.dumps(request).encode()) as stdin,
        stream_file() as stdout,
        stream_file() as stderr,
    ):
        end = await launcher.launch(room, (stdin, stdout, stderr), seconds)
        answer, _ = read_head(stdout, _ANSWER_BYTES)
    if end.lost:
        why = f"the probe of isolation class {launcher.isolation_class!r} was lost in {request['mode']!r}"
        raise IsolationNotProved(why, hint=_HINT)
    return end, answer


def _answered(answer: bytes, end: ProcessEnd) -> dict[str, bool]:
    """Read the answer of the second probe."""
    try:
        document = decode_json(answer, _ANSWER_BYTES) if end.exit_code == 0 else None
    except DecodingRefused:
        document = None
    if not isinstance(document, dict) or not all(type(value) is bool for value in document.values()):
        how = f"signal {end.signal}" if end.signal else f"exit {end.exit_code}"
        raise IsolationNotProved(f"the probe of system calls gave no answer ({how})", hint=_HINT)
    return document


def _executable_library() -> str | None:
    """Return the path of a library that is also a program: the C library often is one."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    found = (line.split(None, 5)[-1] for line in lines if line.endswith("/libc.so.6"))
    return next((path for path in found if os.access(path, os.X_OK)), None)
