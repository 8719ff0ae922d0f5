"""Runs programs in boxes, one box server for each class, and looks at what they left."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.interpreters import interpreter_in
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxRequest, BoxView
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, packed
from codegenie.eval.system.run_directory import run_directory

Found = TypeVar("Found")
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Played:
    """How a program ended, what it printed, and the regular files at the top of its workspace."""

    end: BoxEnd
    stdout: str
    files: dict[str, bytes]


@contextmanager
def parcel(files: Mapping[str, bytes]) -> Iterator[int]:
    """Give a packed tree with these files."""
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        packer.ready(*packed(files.items()))
        packer.close()
        yield descriptor


def read_files(directory: int) -> dict[str, bytes]:
    """Return the regular files at the top of a directory."""
    found = {}
    with os.scandir(directory) as scan:
        for entry in scan:
            if entry.is_file(follow_symlinks=False):
                descriptor = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
                found[entry.name] = os.read(descriptor, 1 << 20)
                os.close(descriptor)
    return found


class Stage:
    """A box server of one class, and a loop of its own."""

    def __init__(self, isolation_class: IsolationClass, directory: Path) -> None:
        self.isolation_class = isolation_class
        self.directory = directory
        self.interpreter, self.shown = interpreter_in(isolation_class)
        self._loop = asyncio.new_event_loop()
        self.boxes = Boxes(isolation_class, directory)

    def wait_for(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Wait for something, but not forever."""
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_SECONDS))

    def close(self) -> None:
        """End the box server."""
        self.wait_for(self.boxes.close())
        self._loop.close()

    def view(self, **changes: Any) -> BoxView:  # noqa: ANN401 - fields of the record
        """Return a view that shows the interpreter."""
        readable = (*self.shown, *changes.pop("readable", ()))
        return BoxView(readable=readable, **changes)

    async def open(self, view: BoxView | None = None, **request: Any) -> Box:  # noqa: ANN401 - likewise
        """Open a box; `files` are those of its workspace, `agent` those of the agent."""
        with ExitStack() as held:
            work = held.enter_context(parcel(request.pop("files", {})))
            agent = request.pop("agent", None)
            handed = None if agent is None else held.enter_context(parcel(agent))
            wanted = BoxRequest(view or self.view(), work, handed, **request)
            return await self.boxes.open(wanted)

    async def run(self, box: Box, argv: tuple[str, ...], **start: Any) -> tuple[BoxEnd, str]:  # noqa: ANN401 - likewise
        """Run a program in an open box; return its end and what it printed."""
        variables = {"PATH": "/usr/bin:/bin", "HOME": box.home_path, "TMPDIR": box.tmp_path}
        variables |= start.pop("environment", {})
        extend = start.pop("extend", None)
        timing = {"seconds": 30.0, **start}
        with stream_file() as stdin, stream_file() as stdout:
            end = await box.run(AgentStart(argv, variables, (stdin, stdout, stdout), **timing), extend=extend)
            return end, os.pread(stdout, 1 << 20, 0).decode(errors="replace")

    def play(self, source: str, *arguments: str, view: BoxView | None = None, **request: Any) -> Played:  # noqa: ANN401 - likewise
        """Run a Python program in a box of its own."""
        timing = {key: request.pop(key) for key in ("seconds", "grace_seconds") if key in request}

        async def played() -> Played:
            async with await self.open(view, **request) as box:
                argv = (self.interpreter, "-I", "-S", "-B", "-c", source, *arguments)
                end, said = await self.run(box, argv, **timing)
                await box.end_all()
                return Played(end, said, read_files(box.workspace))

        return self.wait_for(played())

    def in_box(self, work: Callable[[Box], Coroutine[Any, Any, Found]], **request: Any) -> Found:  # noqa: ANN401 - likewise
        """Do something with an open box."""

        async def done() -> Found:
            async with await self.open(request.pop("view", None), **request) as box:
                return await work(box)

        return self.wait_for(done())


@contextmanager
def stage(isolation_class: IsolationClass) -> Iterator[Stage]:
    """Give a stage with a run directory of its own."""
    with run_directory() as directory:
        opened = Stage(isolation_class, directory)
        try:
            yield opened
        finally:
            opened.close()


def living_below(number: int) -> list[int]:
    """Return the processes below one of the host's, at any depth."""
    found, waiting = [], [number]
    while waiting:
        try:
            children = Path(f"/proc/{waiting[0]}/task/{waiting[0]}/children").read_text()
        except OSError:
            children = ""
        below = [int(each) for each in children.split()]
        found += below
        waiting = [*waiting[1:], *below]
    return found


async def some_below(number: int, count: int) -> list[int]:
    """Wait until a process has this many below it, and return them."""
    while len(found := living_below(number)) < count:  # noqa: ASYNC110 - of other processes we hear nothing
        await asyncio.sleep(0.01)
    return found
