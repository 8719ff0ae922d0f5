"""Tries to prove every class on this machine, one after the other, and says what an unproved class lacks."""

from pathlib import Path

from codegenie.eval.errors import HarnessFailure, IsolationUnavailable
from codegenie.eval.isolation.machine import Machine, remedies
from codegenie.eval.isolation.proof import STRONGEST_FIRST, proved, taken_by_auto
from codegenie.eval.isolation_proof import ClassFinding
from codegenie.eval.models import IsolationClass, Spawn


async def diagnose(machine: Machine, run_directory: Path, spawn: Spawn = "zygote") -> list[ClassFinding]:
    """Return the result of each class, strongest first."""
    return [await _finding(each, machine, run_directory, spawn) for each in STRONGEST_FIRST]


async def _finding(
    isolation_class: IsolationClass, machine: Machine, run_directory: Path, spawn: Spawn
) -> ClassFinding:
    try:
        launcher, proof = await proved(isolation_class, spawn, run_directory)
    except IsolationUnavailable as error:
        advice = remedies(machine, isolation_class)
        return ClassFinding(isolation_class, why_not=error.message, remedies=advice, lacking=True)
    except HarnessFailure as error:
        advice = (error.hint or "run again",)
        return ClassFinding(isolation_class, why_not=error.message, remedies=advice)
    await launcher.close()
    return ClassFinding(isolation_class, proof, by_name_only=isolation_class not in taken_by_auto(machine))
