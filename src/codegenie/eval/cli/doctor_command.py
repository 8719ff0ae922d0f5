"""`codegenie eval doctor`: which isolation classes this machine can prove, and what the others lack."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from codegenie.eval.boxes.diagnosis import diagnose_boxes
from codegenie.eval.boxes.headroom import boxes_at_once
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option
from codegenie.eval.isolation.doctor import diagnose
from codegenie.eval.isolation.machine import Machine, this_machine
from codegenie.eval.isolation_proof import BoxFinding, ClassFinding, strongest
from codegenie.eval.reporting.doctor_text import render_doctor, render_room
from codegenie.eval.system.run_directory import run_directory


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Prove every class of isolation on this machine, and say what is missing for the others.

    Exits with 0 whatever is found: the table is the answer.
    """
    machine = this_machine()
    with run_directory() as directory:
        findings = asyncio.run(diagnose(machine, directory))
        boxes = asyncio.run(diagnose_boxes(machine, directory))
    if as_json:
        at_once = {"boxes_at_once": boxes_at_once()}
        say_json("codegenie.eval.doctor/1", {**_document(findings, boxes, machine), **at_once})
    else:
        say([*render_doctor(findings, asdict(machine), boxes), *render_room(boxes_at_once())])


def _document(
    findings: Sequence[ClassFinding], boxes: Sequence[BoxFinding], machine: Machine
) -> dict[str, Any]:
    taken = strongest(findings)
    chosen = next((found.proof for found in findings if found.isolation_class == taken), None)
    return {
        "isolation_class": taken,
        "strongest": taken,
        "probes": [] if chosen is None else [probe.model_dump() for probe in chosen.probes],
        "machine": asdict(machine),
        "classes": [_class_document(found) for found in findings],
        "boxes": [_class_document(found) for found in boxes],
    }


def _class_document(found: ClassFinding | BoxFinding) -> dict[str, Any]:
    return {
        "isolation_class": found.isolation_class,
        "proved": found.proof is not None,
        "why_not": found.why_not,
        "remedies": list(found.remedies),
        "probes": [] if found.proof is None else [probe.model_dump() for probe in found.proof.probes],
    }
