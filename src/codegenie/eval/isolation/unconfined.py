"""The control of every proof: the probe in a plain child, without limits or any other confinement.

The class `subprocess` cannot be the control: it has limits, and its children gain no privileges. A canary
that the control cannot reach proves nothing.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codegenie.eval.isolation.child_settings import rubric_environment
from codegenie.eval.isolation.launchers import Streams, Watch
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.ports import Room
from codegenie.eval.system.files import write_private
from codegenie.eval.system.removal import for_entries, remove_tree
from codegenie.eval.system.supervisor import ProcessEnd, ProcessRequest, real_interpreter
from codegenie.eval.system.supervisor_pool import keeper_pool


class Unconfined:
    """A launcher that confines nothing."""

    isolation_class: IsolationClass = "subprocess"
    wants_parcel = False
    spawn: Spawn = "cold"

    def __init__(self, run_directory: Path) -> None:
        self._directory = run_directory
        self._keepers = keeper_pool(run_directory, {})

    async def open(self) -> None:
        """Start the supervisor now."""
        await self._keepers.open()

    @contextmanager
    def room(self, files: Sequence[tuple[str, bytes]]) -> Iterator[Path]:
        """Give a private directory with these files."""
        path = f"{self._directory}/control-{os.urandom(8).hex()}"
        os.mkdir(path, 0o700)
        try:
            for name, content in files:
                write_private(f"{path}/{name}", (content,))
            yield Path(path)
        finally:
            remove_tree(path, for_entries(64))

    async def launch(
        self,
        room: Room,
        streams: Streams,
        seconds: float,
        watch: Watch | None = None,  # noqa: ARG002 - the control is not inspected
    ) -> ProcessEnd:
        """Run the `rubric.py` of a room to the end of its process tree."""
        request = ProcessRequest(
            argv=(real_interpreter(), "-s", "-S", "-B", "rubric.py"),
            directory=str(room),
            environment=rubric_environment(str(room)),
            streams=streams,
            seconds=seconds,
        )
        async with self._keepers.borrowed() as keeper:
            return await keeper.run(request)

    def divide(self, slots: int) -> None:
        """Divide nothing: the control has no limits."""

    async def close(self) -> None:
        """End the supervisor."""
        await self._keepers.close()
