"""Runs rubrics in the class that was asked for, or in the strongest class that can be proved."""

from pathlib import Path

from codegenie.eval.isolation import hiding
from codegenie.eval.isolation.headroom import check_headroom, make_room_for_files
from codegenie.eval.isolation.launchers import Launcher
from codegenie.eval.isolation.proof import strongest_proved
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import Spawn
from codegenie.eval.ports import Room, RubricRun
from codegenie.eval.system.child_files import read_head, read_tail, stream_file


class Rubrics:
    """Runs rubrics by a launcher whose class was proved. This process stays hidden until `close`."""

    def __init__(self, launcher: Launcher, proof: IsolationProof, notes: tuple[str, ...] = ()) -> None:
        self._launcher = launcher
        self.isolation_class = launcher.isolation_class
        self.wants_parcel = launcher.wants_parcel
        self.proof = proof
        self.notes = notes
        hiding.hide()

    async def run(self, room: Room, request: bytes, seconds: float) -> RubricRun:
        """Run `rubric.py` in `room` and return its output, its log and how it ended."""
        with stream_file(request) as stdin, stream_file() as stdout, stream_file() as stderr:
            end = await self._launcher.launch(room, (stdin, stdout, stderr), seconds)
            answer, truncated = read_head(stdout, LIMITS.rubric_stdout_bytes)
            complaint, _ = read_tail(stderr, LIMITS.rubric_stderr_bytes)
        return RubricRun(
            stdout=answer,
            stdout_truncated=truncated,
            stderr=complaint,
            exit_code=end.exit_code,
            signal=end.signal,
            timed_out=end.timed_out,
            leaked_processes=end.leaked,
            wall_seconds=end.wall_seconds,
            starved_with=None if end.starved is None else end.starved.given,
        )

    async def close(self) -> None:
        """End all processes of the launcher."""
        hiding.unhide()
        await self._launcher.close()


async def rubric_runner(asked_for: str, spawn: Spawn, run_directory: Path, slots: int = 1) -> Rubrics:
    """Return a runner of the class that was asked for, or with `auto` of the strongest that can be proved.

    `slots` rubrics will run at once. Raises HarnessFailure if the user may not have enough processes or open
    files for them, and IsolationUnavailable or IsolationNotProved if the class cannot be had.
    """
    make_room_for_files(slots)
    check_headroom(asked_for, slots)
    notes: list[str] = []
    with hiding.seen():
        launcher, proof = await strongest_proved(asked_for, spawn, run_directory, notes.append)
    launcher.divide(slots)
    return Rubrics(launcher, proof, tuple(notes))
