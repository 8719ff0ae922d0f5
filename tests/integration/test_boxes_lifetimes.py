"""How long a box lives: programs that are left, lost processes, many boxes at once, and what stays."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import BoxEnd
from codegenie.eval.boxes.watching import Stillness, descendants, memory_of
from codegenie.eval.models import IsolationClass
from tests.support.boxed import Stage, living_below, some_below, stage
from tests.support.confinement import CONFINED
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)


@pytest.fixture(scope="module", params=sampled(CONFINED, CONFINED[0].__eq__))
def boxes(request: pytest.FixtureRequest) -> Iterator[Stage]:
    isolation_class: IsolationClass = request.param
    with stage(isolation_class) as opened:
        yield opened


def test_a_box_that_is_left_in_the_middle_of_a_program_is_ended(boxes: Stage) -> None:
    async def tried(box: Box) -> tuple[int, list[int]]:
        number = box.first_process
        running = asyncio.ensure_future(boxes.run(box, ("sh", "-c", "sleep 600 & sleep 600")))
        await some_below(number, 3)
        running.cancel()
        await asyncio.wait([running])
        await box.close()
        return number, living_below(number)

    number, alive = boxes.in_box(tried)

    assert (os.path.exists(f"/proc/{number}/cwd"), alive) == (False, [])


def test_a_program_is_asked_to_end_before_its_deadline(boxes: Stage) -> None:
    async def tried(box: Box) -> BoxEnd:
        running = asyncio.ensure_future(boxes.run(box, ("sleep", "600"), seconds=50.0))
        await some_below(box.first_process, 1)
        await asyncio.sleep(0.1)
        await box.ask_to_end()
        return (await running)[0]

    assert boxes.in_box(tried).signal == "TERM"


WAKES_ON_DEMAND = """
import os, sys, threading, time
for line in sys.stdin:
    if line == "fork\\n" and os.fork() == 0:
        time.sleep(600)
    if line == "thread\\n":
        work = threading.Thread(target=print)
        work.start()
        work.join()
    print("done", flush=True)
"""


def test_whatever_runs_in_a_box_ends_its_stillness() -> None:
    stillness = Stillness()
    started: set[int] = set()
    argv = [sys.executable, "-I", "-S", "-B", "-c", WAKES_ON_DEMAND]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None

        def still_after(demand: str) -> tuple[bool, int]:
            """Let it do something; return whether that went unnoticed, and how many processes there are."""
            print(demand, file=program.stdin, flush=True)
            assert "done\n" in iter(program.stdout.readline, "")  # type: ignore[union-attr]
            unnoticed = stillness.lasts()
            while True:
                found = [program.pid, *descendants(program.pid)]
                started.update(found)
                stillness.looked(found)
                if stillness.lasts():
                    return unnoticed, len(found)

        try:
            noticed = [still_after(demand) for demand in ("nothing", "thread", "nothing", "fork", "nothing")]
            program.kill()
            program.wait()
            after_its_end = stillness.lasts()
        finally:
            for number in started:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)

    assert noticed == [(False, 1), (False, 1), (False, 1), (False, 2), (False, 2)]
    assert not after_its_end


def test_only_a_second_look_at_the_same_processes_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {1: 10, 2: 20}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: clocks[~(clock >> 3)])
    stillness = Stillness()
    sure = [stillness.lasts()]
    for found in ([1], [1, 2], [1, 2], [1], []):
        stillness.looked(found)
        sure.append(stillness.lasts())

    assert sure == [False, False, False, True, False, False]

    stillness.looked([1])
    stillness.looked([1])
    before = stillness.lasts()
    clocks[1] += 1

    assert (before, stillness.lasts()) == (True, False)
    clocks[1] -= 1
    assert not stillness.lasts(), "what has run once is looked at again"


HEADLESS = """
import ctypes, os, threading, time

def end_the_first_thread():
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)

if os.fork() == 0:
    os.setsid()
    held = b"x" * 50_000_000
    threading.Thread(target=time.sleep, args=[600]).start()
    end_the_first_thread()
