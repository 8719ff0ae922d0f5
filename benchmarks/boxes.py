"""Boxes of agents: what one costs over a bare spawn, by its number of files, and what sleeping ones hold."""

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxRequest, BoxView
from codegenie.eval.errors import NotMeasured
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, packed
from codegenie.eval.system.run_directory import run_directory

_CLASSES: tuple[IsolationClass, ...] = ("namespace", "landlock")
_FILE = b"x" * 5_000
_MILLISECONDS, _MIB = 30.0, 4.0
_SECONDS = 600.0
_DESCRIPTORS_OF_A_BOX = 8


def measure_boxes(files: Sequence[int], rounds: int, sleeping: int) -> Section:
    """Run `/bin/true` in boxes and without one, by turns; then let many programs sleep at once."""
    rows: list[Row] = []
    for isolation_class in _CLASSES:
        with run_directory() as directory:
            rows += asyncio.run(_rows(isolation_class, directory, files, rounds, sleeping))
    how = (
        f"`/bin/true` in a box of its own, from the request to the end of everything in it, less a bare "
        f"spawn in the same round, {rounds} rounds, with files of 5 KB; then {sleeping} boxes in which a "
        "program sleeps. Memory is what the first processes have for themselves, and their part of what "
        "they share."
    )
    return Section("Boxes of agents", how, rows)


async def _rows(
    isolation_class: IsolationClass, directory: Path, files: Sequence[int], rounds: int, sleeping: int
) -> list[Row]:
    boxes = Boxes(isolation_class, directory)
    try:
        rows = []
        for count in files:
            cost = await _over_a_spawn(boxes, count, rounds)
            rows.append(
                Row(f"a box over a spawn, {isolation_class}, {count:,} files", cost, "ms", _MILLISECONDS)
            )
        held = await _held_by_sleepers(boxes, sleeping)
    except NotMeasured as error:
        raise NotMeasurable(error.message) from None
    finally:
        await boxes.close()
    return [*rows, Row(f"memory of a sleeping box, {isolation_class}", held, "MiB", _MIB)]


async def _over_a_spawn(boxes: Boxes, count: int, rounds: int) -> Spread:
    costs = []
    with _parcel(count) as parcel:
        await _one(boxes, parcel)  # starts what is started once
        for _ in range(rounds):
            started = time.perf_counter()
            await _one(boxes, parcel)
            boxed = time.perf_counter()
            _spawn()
            costs.append((boxed - started - (time.perf_counter() - boxed)) * 1000)
    return Spread.of(costs)


def _spawn() -> None:
    subprocess.run(["/bin/true"], check=True)


async def _one(boxes: Boxes, parcel: int) -> None:
    async with await boxes.open(BoxRequest(BoxView(), parcel)) as box:
        end = await _run(box, "/bin/true")
        if end != 0:
            raise NotMeasurable(f"/bin/true ended with {end} in a box")


async def _run(box: Box, *argv: str) -> int | None:
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        return (await box.run(AgentStart(argv, {"PATH": "/usr/bin:/bin"}, (null,) * 3, _SECONDS))).exit_code
    finally:
        os.close(null)


async def _held_by_sleepers(boxes: Boxes, sleeping: int) -> Spread:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sleeping * _DESCRIPTORS_OF_A_BOX + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    opened: list[Box] = []
    running = []
    with _parcel(1) as parcel:
        for _ in range(sleeping):
            opened.append(await boxes.open(BoxRequest(BoxView(), parcel)))
            running.append(asyncio.ensure_future(_run(opened[-1], "sleep", "600")))
    await asyncio.sleep(2.0)  # two looks at their memory
    held = [_proportional_mib(box.first_process) for box in opened]
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    await asyncio.gather(*(box.close() for box in opened))
    return Spread.of(held)


def _proportional_mib(number: int) -> float:
    text = Path(f"/proc/{number}/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:"))


@contextmanager
def _parcel(count: int) -> Iterator[int]:
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        packer.ready(*packed((f"files/{number}.txt", _FILE) for number in range(count)))
        packer.close()
        yield descriptor
