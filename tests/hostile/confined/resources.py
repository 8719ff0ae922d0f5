"""Rubrics that take more than their share: processes, threads, memory, disk, and time after the end."""

import os
import signal
import subprocess
import sys
import time

from tests.hostile.attackers.hostile_bench import HONEST, what_it_met
from tests.hostile.attackers.perfect_rubrics import still_beats
from tests.hostile.engine.census import all_gone, census, descendants, state
from tests.hostile.engine.ground import Ground, Plan, confined_attack, rubric_of
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.table import ROOT
from tests.hostile.engine.tools import first_that_works, system_call
from tests.support.benches import CaseFiles
from tests.support.busy_machine import one_processor

MIB = 1 << 20


def forks_sixty_times(_plan: Plan) -> str:
    import os
    import signal
    import time

    def fork() -> int:
        shape = bytes(32) + (17).to_bytes(8, "little") + bytes(48)
        by_clone = [lambda: system_call("clone", 17, 0, 0, 0, 0), lambda: system_call("clone3", shape, 88)]
        pid: int = first_that_works([os.fork, *by_clone])
        return pid

    children = []
    for _ in range(60):
        child = fork()
        if child == 0:
            time.sleep(5)
            os._exit(0)
        children.append(child)
    time.sleep(1)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return str(len(children))


@confined_attack("sixty_processes")
def sixty_processes(ground: Ground) -> Outcome:
    with census() as peak:
        played = ground.play(forks_sixty_times)
    return played.outcome(f"there were {peak.processes} processes" if peak.processes >= 60 else None)


def starts_four_hundred_threads(plan: Plan) -> str:
    import threading

    # The smallest stack, so that the limit of the address space is not in the way.
    threading.stack_size(32 << 10)
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, args=(5,)) for _ in range(400)]
    started = 0
    try:
        for thread in threads:
            thread.start()
            started += 1
    except RuntimeError:
        pass
    end.wait(plan["seconds"])
    end.set()
    for thread in threads[:started]:
        thread.join()
    return str(started)


@confined_attack("four_hundred_threads")
def four_hundred_threads(ground: Ground) -> Outcome:
    with census() as peak:
        played = ground.play(starts_four_hundred_threads, {"seconds": 0.7})
    return played.outcome(f"one rubric had {peak.threads} threads" if peak.threads >= 400 else None)


def multiplies_its_address_space(_plan: Plan) -> str:
    import mmap
    import os
    import signal
    import time

    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            # Asked for and never touched, so that the machine does not notice.
            held = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
            time.sleep(5)
            os._exit(len(held) & 1)
        children.append(child)
    time.sleep(1)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return "held"


@confined_attack("memory_limit_multiplied")
def memory_limit_multiplied(ground: Ground) -> Outcome:
    with census() as peak:
        played = ground.play(multiplies_its_address_space)
    much = peak.address_space >= 3 << 30
    return played.outcome("it holds more memory than one rubric may have" if much else None)


def hides_memory_in_files_without_a_name(_plan: Plan) -> str:
    import mmap
    import os
    import time

    held = []
    for _ in range(17):
        file = first_that_works(
            [
                lambda: os.memfd_create("hoard"),
                lambda: system_call("memfd_secret", 0),
                lambda: os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR),
            ]
        )
        os.ftruncate(file, 32 << 20)
        area = mmap.mmap(file, 32 << 20)
        area[:: mmap.PAGESIZE] = bytes(len(area) // mmap.PAGESIZE)
        held.append(area)
    time.sleep(0.7)
    return str(len(held))


@confined_attack("memory_in_files_without_a_name")
def memory_in_files_without_a_name(ground: Ground) -> Outcome:
    with census() as peak:
        played = ground.play(hides_memory_in_files_without_a_name)
    much = peak.shared >= 512 * MIB
    return played.outcome("half a gigabyte is held that no limit of memory counts" if much else None)


def needs_some_threads(_plan: Plan) -> str:
    import threading
    import time

    started = 0
    for _ in range(15):
        threads = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(8)]
        for thread in threads:
            thread.start()
            started += 1
        for thread in threads:
            thread.join()
        time.sleep(0.05)
    return str(started)


