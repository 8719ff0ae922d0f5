"""Runs programs in a class of isolation, and looks at the copy that runs them from outside, through /proc.

A program that waits for us reads one byte at the beginning of its standard input, a file in memory that we
write to. Where a test needs a guardian that is not quite ours, it gets a copy of the package with edits.
"""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

import codegenie
from codegenie.eval.isolation import zygote_client
from codegenie.eval.isolation.launchers import Launcher, Watch, open_launcher
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.processes import ProcessEnd
from tests.support.sampling import sampled

CONFINED: tuple[IsolationClass, ...] = ("namespace", "landlock")
SPAWNS: tuple[Spawn, ...] = ("zygote", "cold")
WAYS = [(isolation_class, spawn) for isolation_class in CONFINED for spawn in SPAWNS]
PATIENCE_SECONDS = 30.0

WAIT = """
import os as _os, time as _time
_os.write(1, b"!")
while not _os.pread(0, 1, 0):
    _time.sleep(0.002)
"""
"""Says that it runs, and waits for our byte."""

# The strongest class by a zygote is the default way: `make test` takes it, `make test-all` the others too.
each_class = pytest.mark.parametrize("isolation_class", sampled(CONFINED, CONFINED[0].__eq__))
each_way = pytest.mark.parametrize(
    ("isolation_class", "spawn"),
    [pytest.param(*way, marks=() if way == WAYS[0] else pytest.mark.all_ways) for way in WAYS],
)

Found = TypeVar("Found")


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what it wrote."""

    end: ProcessEnd
    stdout: str
    stderr: str

    @property
    def way(self) -> tuple[int | None, str | None]:
        """Its exit code and its signal."""
        return self.end.exit_code, self.end.signal


@asynccontextmanager
async def a_launcher(isolation_class: IsolationClass, spawn: Spawn = "zygote") -> AsyncIterator[Launcher]:
    """Give a launcher with a run directory of its own."""
    with tempfile.TemporaryDirectory(prefix="codegenie-eval-") as directory:
        launcher = await open_launcher(isolation_class, spawn, Path(directory))
        try:
            yield launcher
        finally:
            await launcher.close()


async def run_by(
    launcher: Launcher,
    source: str,
    seconds: float = PATIENCE_SECONDS,
    watch: Watch | None = None,
    **files: bytes,
) -> Ran:
    """Run a program by a launcher that is there already."""
    rubric = [("rubric.py", source.encode()), *files.items()]
    with (
        launcher.room(rubric) as room,
        stream_file() as stdin,
        stream_file() as stdout,
        stream_file() as stderr,
    ):
        end = await launcher.launch(room, (stdin, stdout, stderr), seconds, watch)
        return Ran(end, _text(stdout), _text(stderr))


def run_all(isolation_class: IsolationClass, sources: Iterable[str], spawn: Spawn = "zygote") -> list[Ran]:
    """Run programs one after the other in one zygote."""

    async def run() -> list[Ran]:
        async with a_launcher(isolation_class, spawn) as launcher:
            return [await run_by(launcher, source) for source in sources]

    return asyncio.run(run())


def run_confined(
    isolation_class: IsolationClass, source: str, spawn: Spawn = "zygote", seconds: float = PATIENCE_SECONDS
) -> Ran:
    """Run one program in a class of isolation."""

    async def run() -> Ran:
        async with a_launcher(isolation_class, spawn) as launcher:
            return await run_by(launcher, source, seconds)

    return asyncio.run(run())


@asynccontextmanager
async def waiting_copy(launcher: Launcher, source: str = "", *, seen: bool = True) -> AsyncIterator[int]:
    """Give the number of a copy that has run a program and waits; it ends well when we are done.

    `seen` says whether it may be looked into, as the probe of a proof may, or is hidden as a rubric is.
    """
    numbers: list[int] = []
    with ExitStack() as held:
        room = held.enter_context(launcher.room([("rubric.py", (source + WAIT).encode())]))
        stdin, stdout, stderr = (held.enter_context(stream_file()) for _ in range(3))
        running = asyncio.ensure_future(
            launcher.launch(room, (stdin, stdout, stderr), PATIENCE_SECONDS, numbers.append if seen else None)
        )
        try:
            # What is waited for is written by another process.
            while not (os.pread(stdout, 1, 0) and (numbers or not seen)) and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            numbers += copies_below_us() if not seen else []
            assert not running.done(), f"it ended by itself: {running.result()}: {_text(stderr)}"
            yield numbers[0]
        finally:
            os.pwrite(stdin, b"!", 0)
            await running


def look_at(
    isolation_class: IsolationClass,
    look: Callable[[int], Found],
    spawn: Spawn = "zygote",
    *,
    seen: bool = True,
) -> Found:
    """Return what `look` sees of a copy that waits in a class of isolation."""

    async def run() -> Found:
        async with (
            a_launcher(isolation_class, spawn) as launcher,
            waiting_copy(launcher, seen=seen) as number,
        ):
            return look(number)

    return asyncio.run(run())


def _text(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")


def status(number: int) -> dict[str, str]:
    """Return /proc/NUMBER/status by name, spaces made single."""
    lines = Path(f"/proc/{number}/status").read_text(encoding="utf-8").splitlines()
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in lines)}


def parent_of(number: int) -> int:
    """Return the number of the parent."""
    return int(status(number)["PPid"])


def is_alive(number: int) -> bool:
    """Whether it runs still; a zombie does not."""
    try:
        return not status(number)["State"].startswith("Z")
    except OSError:
        return False


def children_of(number: int, *, zombies: bool = False) -> list[int]:
    """Return the children of a process that live, and those that have ended if they are asked for."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = parent_of(int(name))
            except OSError:
                continue
            if parent == number and (zombies or is_alive(int(name))):
                found.append(int(name))
    return sorted(found)


