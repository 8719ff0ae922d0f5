"""Launchers run a program in a room: as a plain child, or confined, depending on the class."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.isolation.child_settings import (
    case_limits,
    rubric_environment,
    rubric_limits,
    shared_tasks,
)
from codegenie.eval.isolation.memory_share import memory_share
from codegenie.eval.isolation.zygote_client import ConfinedRequest, Guardian, Zygote
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.ports import Room
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, packed
from codegenie.eval.system.processes import ProcessEnd, ProcessRequest, real_interpreter
from codegenie.eval.system.removal import for_entries, remove_tree
from codegenie.eval.system.scheduling import Processors
from codegenie.eval.system.supervisor import Supervisor
from codegenie.eval.system.supervisor_pool import SupervisorPool, plain_supervisors

Streams = tuple[int, int, int]
Watch = Callable[[int], None]
_ARGV = ("-s", "-S", "-B", "rubric.py")


class Launcher(Protocol):
    """Runs the `rubric.py` of a room in one class of isolation."""

    isolation_class: IsolationClass
    wants_parcel: bool
    spawn: Spawn

    def room(self, files: Sequence[tuple[str, bytes]]) -> AbstractContextManager[Room]:
        """Give a private room with these files."""
        ...

    async def launch(
        self, room: Room, streams: Streams, seconds: float, watch: Watch | None = None
    ) -> ProcessEnd:
        """Run it to the end of its whole process tree; `watch` gets its process number on the host."""
        ...

    def divide(self, slots: int) -> None:
        """Divide the machine among this many rubrics at once."""
        ...

    async def close(self) -> None:
        """End everything that is still held open."""
        ...


class PlainLauncher:
    """The `subprocess` class: a plain child with a scrubbed environment, its own session and limits."""

    isolation_class: IsolationClass = "subprocess"
    wants_parcel = False
    spawn: Spawn = "cold"
    _patient = True

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._supervisors = self._pool()
        self._argv = (real_interpreter(), *_ARGV)
        self._share: dict[str, int] = {}

    def _pool(self) -> SupervisorPool[Supervisor]:
        return plain_supervisors(self._run_directory, rubric_limits(), renounce_privileges=True)

    def _limits(self, seconds: float) -> dict[str, int]:
        return case_limits(seconds) | shared_tasks() | self._share

    async def open(self) -> None:
        """Start the first supervisor now: it removes the directory if the harness dies before any case."""
        await self._supervisors.open()

    def divide(self, slots: int) -> None:
        """Give each of this many rubrics at once a share of the memory."""
        self._share = {"RLIMIT_AS": memory_share(slots)}

    def room(self, files: Sequence[tuple[str, bytes]]) -> AbstractContextManager[Room]:
        """Give a directory with these files."""
        return directory_with(self._run_directory, files)

    async def launch(
        self,
        room: Room,
        streams: Streams,
        seconds: float,
        watch: Watch | None = None,  # noqa: ARG002 - no confinement is claimed, so nothing is inspected
    ) -> ProcessEnd:
        """Run it as a child of a supervisor."""
        directory = str(room)
        request = ProcessRequest(
            argv=self._argv,
            directory=directory,
            environment=rubric_environment(directory),
            streams=streams,
            seconds=seconds,
            limits=self._limits(seconds),
            patient=self._patient,
        )
        async with self._supervisors.borrowed() as supervisor:
            return await supervisor.run(request)

    async def close(self) -> None:
        """End the supervisors."""
        await self._supervisors.close()


class Unconfined(PlainLauncher):
    """The control of every proof: a plain child without limits that keeps its privileges.

    The class `subprocess` cannot be the control: it has limits, and its children gain no privileges. A
    canary that the control cannot reach proves nothing.
    """

    _patient = False

    def _pool(self) -> SupervisorPool[Supervisor]:
        return plain_supervisors(self._run_directory, {})

    def _limits(self, seconds: float) -> dict[str, int]:  # noqa: ARG002 - the control has no limits
        return {}

    @contextmanager
    def room(self, files: Sequence[tuple[str, bytes]]) -> Iterator[Room]:
        """Give a directory with these files, and remove it afterwards."""
        with directory_with(self._run_directory, files) as place:
            try:
                yield place
            finally:
                remove_tree(str(place), for_entries(64))


class ConfinedLauncher:
    """The classes `landlock` and `namespace`: a copy of a zygote that has given up all rights it can."""

    def __init__(self, isolation_class: IsolationClass, spawn: Spawn, run_directory: Path) -> None:
        self.isolation_class = isolation_class
        self.wants_parcel = isolation_class == "namespace"
        self.spawn: Spawn = spawn
        self._run_directory = run_directory
        self._guardian = Guardian(isolation_class, spawn, run_directory)
        self._zygotes = SupervisorPool(self._guardian.zygote, LIMITS.zygote_cases)
        self._processors = Processors(1)
        self._share: dict[str, int] = {}

    async def open(self) -> None:
        """Make the first zygote now: if none can be made, this machine does not have the class.

        Raises IsolationUnavailable if the kernel lacks a call, HarnessFailure if a step failed this time.
        """
        await self._zygotes.open()

    def divide(self, slots: int) -> None:
        """Give each of this many rubrics a share of memory and, if there are enough, its own processors."""
        self._processors = Processors(slots)
        self._share = {"RLIMIT_AS": memory_share(slots)}

    def room(self, files: Sequence[tuple[str, bytes]]) -> AbstractContextManager[Room]:
        """Give a room with these files: packed or as a directory, as the class needs it."""
        return parcel_of(files) if self.wants_parcel else directory_with(self._run_directory, files)

    async def launch(
        self, room: Room, streams: Streams, seconds: float, watch: Watch | None = None
    ) -> ProcessEnd:
        """Run it as a copy of a zygote."""
        with _descriptor_of(room) as place, self._processors.share() as share:
            async with self._zygotes.borrowed() as zygote:
                zygote.use(share)
                request = ConfinedRequest((*streams, place), seconds, watch is not None, self._share)
                running = zygote.run(request)
                if watch is None:
                    return await running
                return await _watched(zygote, asyncio.ensure_future(running), watch)

    async def close(self) -> None:
        """End the zygotes and their guardian."""
        try:
            await self._zygotes.close()
        finally:
            await self._guardian.close()


async def _watched(zygote: Zygote, running: "asyncio.Task[ProcessEnd]", watch: Watch) -> ProcessEnd:
    """Call `watch` with the number of the copy as soon as it exists."""
    try:
        while not running.done():
            if copies := zygote.copies():
                watch(copies[0])
                break
            await asyncio.sleep(0.0005)
        return await running
    finally:
        running.cancel()


@contextmanager
def _descriptor_of(room: Room) -> Iterator[int]:
    if isinstance(room, int):
        yield room
        return
    try:
        descriptor = os.open(room, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HarnessFailure(f"cannot open a private directory: {error.strerror}", where=str(room)) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parcel_of(files: Sequence[tuple[str, bytes]]) -> Iterator[int]:
    """Give the descriptor of a packed tree with these files."""
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        packer.ready(*packed(files))
        packer.close()
        yield descriptor


@contextmanager
def directory_with(parent: Path, files: Sequence[tuple[str, bytes]]) -> Iterator[Path]:
    """Give a private directory with these files; it is removed with the run directory."""
    place = parent / f"room-{os.urandom(8).hex()}"
    place.mkdir(mode=0o700)
    for name, content in files:
        (place / name).write_bytes(content)
    yield place


async def open_launcher(isolation_class: IsolationClass, spawn: Spawn, run_directory: Path) -> Launcher:
    """Return a launcher that is ready. Raises IsolationUnavailable if the kernel lacks a call it needs."""
    if isolation_class == "subprocess":
        plain = PlainLauncher(run_directory)
        await plain.open()
        return plain
    confined = ConfinedLauncher(isolation_class, spawn, run_directory)
    async with AsyncExitStack() as held:
        held.push_async_callback(confined.close)
        await confined.open()
        held.pop_all()
    return confined