@confined_attack("threads_of_a_sibling")
def threads_of_a_sibling(ground: Ground) -> Outcome:
    played = ground.play_together(starts_four_hundred_threads, needs_some_threads, {"seconds": 2})
    harm = None if played.loot("other") == "120" else f"the case beside it failed: {played.refusal('other')}"
    return played.outcome(harm, "one")


def computes_in_every_thread(plan: Plan) -> str:
    import hashlib
    import threading
    import time

    def compute(end: float) -> None:
        while time.monotonic() < end:
            # Without the lock of the interpreter: they do compute side by side.
            hashlib.pbkdf2_hmac("sha256", b"x", b"x", 20_000)

    threading.stack_size(32 << 10)
    end = time.monotonic() + plan["seconds"]
    started = 0
    try:
        while started < 125:
            threading.Thread(target=compute, args=(end,)).start()
            started += 1
    except RuntimeError:
        pass
    return str(started)


def has_work_to_do(plan: Plan) -> str:
    import time

    while time.process_time() < plan["work"]:
        pass
    return "done"


@confined_attack("time_of_the_case_beside")
def time_of_the_case_beside(ground: Ground) -> Outcome:
    deeds = {"one": computes_in_every_thread, "other": has_work_to_do}
    rubric = rubric_of(deeds, {"seconds": 4, "work": 1.3})
    other = CaseFiles("other", fields={"rubric_wall_clock_seconds": 2})
    # On one processor, so that there is nothing else to be had.
    with one_processor():
        played = ground.run(rubric, ("one", other, HONEST), concurrency=3)
    met = what_it_met(played.score("other"))
    return played.outcome(None if met == "passed" else f"the case beside it met {met}", "one")


_ANOTHER_RUN = """\
import sys
from pathlib import Path
from tests.support.benches import CaseFiles
from tests.hostile.confined.resources import has_work_to_do
from tests.hostile.engine.ground import Ground, rubric_of
room, isolation, spawn = sys.argv[1:]
cases = [CaseFiles(name, fields={"rubric_wall_clock_seconds": 1}) for name in ("one", "two", "three")]
rubric = rubric_of({case.case_id: has_work_to_do for case in cases}, {"work": 0.5})
played = Ground(Path(room), isolation, spawn).run(rubric, cases, concurrency=2)
print([case.case_id for case in cases if not played.score(case.case_id).passed])
"""


@confined_attack("time_of_another_run")
def time_of_another_run(ground: Ground) -> Outcome:
    room = ground.room / "another"
    room.mkdir()
    argv = [sys.executable, "-c", _ANOTHER_RUN, str(room), ground.isolation, ground.spawn]
    with one_processor():
        another = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        played = ground.play_together(computes_in_every_thread, computes_in_every_thread, {"seconds": 5})
        lost = another.communicate(timeout=120)[0].strip()
    return played.outcome(None if lost == "[]" else f"the other run lost {lost or 'everything'}", "one")


def fills_the_disk(_plan: Plan) -> str:
    import contextlib
    import os

    with contextlib.suppress(OSError):
        for number in range(20):
            with open(f"large-{number}", "wb", buffering=0) as file:
                file.writelines(bytes(1 << 20) for _ in range(10))
    return str(sum(os.stat(name).st_blocks * 512 for name in os.listdir(".") if name.startswith("large-")))


@confined_attack("disk_filled_file_by_file")
def disk_filled_file_by_file(ground: Ground) -> Outcome:
    played = ground.play(fills_the_disk)
    written = int(played.loot() or 0)
    return played.outcome(f"{written // MIB} MiB are written" if written > 180 * MIB else None)


def makes_many_files(_plan: Plan) -> str:
    import contextlib
    import os

    made = 0
    with contextlib.suppress(OSError):
        for place in range(16):
            os.mkdir(f"many-{place}")
            for number in range(500):
                os.close(os.open(f"many-{place}/{number}", os.O_CREAT | os.O_WRONLY))
                made += 1
    return str(made)


@confined_attack("inodes_used_up")
def inodes_used_up(ground: Ground) -> Outcome:
    played = ground.play(makes_many_files)
    made = int(played.loot() or 0)
    return played.outcome(f"{made} files are made" if made >= 8_000 else None)


