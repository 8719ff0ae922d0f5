"""Where rubrics run: the strongest class that was asked for and proved."""

from pathlib import Path

from codegenie.eval.isolation import hiding
from codegenie.eval.isolation.headroom import check_headroom
from codegenie.eval.isolation.launchers import Launcher
from codegenie.eval.isolation.proof import strongest_proved
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import Spawn
from codegenie.eval.ports import Room, RubricRun
from codegenie.eval.system.child_files import read_head, read_tail, stream_file


class Rubrics:
    """Runs rubrics by a launcher whose class was proved; until it is closed this process is hidden."""

    def __init__(self, launcher: Launcher, proof: IsolationProof, notes: tuple[str, ...] = ()) -> None:
        self._launcher = launcher
        self.isolation_class = launcher.isolation_class
        self.wants_parcel = launcher.wants_parcel
        self.proof = proof
        self.notes = notes
        hiding.hide()

    async def run(self, room: Room, request: bytes, seconds: float) -> RubricRun:
        """Run `rubric.py` in `room` and return what it left behind."""
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
        """End what the launcher holds."""
        hiding.unhide()
        await self._launcher.close()


async def rubric_runner(asked_for: str, spawn: Spawn, run_directory: Path, slots: int = 1) -> Rubrics:
    """Return the strongest class that can be proved here, or refuse the one that was asked for.

    So many rubrics will run at once: where the user may not have the processes for them, none is started.
    """
    check_headroom(asked_for, slots)
    notes: list[str] = []
    with hiding.seen():
        launcher, proof = await strongest_proved(asked_for, spawn, run_directory, notes.append)
    launcher.divide(slots)
    return Rubrics(launcher, proof, tuple(notes))