time.sleep(600)
"""
"""A program with a child whose first thread ends, while another thread of it goes on."""


def has_lost_its_first_thread(number: int) -> bool:
    with suppress(OSError):
        state, *rest = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return state == "Z" and int(rest[16]) > 1
    return False


async def headless_below(number: int) -> int:
    """Wait until a process below this one has lost its first thread, and return its number."""
    while not (found := [each for each in living_below(number) if has_lost_its_first_thread(each)]):  # noqa: ASYNC110 - of other processes we hear nothing
        await asyncio.sleep(0.01)
    return found[0]


def test_a_process_without_its_first_thread_is_counted_and_ended_like_any_other(boxes: Stage) -> None:
    async def tried(box: Box) -> tuple[BoxEnd, int, bool]:
        argv = (boxes.interpreter, "-I", "-S", "-B", "-c", HEADLESS)
        running = asyncio.ensure_future(boxes.run(box, argv))
        number = await headless_below(box.first_process)
        memory = memory_of([number])
        await box.ask_to_end()
        end, _ = await running
        await box.close()
        is_there = has_lost_its_first_thread(number)
        if is_there:
            os.kill(number, signal.SIGKILL)
        return end, memory, is_there

    end, memory, is_there = boxes.in_box(tried)

    assert (end.signal, end.left, is_there) == ("TERM", 1, False)
    assert memory >= 50_000_000


def test_many_boxes_are_open_at_once_and_none_sees_another(boxes: Stage) -> None:
    async def one(number: int) -> str:
        async with await boxes.open(files={f"{number}.txt": b""}) as box:
            script = "ls; ls .. | grep -c '^box-'; sleep 0.2"
            return (await boxes.run(box, ("sh", "-c", script)))[1]

    async def all_of_them() -> list[str]:
        return list(await asyncio.gather(*(one(number) for number in range(12))))

    said = boxes.wait_for(all_of_them())

    assert [each.splitlines()[0] for each in said] == [f"{number}.txt" for number in range(12)]
    assert all(each.splitlines()[-1] == "0" for each in said)


def test_a_box_that_is_left_ends_no_process_of_its_neighbour(boxes: Stage) -> None:
    # The neighbour starts processes all the time, so one is always younger than any look at the living.
    forking = "i=0; while [ $i -lt 1500 ]; do /bin/true || exit 9; i=$((i + 1)); done; echo whole"

    async def opened_and_left(running: "asyncio.Future[tuple[BoxEnd, str]]") -> None:
        while not running.done():
            async with await boxes.open():
                pass

    async def tried(box: Box) -> tuple[BoxEnd, str]:
        running = asyncio.ensure_future(boxes.run(box, ("sh", "-c", forking)))
        await asyncio.gather(*(opened_and_left(running) for _ in range(2)))
        return await running

    end, said = boxes.in_box(tried)

    assert (end.exit_code, end.signal, said) == (0, None, "whole\n")


def test_a_lost_first_process_makes_an_attempt_void_and_takes_everything_with_it(boxes: Stage) -> None:
    async def tried() -> tuple[BoxEnd, list[int]]:
        async with await boxes.open() as box:
            number = box.first_process
            running = asyncio.ensure_future(boxes.run(box, ("sh", "-c", "setsid sleep 611 & sleep 611")))
            below = await some_below(number, 3)
            os.kill(number, signal.SIGKILL)
            end, _ = await running
        await asyncio.sleep(0.1)
        return end, [each for each in below if _runs(each)]

    end, alive = boxes.wait_for(tried())

    assert (end.lost, alive) == (True, [])


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_box_in_a_namespace_ends_with_its_box_server(boxes: Stage) -> None:
    async def tried() -> tuple[BoxEnd, bool]:
        async with await boxes.open() as box:
            number = box.first_process
            running = asyncio.ensure_future(boxes.run(box, ("sleep", "5")))
            await some_below(number, 1)
            os.kill(boxes.boxes._process.pid, signal.SIGKILL)  # noqa: SLF001 - as another program might
            end, _ = await running
            return end, _runs(number)

    end, alive = boxes.wait_for(tried())

    # Without a pid namespace its first process lives on, because only it can end the program.
    is_tied = boxes.isolation_class == "namespace"
    assert (end.lost, alive) == (is_tied, not is_tied)


def test_a_box_server_that_is_lost_is_started_again(boxes: Stage) -> None:
    os.kill(boxes.boxes._process.pid, signal.SIGKILL)  # noqa: SLF001 - as another program might
    boxes.boxes._process.wait()  # noqa: SLF001 - likewise

    assert boxes.play("print('again')").stdout == "again\n"


def test_the_door_to_the_broker_leads_out_of_the_box(boxes: Stage) -> None:
    source = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    line.sendall(b"asked")
    print(line.recv(100).decode())
"""

    async def tried(box: Box) -> tuple[str, bytes]:
        assert box.listener is not None
        argv = (boxes.interpreter, "-I", "-S", "-c", source, str(box.broker_port))
        running = asyncio.ensure_future(boxes.run(box, argv))
        loop = asyncio.get_running_loop()
        with socket.socket(fileno=os.dup(box.listener)) as door:
            door.setblocking(False)  # noqa: FBT003 - the signature of the standard library
            line, _ = await loop.sock_accept(door)
        with line:
            asked = await loop.sock_recv(line, 100)
            await loop.sock_sendall(line, b"answered")
        return (await running)[1], asked

    assert boxes.in_box(tried, view=boxes.view(network="broker")) == ("answered\n", b"asked")


def test_nothing_of_a_box_stays_when_it_is_left(boxes: Stage) -> None:
    boxes.play("open('x', 'w').close()")
    deadline = time.monotonic() + 20

    while any(boxes.directory.glob("box-*")) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert list(boxes.directory.glob("box-*")) == []


KILLED = """
import asyncio, os, sys, tempfile
from pathlib import Path
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxRequest, BoxView
from codegenie.eval.system.packed_tree import Packer
from codegenie.eval.system.child_files import stream_file

async def main():
    directory = Path(tempfile.mkdtemp(prefix="codegenie-eval-"))
    boxes = Boxes(sys.argv[1], directory)
    with stream_file() as parcel:
        packer = Packer(parcel)
        packer.close()
        box = await boxes.open(BoxRequest(BoxView(), parcel))
    null = os.open("/dev/null", os.O_RDWR)
    script = "trap '' TERM; setsid sleep 612 & setsid sh -c 'trap \\"\\" TERM; sleep 612' & sleep 612"
    start = AgentStart(("sh", "-c", script), {"PATH": "/usr/bin:/bin"}, (null,) * 3, 600.0)
    running = asyncio.ensure_future(box.run(start))
    print(box.first_process, directory, flush=True)
    await running

asyncio.run(main())
"""


def test_when_the_harness_is_killed_everything_in_its_boxes_ends_and_nothing_is_left(boxes: Stage) -> None:
    argv = [sys.executable, "-c", KILLED, boxes.isolation_class]
    harness = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    first, _, directory = harness.stdout.readline().strip().partition(" ")
    number = int(first)
    below = boxes.wait_for(some_below(number, 4))

    harness.kill()
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + 20
    while (any(map(_runs, [number, *below])) or Path(directory).exists()) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert [each for each in (number, *below) if _runs(each)] == []
    assert not Path(directory).exists()
