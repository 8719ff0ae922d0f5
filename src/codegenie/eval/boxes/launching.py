"""The harness's side of boxes: it has them made, runs programs in them, keeps deadlines and ends them."""

import asyncio
import errno
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from codegenie.eval.boxes import layout
from codegenie.eval.boxes.box import Box, Handed
from codegenie.eval.boxes.channel import Channel, Closed
from codegenie.eval.boxes.places import AGENT, HOME, IN_A_NAMESPACE, OUTER, TEMPORARY, USER, WORK
from codegenie.eval.boxes.request import AgentStart, BoxPaths, BoxRequest, BoxView
from codegenie.eval.boxes.users import can_be_entered
from codegenie.eval.errors import (
    BoxFailed,
    EvalError,
    HarnessFailure,
    IsolationNotProved,
    IsolationUnavailable,
)
from codegenie.eval.isolation.confinement.namespaces import CAGE
from codegenie.eval.isolation.headroom import most_tasks
from codegenie.eval.isolation.machine import namespaces_are_switched_off
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass
from codegenie.eval.sanitising import one_line
from codegenie.eval.system import protocol
from codegenie.eval.system.child_files import read_tail, stream_file
from codegenie.eval.system.packed_tree import Packer, packed
from codegenie.eval.system.processes import Handle, real_interpreter
from codegenie.eval.system.protocol import line_of
from codegenie.eval.system.removal import Sweeper
from codegenie.eval.system.supervisor_pool import SupervisorSettings, start_program

_PROGRAM = Path(__file__).with_name("box_server_program.py")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
_OPEN_SECONDS = 120.0
_LEAVE_SECONDS = 5.0
_DOCTOR = "run `codegenie eval doctor` for what is missing on this machine"
_REMEDIES = {
    (errno.ENOSPC, errno.EDQUOT): "free memory and space below TMPDIR, or raise `workspace_bytes`",
    (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE): (
        "processes, memory or open files have run out: lower --concurrency, or run again"
    ),
}
_GIT_SECONDS = 120.0
# At a fixed date, by a fixed author, without the configuration of any user.
_GIT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "codegenie"),
            ("EMAIL", "codegenie@localhost"),
            ("DATE", "2000-01-01T00:00:00Z"),
        )
    },
}
_GIT_SCRIPT = (
    "git -c init.defaultBranch=main init -q && git add -A"
    " && git -c gc.auto=0 commit -q --allow-empty --no-verify -m input"
)


