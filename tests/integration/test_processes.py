"""Supervisors: start, bound, end and reap a tree, whatever happens to the tree, to themselves or to us."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.system.child_files import read_head, read_tail, stream_file
from codegenie.eval.system.processes import ProcessEnd, ProcessRequest, real_interpreter
from codegenie.eval.system.supervisor import Supervisor
from codegenie.eval.system.supervisor_pool import SupervisorPool, plain_supervisors


async def run_python(
    supervisor: Supervisor, source: str, directory: Path, seconds: float = 20.0
) -> ProcessEnd:
    """Run a program in `directory` through a supervisor, with empty streams."""
    with ExitStack() as held:
        streams = tuple(held.enter_context(stream_file()) for _ in range(3))
        return await supervisor.run(
            ProcessRequest(
                argv=(real_interpreter(), "-I", "-S", "-B", "-c", textwrap.dedent(source)),
                directory=str(directory),
                environment={"TMPDIR": str(directory)},
                streams=streams,
                seconds=seconds,
            )
        )


@asynccontextmanager
async def pool_of(limits: Mapping[str, int] | None = None) -> AsyncIterator[SupervisorPool[Supervisor]]:
    pool = plain_supervisors(None, limits or {})
    try:
        yield pool
    finally:
        await pool.close()


def with_supervisor(
    work: Callable[[Supervisor], Awaitable[ProcessEnd]], limits: Mapping[str, int] | None = None
) -> ProcessEnd:
    async def run() -> ProcessEnd:
        async with pool_of(limits) as pool, pool.borrowed() as supervisor:
            return await work(supervisor)

    return asyncio.run(run())


def test_how_a_process_ended_is_told_exactly(tmp_path: Path) -> None:
    ends = {
        "pass": (0, None),
        "import os; os._exit(7)": (7, None),
        "import os; os.kill(os.getpid(), 9)": (None, "KILL"),
        "import os; os.kill(os.getpid(), 64)": (None, "RTMAX"),
        "import os; os.kill(os.getpid(), 40)": (None, "40"),
    }

    async def run() -> dict[str, tuple[int | None, str | None]]:
        found = {}
        async with pool_of() as pool, pool.borrowed() as supervisor:
            for source in ends:
                end = await run_python(supervisor, source, tmp_path)
                found[source] = (end.exit_code, end.signal)
        return found

    assert asyncio.run(run()) == ends


def test_a_process_that_burns_its_seconds_is_told_apart_from_one_that_was_killed(tmp_path: Path) -> None:
    end = with_supervisor(
        lambda supervisor: run_python(supervisor, "while True: pass", tmp_path), {"RLIMIT_CPU": 1}
    )

    assert end.signal == "XCPU"


def test_a_program_that_is_not_there_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    request = ProcessRequest(("/nowhere/python",), str(tmp_path), {}, (), 5.0)

    with pytest.raises(HarnessFailure, match="cannot start a process: FileNotFoundError"):
        with_supervisor(lambda supervisor: supervisor.run(request))


def test_a_supervisor_serves_on_after_a_program_that_was_not_there(tmp_path: Path) -> None:
    async def run() -> ProcessEnd:
        async with pool_of() as pool, pool.borrowed() as supervisor:
            with pytest.raises(HarnessFailure):
                await supervisor.run(ProcessRequest(("/nowhere/python",), str(tmp_path), {}, (), 5.0))
            return await run_python(supervisor, "pass", tmp_path)

    assert asyncio.run(run()).exit_code == 0


def test_an_answer_is_not_lost_when_our_own_loop_was_busy_for_longer_than_we_would_wait(
    tmp_path: Path,
) -> None:
    async def run(supervisor: Supervisor) -> ProcessEnd:
        running = asyncio.ensure_future(run_python(supervisor, "pass", tmp_path, seconds=0.5))
        await asyncio.sleep(0.01)
        time.sleep(2.5)  # noqa: ASYNC251 - the point of the test
        return await running

    end = with_supervisor(run)
    assert (end.lost, end.exit_code) == (False, 0)


def heart(directory: Path) -> str:
    return f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            with open({str(directory / "heart")!r}, "ab", buffering=0) as file:
                for _ in range(6_000):
                    file.write(b".")
                    time.sleep(0.005)
            os._exit(0)
        time.sleep(60)
    """


async def until_it_beats(directory: Path) -> None:
    for _ in range(2_000):
        if (directory / "heart").exists() and (directory / "heart").stat().st_size > 3:
            return
        await asyncio.sleep(0.005)
    pytest.fail("the heart never beat: the test would prove nothing")


def has_stopped(directory: Path) -> bool:
    before = (directory / "heart").stat().st_size
    time.sleep(0.1)
    return (directory / "heart").stat().st_size == before


@pytest.mark.parametrize("cancellations", [1, 2, 3])
def test_cancelling_ends_the_whole_tree_however_often_it_is_done(tmp_path: Path, cancellations: int) -> None:
    async def run() -> None:
        async with pool_of() as pool:
            async with pool.borrowed() as supervisor:
                running = asyncio.ensure_future(run_python(supervisor, heart(tmp_path), tmp_path))
                await until_it_beats(tmp_path)
                for _ in range(cancellations):
                    running.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await running
            # Who comes next is served, by this supervisor or by another.
            async with pool.borrowed() as supervisor:
                assert (await run_python(supervisor, "pass", tmp_path)).exit_code == 0

    asyncio.run(run())
    assert has_stopped(tmp_path)


