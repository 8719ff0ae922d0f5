"""The first process of a box watches its program: what that does to it, and where it hides things."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import BoxEnd, BoxLimits
from codegenie.eval.models import IsolationClass
from tests.support.boxed import Stage, stage
from tests.support.confinement import CONFINED
from tests.support.ordinary_user import run_as_ordinary_user
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

MEMORY = BoxLimits(memory_total_bytes=48 << 20)


@pytest.fixture(scope="module", params=sampled(CONFINED, CONFINED[0].__eq__))
def boxes(request: pytest.FixtureRequest) -> Iterator[Stage]:
    isolation_class: IsolationClass = request.param
    with stage(isolation_class) as opened:
        yield opened


@pytest.fixture(scope="module")
def namespace() -> Iterator[Stage]:
    with stage("namespace") as opened:
        yield opened


CHANGES = """
import ctypes, os, resource
first = os.getppid()
deeds = [
    lambda: os.setpriority(os.PRIO_PROCESS, first, 19),
    lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    lambda: os.sched_setscheduler(first, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setaffinity(first, {max(os.sched_getaffinity(0))}),
    lambda: resource.prlimit(first, resource.RLIMIT_NOFILE, (5, 5)),
    lambda: resource.prlimit(first, resource.RLIMIT_CPU, (0, 0)),
]
for deed in deeds:
    try:
        deed()
    except OSError:
        pass
# The first process reaps what has no parent. With a second of processor time as its limit that ends it.
for _ in range(300):
    child = os.fork()
    if child == 0:
        os.fork()
        os._exit(0)
    os.waitpid(child, 0)
"""


def state_of(number: int) -> tuple[str, int, int, set[int]]:
    limits = Path(f"/proc/{number}/limits").read_text()
    order = os.getpriority(os.PRIO_PROCESS, number), os.sched_getscheduler(number)
    return limits, *order, os.sched_getaffinity(number)


def test_a_program_changes_neither_limits_nor_order_of_the_process_that_watches_it(boxes: Stage) -> None:
    async def tried(box: Box) -> tuple[BoxEnd, object, object]:
        before = state_of(box.first_process)
        end, _ = await boxes.run(box, (boxes.interpreter, "-I", "-S", "-c", CHANGES))
        return end, before, state_of(box.first_process)

    end, before, after = boxes.in_box(tried)

    # A box that is lost makes an attempt void: the program would be asked again.
    assert (end.lost, end.exit_code) == (False, 0)
    assert after == before


def test_a_program_may_still_change_limits_and_order_of_its_own_processes(namespace: Stage) -> None:
    source = """
import os, resource, signal
child = os.fork()
if child == 0:
    signal.pause()
os.setpriority(os.PRIO_PROCESS, child, 5)
os.sched_setaffinity(child, {max(os.sched_getaffinity(0))})
resource.prlimit(child, resource.RLIMIT_NOFILE, (50, 50))
print(os.getpriority(os.PRIO_PROCESS, child), resource.prlimit(child, resource.RLIMIT_NOFILE))
os.kill(child, signal.SIGKILL)
"""

    assert namespace.play(source).stdout == "5 (50, 50)\n"


HIDDEN = {
    "segments that no process has attached": """
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype, libc.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(4):
    place = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)
    ctypes.memset(place, 1, 16 << 20)
    libc.shmdt(place)
""",
    "queues of messages": """
import ctypes, time
libc = ctypes.CDLL(None)
message = ctypes.create_string_buffer(8 + 8192)
message[0] = 1
for _ in range(4000):
    queue = libc.msgget(0, 0o1600)
    for _ in range(2):
        assert libc.msgsnd(queue, message, 8192, 0) == 0
""",
}


@pytest.mark.parametrize("where", HIDDEN)
def test_memory_that_belongs_to_no_process_is_watched(namespace: Stage, where: str) -> None:
    source = f"{HIDDEN[where]}\nprint('held', flush=True)\ntime.sleep(600)\n"
    played = namespace.play(source, view=namespace.view(limits=MEMORY), seconds=50.0)

    assert (played.end.ended_over, played.end.timed_out) == ("memory", False)


def test_a_file_without_a_name_counts_for_a_workspace_on_disk() -> None:
    source = """
import os, time
held = open("large", "wb", buffering=0)
os.remove("large")
for _ in range(16):
    held.write(bytes(1 << 20))
time.sleep(600)
"""
    with stage("landlock") as landlock:
        view = landlock.view(limits=BoxLimits(workspace_bytes=8 << 20))
        end = landlock.play(source, view=view, seconds=50.0).end

    assert (end.ended_over, end.timed_out) == ("workspace", False)


def test_a_directory_that_its_owner_cannot_list_hides_nothing_and_keeps_its_mode() -> None:
    room = Path(tempfile.mkdtemp(prefix="closed-"))
    try:
        done = run_as_ordinary_user("tests.integration.closed_directories", room, 400)
    finally:
        shutil.rmtree(room, ignore_errors=True)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["user"] != 0
    assert {name: seen for name, seen in told["found"].items() if seen != [True, False, True]} == {}