def copies_below_us() -> list[int]:
    """Return the numbers of the copies that run now: we start guardians, these zygotes, and these copies."""
    zygotes_below = [zygote for guardian in children_of(os.getpid()) for zygote in children_of(guardian)]
    return [copy for zygote in zygotes_below for copy in children_of(zygote)]


def tree_below(number: int) -> list[int]:
    """Return all that lives below a process."""
    found = children_of(number)
    return [*found, *(below for child in found for below in tree_below(child))]


def seconds_until(
    condition: Callable[[], object], patience: float = 30.0, pause: float = 0.005
) -> float | None:
    """Wait for something to become true; return how long that took, None if it did not."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if condition():
            return time.monotonic() - began
        time.sleep(pause)
    return None


def use_edited_guardian(
    monkeypatch: pytest.MonkeyPatch, directory: Path, *edits: tuple[str, str, str]
) -> None:
    """Have guardians started from a copy; an edit names a file, what stands there, and what shall."""
    edited = edited_package(directory, *edits)
    program = edited / "codegenie" / "eval" / "isolation" / "confinement" / "guardian_program.py"
    monkeypatch.setattr(zygote_client, "_PROGRAM", program)


def edited_package(directory: Path, *edits: tuple[str, str, str]) -> Path:
    """Copy the package with these edits of its confinement; return where a process would import it from."""
    package = Path(codegenie.__file__).parent
    copied = directory / "edited" / package.name
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
    confinement = copied / "eval" / "isolation" / "confinement"
    for name, old, new in edits:
        text = (confinement / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old!r}"
        (confinement / name).write_text(text.replace(old, new), encoding="utf-8")
    return copied.parent


ATTEMPTS = """\
import ctypes, errno, json, os, sys
found = {{}}

def attempt(name, deed):
    try:
        deed()
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
    else:
        found[name] = "done"

{deeds}
print(json.dumps(found))
"""


def attempts(
    isolation_class: IsolationClass, deeds: dict[str, str], spawn: Spawn = "zygote"
) -> dict[str, str]:
    """Return how each attempt ended: `done`, or the name of the error."""
    lines = "\n".join(f"attempt({name!r}, lambda: {deed})" for name, deed in deeds.items())
    ran = run_confined(isolation_class, ATTEMPTS.format(deeds=lines), spawn)
    assert ran.way == (0, None), ran
    found: dict[str, str] = json.loads(ran.stdout)
    return found