def test_cancelling_before_the_supervisor_is_up_is_heard_when_it_is(tmp_path: Path) -> None:
    async def run() -> bool:
        async with pool_of() as pool, pool.borrowed() as supervisor:
            running = asyncio.ensure_future(run_python(supervisor, "import time; time.sleep(60)", tmp_path))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return supervisor.alive

    started = time.monotonic()
    assert asyncio.run(run())
    assert time.monotonic() - started < 45


def test_cancelling_ends_the_tree_of_a_supervisor_that_was_stopped(tmp_path: Path) -> None:
    async def run() -> None:
        async with pool_of() as pool, pool.borrowed() as supervisor:
            running = asyncio.ensure_future(run_python(supervisor, heart(tmp_path), tmp_path))
            await until_it_beats(tmp_path)
            os.kill(supervisor._process.pid, signal.SIGSTOP)  # noqa: SLF001 - what a hostile child would do
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 45
    assert has_stopped(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_supervisor_that_was_ended_while_it_was_idle_is_replaced(
    tmp_path: Path, how: signal.Signals
) -> None:
    async def run() -> ProcessEnd:
        async with pool_of() as pool:
            async with pool.borrowed() as supervisor:
                await run_python(supervisor, "pass", tmp_path)
            pid = supervisor._process.pid  # noqa: SLF001 - what a hostile neighbour would find out
            os.kill(pid, how)
            await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            async with pool.borrowed() as other:
                assert other is not supervisor
                return await run_python(other, "pass", tmp_path)

    assert asyncio.run(run()).exit_code == 0


def test_a_supervisor_is_used_again_and_one_that_was_tampered_with_is_not(tmp_path: Path) -> None:
    tampering = """
        import os, resource
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (64, 64))
    """

    async def run() -> list[bool]:
        supervisors = []
        async with pool_of() as pool:
            for source in ("pass", "pass", tampering, "pass"):
                async with pool.borrowed() as supervisor:
                    supervisors.append(supervisor)
                    assert (await run_python(supervisor, source, tmp_path)).exit_code == 0
        return [one is other for one, other in itertools.pairwise(supervisors)]

    assert asyncio.run(run()) == [True, True, False]


def test_a_pool_that_is_closed_ends_what_was_lent_out_when_it_comes_back(tmp_path: Path) -> None:
    async def run() -> Supervisor:
        pool = plain_supervisors(None, {})
        async with pool.borrowed() as supervisor:
            await pool.close()
            assert (await run_python(supervisor, "pass", tmp_path)).exit_code == 0
        return supervisor

    supervisor = asyncio.run(run())
    assert not supervisor.alive
    assert vars(supervisor._process)["returncode"] is not None  # noqa: SLF001 - reaped: no zombie


def test_closing_a_pool_leaves_no_zombie_even_when_it_is_cancelled(tmp_path: Path) -> None:
    async def run() -> list[int | None]:
        pool = plain_supervisors(None, {})
        supervisors = []
        async with pool.borrowed() as one, pool.borrowed() as two:
            supervisors = [one, two]
            await run_python(one, "pass", tmp_path)
        os.kill(supervisors[0]._process.pid, signal.SIGSTOP)  # noqa: SLF001 - so that it does not leave by itself
        closing = asyncio.ensure_future(pool.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return [vars(supervisor._process)["returncode"] for supervisor in supervisors]  # noqa: SLF001 - likewise

    assert None not in asyncio.run(run())


ORPHANING_HARNESS = """
import asyncio, os, signal, sys, textwrap
sys.path.insert(0, {root!r})
from pathlib import Path
from codegenie.eval.system.supervisor_pool import plain_supervisors
from tests.integration.test_processes import heart, run_python, until_it_beats

async def main():
    directory = Path({directory!r})
    pool = plain_supervisors(directory / "run", {{}})
    async with pool.borrowed() as supervisor:
        running = asyncio.ensure_future(run_python(supervisor, heart(directory), directory))
        {before}
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "before", ["await until_it_beats(directory)", "await asyncio.sleep(0); __import__('time').sleep(1)"]
)
def test_a_harness_that_dies_takes_its_trees_and_its_directory_with_it(tmp_path: Path, before: str) -> None:
    # The second way leaves a message of the supervisor unread: its socket is then reset, not merely ended.
    inner = tmp_path / "run" / "deep" / "er"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    os.symlink("/", inner / "root")
    inner.chmod(0)
    inner.parent.chmod(0)
    script = ORPHANING_HARNESS.format(
        root=str(Path(__file__).parents[2]), directory=str(tmp_path), before=before
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=30)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    for _ in range(500):
        if not (tmp_path / "run").exists():
            break
        time.sleep(0.01)
    assert not (tmp_path / "run").exists()
    assert has_stopped(tmp_path)


def test_streams_are_files_without_a_name_that_are_read_from_either_end() -> None:
    with stream_file(b"abcdef") as stream:
        assert os.read(stream, 3) == b"abc"
        assert read_head(stream, 4) == (b"abcd", True)
        assert read_head(stream, 6) == (b"abcdef", False)
        assert read_tail(stream, 2) == (b"ef", True)
        assert read_tail(stream, 6) == (b"abcdef", False)
        assert not os.get_inheritable(stream)
        assert os.fstat(stream).st_nlink == 0