class Boxes:
    """Makes boxes of one class for one run."""

    def __init__(
        self, isolation_class: IsolationClass, run_directory: Path, *, is_control: bool = False
    ) -> None:
        """Start the box server. With `is_control` its boxes confine nothing: see `outer`."""
        self.isolation_class = isolation_class
        self.is_control = is_control
        self._told = OUTER if is_control else isolation_class
        self._directory = run_directory.resolve()
        self._sweeper = Sweeper()
        self._turn = asyncio.Lock()
        try:
            self._prepare()
        except OSError as error:
            raise HarnessFailure(
                f"cannot prepare the directory of the run: {error.strerror}", where=str(run_directory)
            ) from None
        self._process, self._channel = self._started()

    def _prepare(self) -> None:
        # The mount point of the new roots; only the processes of a box see what is mounted there.
        (self._directory / CAGE).mkdir(mode=0o700, exist_ok=True)
        if self._told in {"landlock", OUTER} and os.geteuid() == 0:
            # The user of the boxes has to walk through it, and no other user.
            os.chown(self._directory, -1, USER)
            self._directory.chmod(0o710)
            closed = [each for each in self._directory.parents if not can_be_entered(str(each))]
            if closed and not self.is_control:
                raise IsolationNotProved(
                    f"the user of the boxes cannot enter {closed[-1]}, where the directory of the run is",
                    hint="set TMPDIR to a directory that every user can enter, or use class 'namespace'",
                )

    def _started(self) -> tuple[Handle, Channel]:
        settings = {
            "class": self._told,
            "most_tasks": most_tasks(LIMITS.user_tasks_kept // 2),
            "cleaner": SupervisorSettings(None, {}).command(),
        }
        command = [real_interpreter(), "-s", "-S", "-B", str(_PROGRAM)]
        process, connection = start_program(command, _ENVIRONMENT)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            socket.send_fds(connection, [line_of(settings)], [directory])
        except ConnectionError:
            pass  # the first request reports a box server that has ended
        finally:
            os.close(directory)
        return process, Channel(connection)

    async def open(self, request: BoxRequest) -> Box:
        """Make a box, with everything unpacked in it.

        Raises SutSpecInvalid for a view that cannot be had, IsolationUnavailable if the kernel lacks the
        class, BoxFailed for any other failure.
        """
        message = self._message(request)
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        with ExitStack() as held:
            held.callback(channel.close)
            number, process = await self._made(theirs, request.view.network)
            held.callback(os.close, process)
            with _home_parcel(request.home) as home:
                parcels = [request.workspace, home]
                parcels += [] if request.agent_files is None else [request.agent_files]
                said, descriptors = await self._asked(channel, message, parcels)
            held.pop_all()
        box = self._box(said[protocol.READY], Handed(channel, number, process, tuple(descriptors)))
        if request.git:
            await self._with_repository(box)
        return box

    async def close(self) -> None:
        """End the box server; every box has been left before."""
        try:
            await self._channel.send({protocol.LEAVE: True})
            for _ in range(int(_LEAVE_SECONDS / 0.005)):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(0.005)
        except Closed:
            pass
        finally:
            self._channel.close()
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._sweeper.close()

    async def sweep(self) -> None:
        """End what a lost first process of a box has left. Raises BoxFailed if that cannot be done."""
        async with self._turn:
            try:
                await self._channel.send({protocol.SWEEP: True})
                said, _ = await self._channel.receive()
            except Closed:
                return  # with the box server every box has ended
        if not said[protocol.SWEEP]:
            raise BoxFailed("a process that an agent has left cannot be ended")

    def _message(self, request: BoxRequest) -> protocol.OpenBox:
        view = request.view
        message = protocol.OpenBox(
            network=view.network,
            layout=self._layout(view),
            limits={
                "processes": view.limits.processes,
                "process_memory_bytes": view.limits.process_memory_bytes,
                "memory_total_bytes": view.limits.memory_total_bytes,
                "file_bytes": view.limits.file_bytes,
            },
            room=[view.limits.workspace_bytes, view.limits.workspace_entries],
        )
        if self._told != "namespace":
            message["directory"] = f"{self._directory}/box-{secrets.token_hex(8)}"
        return message

    def _layout(self, view: BoxView) -> dict[str, Any]:
        if self._told == "namespace":
            return layout.new_root(view).message()
        if self.is_control:
            return {"opened": [*view.readable, str(self._directory)]}
        whole, listed = layout.readable_places(view)
        return {"whole": whole, "listed": listed}

    async def _made(self, theirs: socket.socket, network: str) -> tuple[int, int]:
        """Have the first process of a box made, and return its number and a descriptor of it."""
        with theirs:
            async with self._turn:
                if self._process.poll() is not None:
                    self._channel.close()
                    self._process, self._channel = self._started()
                try:
                    await self._channel.send({protocol.BOX: network}, [theirs.fileno()])
                    said, _ = await asyncio.wait_for(self._channel.receive(), _OPEN_SECONDS)
                except (Closed, TimeoutError) as error:
                    # The box server may be about to end, so it is not asked again.
                    self._process.kill()
                    self._process.wait()
                    raise self._refusal({protocol.ERROR: str(error) or "no answer in time"}) from None
                if protocol.ERROR in said:
                    raise self._refusal(said)
                return said[protocol.BOX], os.pidfd_open(said[protocol.BOX])

    async def _asked(
        self, channel: Channel, message: protocol.OpenBox, parcels: Sequence[int]
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            await channel.send(message, parcels)
            said, descriptors = await asyncio.wait_for(channel.receive(), _OPEN_SECONDS)
        except (Closed, TimeoutError) as error:
            raise self._refusal({protocol.ERROR: str(error) or "no answer in time"}) from None
        if protocol.ERROR in said:
            raise self._refusal(said)
        return said, descriptors

    def _box(self, ready: Mapping[str, Any], handed: Handed) -> Box:
        directory = ready["directory"]
        if directory is None:
            return Box(handed, IN_A_NAMESPACE, ready["port"], None)
        names = (WORK, HOME, TEMPORARY, AGENT)
        paths = BoxPaths(*(f"{directory}/{name}" for name in names))
        return Box(handed, paths, ready["port"], lambda: self._left(directory))

    async def _left(self, directory: str) -> None:
        """Clean up after a box without namespaces."""
        await self.sweep()
        self._sweeper.sweep(directory)

    async def _with_repository(self, box: Box) -> None:
        """Make the workspace a repository, as the agent would: nothing of it is run outside the box."""
        async with AsyncExitStack() as failed:
            failed.push_async_callback(box.close)
            with stream_file() as nothing, stream_file() as complaint:
                environment = {**_GIT, "HOME": box.home_path, "TMPDIR": box.tmp_path}
                streams = (nothing, complaint, complaint)
                argv = ("/bin/sh", "-c", _GIT_SCRIPT)
                end = await box.run(AgentStart(argv, environment, streams, _GIT_SECONDS))
                said = read_tail(complaint, 4096)[0].decode(errors="replace").strip()
            if end.exit_code != 0:
                why = one_line(said.rpartition("\n")[2], 200) or f"it ended so: {end}"
                raise BoxFailed(f"cannot make a git repository in the box: {why}")
            failed.pop_all()

    def _refusal(self, said: Mapping[str, Any]) -> EvalError:
        """Return the error for a failed step: the kernel lacks the class, or it failed this time."""
        number = said.get("errno")
        message = (
            f"the box of an agent (class {self.isolation_class!r}) cannot be made: {said[protocol.ERROR]}"
        )
        if said.get("lacking") or (number == errno.ENOSPC and namespaces_are_switched_off()):
            return IsolationUnavailable(message, hint=_DOCTOR)
        return BoxFailed(
            message, hint=next((what for of, what in _REMEDIES.items() if number in of), "run again")
        )


@contextmanager
def _home_parcel(files: Mapping[str, bytes]) -> Iterator[int]:
    with stream_file() as parcel:
        packer = Packer(parcel)
        packer.ready(*packed(files.items()))
        packer.close()
        yield parcel
