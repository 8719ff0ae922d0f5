"""The limits of a confined process: each is met by a program that goes beyond it, and by nothing else."""

import asyncio
import json

import pytest

from codegenie.eval.isolation.memory_share import memory_share
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from tests.support.confinement import a_launcher, each_way, run_by, run_confined

LARGE = """\
import errno, os
for stream in (None, 1):
    descriptor = os.open("large", os.O_CREAT | os.O_WRONLY) if stream is None else stream
    os.lseek(descriptor, {cap} - 1, os.SEEK_SET)
    assert os.write(descriptor, b"xx") == 1
    try:
        os.write(descriptor, b"x")
    except OSError as error:
        assert error.errno == errno.EFBIG
    else:
        raise AssertionError("no end of a file")
os.ftruncate(1, 0)
"""


@each_way
def test_a_file_ends_at_its_cap_and_so_does_the_output(isolation_class: IsolationClass, spawn: Spawn) -> None:
    ran = run_confined(isolation_class, LARGE.format(cap=LIMITS.child_file_bytes), spawn)
    assert ran.way == (0, None), ran.stderr


@each_way
def test_memory_ends_at_its_cap(isolation_class: IsolationClass, spawn: Spawn) -> None:
    source = (
        "import mmap\n"
        f"with mmap.mmap(-1, {LIMITS.child_address_space_bytes // 2}): pass\n"
        f"try: mmap.mmap(-1, {LIMITS.child_address_space_bytes})\n"
        "except OSError as error: assert error.errno == 12\n"
        "else: raise AssertionError\n"
    )
    assert run_confined(isolation_class, source, spawn).way == (0, None)


@each_way
def test_descriptors_end_at_their_cap(isolation_class: IsolationClass, spawn: Spawn) -> None:
    source = (
        "import errno, os\nopened = 3\n"
        "try:\n    while opened < 10_000: os.dup(0); opened += 1\n"
        "except OSError as error: assert error.errno == errno.EMFILE\n"
        "os.write(1, str(opened).encode())\n"
    )
    assert run_confined(isolation_class, source, spawn).stdout == str(LIMITS.child_open_files)


RAISE = """\
import json, resource
names = ["RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU"]
raised = []
for name in names:
    which = getattr(resource, name)
    soft, hard = resource.getrlimit(which)
    try:
        resource.setrlimit(which, (hard, hard + 1))
        raised.append(name)
    except (ValueError, OSError):
        pass
print(json.dumps(raised))
"""


@each_way
def test_no_limit_can_be_raised(isolation_class: IsolationClass, spawn: Spawn) -> None:
    assert json.loads(run_confined(isolation_class, RAISE, spawn).stdout) == []


@each_way
def test_the_limit_of_cores_can_be_neither_raised_nor_lowered(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    source = (
        "import resource\nrefused = 0\n"
        "for limits in ((0, 0), (1, 1), (2, 2)):\n"
        "    try: resource.setrlimit(resource.RLIMIT_CORE, limits)\n"
        "    except (ValueError, OSError): refused += 1\n"
        "assert refused == 3\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (1, 1)\n"
    )
    assert run_confined(isolation_class, source, spawn).way == (0, None)


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_threads_end_at_their_cap_before_the_machine_runs_out_of_numbers(spawn: Spawn) -> None:
    source = (
        "import os, threading, time\nthreading.stack_size(1 << 16)\nmade = 0\n"
        "try:\n    while made < 2_000:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        made += 1\n"
        "except RuntimeError: pass\n"
        "os.write(1, str(made).encode())\nos._exit(0)\n"
    )
    made = int(run_confined("namespace", source, spawn).stdout)
    assert made == LIMITS.child_threads


@each_way
def test_the_deadline_ends_it_whatever_it_does(isolation_class: IsolationClass, spawn: Spawn) -> None:
    source = (
        "import signal, threading, time\n"
        "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "time.sleep(60)\n"
    )
    ran = run_confined(isolation_class, source, spawn, seconds=0.5)
    assert (ran.end.timed_out, ran.way, ran.end.leaked) == (True, (None, None), 0)
    assert 0.5 <= ran.end.wall_seconds < 20


@each_way
def test_who_stops_itself_is_ended_by_the_deadline(isolation_class: IsolationClass, spawn: Spawn) -> None:
    # Again and again: on a busy machine its deadline is put off, and it is let go on for that.
    source = "import os, signal\nwhile True: os.kill(os.getpid(), signal.SIGSTOP)"
    assert run_confined(isolation_class, source, spawn, seconds=0.5).end.timed_out


@pytest.mark.parametrize("isolation_class", ["namespace", "landlock", "subprocess"])
def test_many_rubrics_at_once_have_a_share_of_the_memory_each(isolation_class: IsolationClass) -> None:
    source = "import resource; print(resource.getrlimit(resource.RLIMIT_AS))"

    async def run() -> str:
        async with a_launcher(isolation_class) as launcher:
            launcher.divide(LIMITS.concurrency)
            return (await run_by(launcher, source)).stdout

    share = memory_share(LIMITS.concurrency)
    assert share < LIMITS.child_address_space_bytes
    assert asyncio.run(run()) == f"({share}, {share})\n"
