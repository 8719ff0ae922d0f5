"""Proves each isolation class once per worker, for tests of runs that are about something else.

A run proves its class at its start, which costs more than a small run itself. Here the first run does so as
always; those after it set the class up and take over the proof. Tests of isolation do not use this.
"""

from pathlib import Path

from codegenie.eval.isolation import proof
from codegenie.eval.isolation.launchers import Launcher, open_launcher
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.models import IsolationClass, Spawn

_PROVED: dict[tuple[IsolationClass, Spawn], IsolationProof] = {}
_set_up_and_proved = proof._set_up_and_proved  # noqa: SLF001 - the step that is done once


async def set_up_and_proved_once(
    isolation_class: IsolationClass, spawn: Spawn, run_directory: Path
) -> tuple[Launcher, IsolationProof]:
    """Set a class up; prove it if no run of this process has."""
    known = _PROVED.get((isolation_class, spawn))
    if known is not None:
        return await open_launcher(isolation_class, spawn, run_directory), known
    launcher, found = await _set_up_and_proved(isolation_class, spawn, run_directory)
    _PROVED[isolation_class, spawn] = found
    return launcher, found
