"""Boxes of agents: what a case costs over a bare spawn, by its number of files, and what sleepers take."""

import asyncio
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxRequest, BoxView
from codegenie.eval.collection.collecting import collect
from codegenie.eval.collection.records import original_of
from codegenie.eval.errors import NotMeasured
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, files_of, packed
from codegenie.eval.system.run_directory import run_directory

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - used through tempfile, if it exists
_FILE = b"x" * 5_000
_MILLISECONDS, _MIB, _PERCENT = 30.0, 4.0, 2.0
_ASLEEP_SECONDS = 10.0
_SECONDS = 600.0
_DESCRIPTORS_OF_A_BOX = 8


@dataclass(frozen=True, slots=True)
class _Place:
    """A class of boxes, and where the files of its boxes are made; None for the usual place."""

    name: str
    isolation_class: IsolationClass
    parent: Path | None = None


def _places() -> list[_Place]:
    places = [_Place("namespace", "namespace"), _Place("landlock", "landlock")]
    if _IN_MEMORY.is_dir():
        places.append(_Place("landlock, files on tmpfs", "landlock", _IN_MEMORY))
    return places


def measure_boxes(files: Sequence[int], rounds: int, sleeping: int) -> Section:
    """Run `/bin/true` in boxes and without one, by turns; then let many programs sleep at once."""
    rows = asyncio.run(_measured(files, rounds, sleeping))
    how = (
        "`/bin/true` in a box of its own with files of 5 KB, from the request to the end of everything in it "
        f"and the collection; less a bare spawn in the same round, {rounds} rounds, all classes by turns. "
        "Class `landlock` makes the files on the disk, so they are also made there without a box, and it "
        f"is also measured on tmpfs: the rest is the disk's. Then {sleeping} boxes in which a "
        "program sleeps. Memory is what the first processes have for themselves, and their part of what "
        f"they share; processor is that of all of them in {_ASLEEP_SECONDS:g} s."
    )
    return Section("Boxes of agents", how, rows)


async def _measured(files: Sequence[int], rounds: int, sleeping: int) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as held:
        opened: dict[str, Boxes] = {}
        for place in _places():
            directory = held.enter_context(_directory(place.parent))
            opened[place.name] = Boxes(place.isolation_class, directory)
            held.push_async_callback(opened[place.name].close)
        disk = held.enter_context(_directory(None))
        try:
            for count in files:
                rows += await _over_a_spawn(opened, disk, count, rounds)
            for name in ("namespace", "landlock"):
                rows += await _asleep(name, opened[name], sleeping)
        except NotMeasured as error:
            raise NotMeasurable(error.message) from None
    return rows


@contextmanager
def _directory(parent: Path | None) -> Iterator[Path]:
    if parent is None:
        with run_directory() as directory:
            yield directory
    else:
        with tempfile.TemporaryDirectory(dir=parent, prefix="codegenie-benchmarks-") as directory:
            yield Path(directory)


async def _over_a_spawn(opened: Mapping[str, Boxes], disk: Path, count: int, rounds: int) -> list[Row]:
    costs: dict[str, list[float]] = {name: [] for name in opened}
    made: list[float] = []
    with _parcel(count) as parcel:
        for boxes in opened.values():
            await _one(boxes, parcel)  # starts what is started once
        for _ in range(rounds):
            made.append(_make_files(disk, count))
            for name, boxes in opened.items():
                started = time.perf_counter()
                await _one(boxes, parcel)
                boxed = time.perf_counter()
                _spawn()
                costs[name].append((boxed - started - (time.perf_counter() - boxed)) * 1000)
    files = f"{count:,} files"
    rows = [
        Row(f"a case over a spawn, {name}, {files}", Spread.of(each), "ms", _MILLISECONDS)
        for name, each in costs.items()
    ]
    return [*rows, Row(f"{files} made on the disk, without a box", Spread.of(made), "ms")]


def _make_files(disk: Path, count: int) -> float:
    """Make the files as a box does, and return how many milliseconds that takes."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=disk) as directory:
        for number in range(count):
            descriptor = os.open(f"{directory}/{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, _FILE)
            os.close(descriptor)
        return (time.perf_counter() - started) * 1000


def _spawn() -> None:
    subprocess.run(["/bin/true"], check=True)


async def _one(boxes: Boxes, parcel: int) -> None:
    async with await boxes.open(BoxRequest(BoxView(), parcel)) as box:
        end = await _run(box, "/bin/true")
        if end != 0:
            raise NotMeasurable(f"/bin/true ended with {end} in a box")
        await box.end_all()
        if not collect(box.workspace, original_of(files_of(parcel))).is_empty:
            raise NotMeasurable("/bin/true changed files in a box")


async def _run(box: Box, *argv: str) -> int | None:
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        return (await box.run(AgentStart(argv, {"PATH": "/usr/bin:/bin"}, (null,) * 3, _SECONDS))).exit_code
    finally:
        os.close(null)


async def _asleep(name: str, boxes: Boxes, sleeping: int) -> list[Row]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sleeping * _DESCRIPTORS_OF_A_BOX + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    opened: list[Box] = []
    running = []
    with _parcel(1) as parcel:
        for _ in range(sleeping):
            opened.append(await boxes.open(BoxRequest(BoxView(), parcel)))
            running.append(asyncio.ensure_future(_run(opened[-1], "sleep", "600")))
    await asyncio.sleep(3.0)  # until the looks at their memory know that they sleep
    before = sum(_seconds_run(box.first_process) for box in opened)
    await asyncio.sleep(_ASLEEP_SECONDS)
    run = sum(_seconds_run(box.first_process) for box in opened) - before
    held = [_proportional_mib(box.first_process) for box in opened]
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    await asyncio.gather(*(box.close() for box in opened))
    share = Spread.of([100 * run / _ASLEEP_SECONDS])
    return [
        Row(f"memory of a sleeping box, {name}", Spread.of(held), "MiB", _MIB),
        Row(f"processor of {sleeping} sleeping boxes, {name}", share, "% of a core", _PERCENT),
    ]


def _seconds_run(number: int) -> float:
    return int(Path(f"/proc/{number}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


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
