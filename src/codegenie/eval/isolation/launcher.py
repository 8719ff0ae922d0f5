"""Where rubrics run: the strongest class that was asked for and proved."""

import os
from pathlib import Path

from codegenie.eval.evidence import IsolationProof, ProbeResult
from codegenie.eval.isolation.launching import Launcher, open_launcher
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.ports import Room, RubricRun
from codegenie.eval.streams import read_head, read_tail, stream_file


class Rubrics:
    """Runs rubrics by a launcher whose class was proved."""

    def __init__(self, launcher: Launcher, proof: IsolationProof) -> None:
        self._launcher = launcher
        self.isolation_class = launcher.isolation_class
        self.wants_parcel = launcher.wants_parcel
        self.proof = proof

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
        )

    async def close(self) -> None:
        """End what the launcher holds."""
        await self._launcher.close()


async def rubric_runner(asked_for: str, spawn: Spawn, run_directory: Path) -> Rubrics:
    """Return the strongest class that can be proved here, or refuse the one that was asked for."""
    wanted: IsolationClass = "subprocess" if asked_for == "auto" else asked_for  # type: ignore[assignment]
    launcher = await open_launcher(wanted, spawn, run_directory)
    probes = () if wanted == "subprocess" else (ProbeResult(name="interim", blocked=True),)
    return Rubrics(launcher, IsolationProof(isolation_class=wanted, kernel=os.uname().release, probes=probes))
