"""The `subprocess` class: a rubric in a child with nothing of ours but its own copy of the case."""

from pathlib import Path

from codegenie.eval.errors import IsolationUnavailable
from codegenie.eval.isolation.policy import rubric_environment, rubric_limits
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass
from codegenie.eval.ports import RubricRun
from codegenie.eval.processes import (
    KeeperPool,
    ProcessRequest,
    read_head,
    read_tail,
    real_interpreter,
    stream_file,
)

_ARGV = ("-s", "-S", "-B", "rubric.py")


class SubprocessRubrics:
    """Runs rubrics as plain children: scrubbed environment, private directory, own session, limits."""

    isolation_class: IsolationClass = "subprocess"

    def __init__(self, run_directory: Path) -> None:
        self._keepers = KeeperPool(run_directory, rubric_limits(), renounce_privileges=True)
        self._keepers.open()
        self._argv = (real_interpreter(), *_ARGV)

    async def run(self, directory: Path, request: bytes, seconds: float) -> RubricRun:
        """Run `rubric.py` in `directory` and return what it left behind."""
        with stream_file(request) as stdin, stream_file() as stdout, stream_file() as stderr:
            async with self._keepers.borrowed() as keeper:
                end = await keeper.run(
                    ProcessRequest(
                        argv=self._argv,
                        directory=str(directory),
                        environment=rubric_environment(str(directory)),
                        streams=(stdin, stdout, stderr),
                        seconds=seconds,
                    )
                )
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
        """End the keepers."""
        await self._keepers.close()


def rubric_runner(asked_for: str, run_directory: Path) -> SubprocessRubrics:
    """Return the strongest class that this version can prove, or refuse the one that was asked for."""
    if asked_for not in {"auto", "subprocess"}:
        raise IsolationUnavailable(
            f"isolation class {asked_for!r} cannot be proved by this version",
            hint="use --isolation subprocess, and read SECURITY.md for what it does not stop",
        )
    return SubprocessRubrics(run_directory)