def unpacks_a_bomb(_plan: Plan) -> str:
    import contextlib
    import io
    import os
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("bomb", bytes(25 << 20))
    with contextlib.suppress(OSError), zipfile.ZipFile(packed) as archive:
        for number in range(6):
            archive.extract("bomb", f"unpacked-{number}")
    places = [f"unpacked-{number}/bomb" for number in range(6)]
    return str(sum(os.stat(place).st_size for place in places if os.path.exists(place)))


@confined_attack("archive_that_grows")
def archive_that_grows(ground: Ground) -> Outcome:
    played = ground.play(unpacks_a_bomb)
    written = int(played.loot() or 0)
    return played.outcome(f"an archive grew to {written // MIB} MiB" if written >= 150 * MIB else None)


def leaves_a_large_segment(plan: Plan) -> str:
    system_call("shmget", plan["key"], 64 << 20, 0o1600)
    return "left"


@confined_attack("memory_left_behind")
def memory_left_behind(ground: Ground) -> Outcome:
    key = hash(str(ground.room)) & 0x7FFFFFFF
    played = ground.play(leaves_a_large_segment, {"key": key})
    try:
        system_call("shmctl", system_call("shmget", key, 0, 0), 0, 0)
    except FileNotFoundError:
        return played.outcome(None)
    return played.outcome("64 MiB of shared memory outlived the run")


def leaves_a_daemon_nobody_knows(plan: Plan) -> str:
    import os
    import signal
    import sys
    import time

    program = """\
import os, sys, time
end = time.monotonic() + 15
with open(sys.argv[1], "ab", buffering=0) as file:
    file.write(b"%d\\n" % os.getpid())
    while time.monotonic() < end:
        file.write(b".")
        time.sleep(0.01)
"""
    supervisor = os.getppid()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            # A new program with nothing of the old environment; standard output stays open.
            os.chdir("/")
            argv = [sys.executable, "-S", "-c", program, plan["beats"]]
            os.execve(argv[0], argv, {})  # noqa: S606 - that is the attack
        os._exit(0)
    while not os.path.exists(plan["beats"]):
        time.sleep(0.01)
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(5)
    return "left"


@confined_attack("daemon_without_a_supervisor")
def daemon_without_a_supervisor(ground: Ground) -> Outcome:
    beats = ground.room / "beats"
    played = ground.play(leaves_a_daemon_nobody_knows, {"beats": str(beats)})
    return played.outcome(still_beats(beats))


def stops_its_supervisor_and_stays(_plan: Plan) -> str:
    import contextlib
    import ctypes
    import os
    import signal
    import time

    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # no signal when the parent dies
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(60)
    return "stayed"


_HARNESS = """\
import sys
from pathlib import Path
from tests.hostile.confined.resources import stops_its_supervisor_and_stays
from tests.hostile.engine.ground import Ground
room, isolation, spawn = sys.argv[1:]
cases = {"hostile": stops_its_supervisor_and_stays}
Ground(Path(room), isolation, spawn).play_cases(cases, concurrency=1)
"""


@confined_attack("rubric_that_outlives_the_harness")
def rubric_that_outlives_the_harness(ground: Ground) -> Outcome:
    # The way is asked for first, in this process: a class that is not there is not an attack that fails.
    (ground.room / "rehearsal").mkdir()
    Ground(ground.room / "rehearsal", ground.isolation, ground.spawn).play_cases({})
    argv = [sys.executable, "-c", _HARNESS, str(ground.room), ground.isolation, ground.spawn]
    harness = subprocess.Popen(argv, cwd=ROOT, start_new_session=True)
    try:
        below = _at_work(harness, 30 if ground.isolation == "subprocess" else 3)
    finally:
        harness.kill()
        harness.wait()
    left = all_gone(below, 20)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return Outcome("passed", "it works on without a harness" if left else None)


def _at_work(harness: "subprocess.Popen[bytes]", seconds: float) -> set[int]:
    """Wait until a process was stopped, or for so long that one would have been."""
    deadline = time.monotonic() + 60
    while not descendants(harness.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    deadline = time.monotonic() + seconds
    while not any(state(pid) == "T" for pid in descendants(harness.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert harness.poll() is None, "the harness ended by itself"
    return descendants(harness.pid)
