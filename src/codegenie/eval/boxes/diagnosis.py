"""Tries to prove boxes of every class on this machine, and says what an unproved class lacks."""

from pathlib import Path

from codegenie.eval.boxes.proof import proved
from codegenie.eval.boxes.walls import LEAST_ABI
from codegenie.eval.errors import HarnessFailure, IsolationUnavailable
from codegenie.eval.isolation.machine import Machine, remedies
from codegenie.eval.isolation_proof import BoxFinding
from codegenie.eval.models import IsolationClass

_CLASSES: tuple[IsolationClass, ...] = ("namespace", "landlock")


async def diagnose_boxes(machine: Machine, run_directory: Path) -> list[BoxFinding]:
    """Return the result of each class that has something to prove, strongest first.

    The network is that of a broker, which leaves most open of those that reach nothing of the host.
    """
    return [await _finding(each, machine, run_directory) for each in _CLASSES]


async def _finding(isolation_class: IsolationClass, machine: Machine, run_directory: Path) -> BoxFinding:
    try:
        boxes, proof = await proved(isolation_class, run_directory, "broker")
    except IsolationUnavailable as error:
        too_old = isolation_class == "landlock" and 0 < (machine.landlock_abi or 0) < LEAST_ABI
        advice = (_NEWER,) if too_old else remedies(machine, isolation_class)
        return BoxFinding(isolation_class, why_not=error.message, remedies=advice)
    except HarnessFailure as error:
        return BoxFinding(isolation_class, why_not=error.message, remedies=(error.hint or "run again",))
    await boxes.close()
    return BoxFinding(isolation_class, proof)


_NEWER = "this Landlock does not keep signals in a box: use a machine where `uname -r` says 6.12 or later"
