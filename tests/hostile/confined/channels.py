"""Rubrics that use what the kernel shares among all processes as a slate: locks, dates, caches, counters.

As with other smuggling, both cases are judged by the same text and what is told is made up at run time.
"""

import os
import random
from pathlib import Path

from tests.hostile.confined.smuggling import key_of, smuggled, told
from tests.hostile.engine.ground import Ground, Plan, Played, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way, first_that_works, patiently


def _sources(count: int) -> list[str]:
    """Draw files of the library; whoever plays the same on this machine has drawn others."""
    library = Path(os.__file__).parent
    names = [str(file.relative_to(library)) for file in library.glob("encodings/*.py")]
    return random.sample(sorted(names), count)


def holds_locks(plan: Plan) -> str:
    import fcntl
    import os
    import time

    # The files of the interpreter are the same for both; eight of them are a byte, and the last says "now".
    number = 1 + os.urandom(1)[0] % 255
    place = os.path.dirname(os.__file__)
    held = [os.open(f"{place}/{name}", os.O_RDONLY) for name in plan["files"]]
    for bit, file in enumerate(held):
        if (number | 256) >> bit & 1:
            fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(3)
    return str(number)


def feels_locks(plan: Plan) -> str | None:
    import errno
    import fcntl
    import os

    place = os.path.dirname(os.__file__)
    *files, now = [os.open(f"{place}/{name}", os.O_RDONLY) for name in plan["files"]]

    def is_held(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EAGAIN
        fcntl.flock(file, fcntl.LOCK_UN)
        return False

    def look() -> int:
        return is_held(now) and sum(is_held(file) << bit for bit, file in enumerate(files))

    number = patiently(look, 2.5)
    return str(number) if number else None


@confined_attack("signs_by_file_locks")
def signs_by_file_locks(ground: Ground) -> Outcome:
    return told(ground, holds_locks, feels_locks, {"files": _sources(9)})


def holds_record_locks(plan: Plan) -> str:
    import fcntl
    import os
    import struct
    import time

    number = 1 + os.urandom(2)[0] % 255
    held = []

    def lock(path: str, mode: int, kind: int) -> None:
        held.append(os.open(path, mode))
        request = struct.pack("hhqqi4x", kind, 0, plan["base"] + number, 1, 0)
        fcntl.fcntl(held[-1], fcntl.F_SETLK, request)

    # A reader's lock needs no right to write, and everybody may write to this device. The place of the lock
    # is the message.
    every_way(
        [
            lambda: lock(os.__file__, os.O_RDONLY, fcntl.F_RDLCK),
            lambda: lock("/dev/null", os.O_RDWR, fcntl.F_WRLCK),
        ]
    )
    time.sleep(3)
    return str(number)


def feels_record_locks(plan: Plan) -> str | None:
    import fcntl
    import os
    import struct

    library, device = os.open(os.__file__, os.O_RDONLY), os.open("/dev/null", os.O_RDWR)

    def by_asking() -> int:
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, plan["base"], 256, 0)
        kind, _, start, _, _ = struct.unpack("hhqqi4x", fcntl.fcntl(library, fcntl.F_GETLK, ask))
        return int(start - plan["base"]) if kind != fcntl.F_UNLCK else 0

    def is_taken(number: int) -> bool:
        try:
            fcntl.fcntl(device, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, number, 1, 0))
        except BlockingIOError:
            return True
        fcntl.fcntl(device, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, number, 1, 0))
        return False

    def by_bumping_into_one() -> int:
        return next((number for number in range(1, 256) if is_taken(plan["base"] + number)), 0)

    number = patiently(lambda: first_that_works([by_asking, by_bumping_into_one]), 2.5)
    return str(number) if number else None


@confined_attack("signs_by_record_locks")
def signs_by_record_locks(ground: Ground) -> Outcome:
    plan = {"base": (key_of(ground) & 0xFFFFFF) << 8}
    return told(ground, holds_record_locks, feels_record_locks, plan)


def waits_in_places(plan: Plan) -> str:
    import ctypes
    import os
    import threading
    import time

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    file = os.open(f"{os.path.dirname(os.__file__)}/{plan['file']}", os.O_RDONLY)
    page = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0))
    number = 1 + os.urandom(1)[0] % 255

    def wait(bit: int) -> None:
        place = page + 4 * bit
        value = ctypes.c_int.from_address(place).value
        end = time.monotonic() + 3
        while time.monotonic() < end:
            limit = (ctypes.c_long * 2)(0, 200_000_000)
            libc.syscall(
                ctypes.c_long(plan["futex"]), ctypes.c_void_p(place), 0, ctypes.c_int(value), limit, None, 0
            )
            time.sleep(0.001)

    threads = [threading.Thread(target=wait, args=(bit,)) for bit in range(9) if (number | 256) >> bit & 1]
    for thread in threads:
        thread.start()
        time.sleep(0.02)  # the last one says that all others wait
    for thread in threads:
        thread.join()
    return str(number)


def wakes_who_waits(plan: Plan) -> str | None:
    import ctypes
    import os
    import time

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    file = os.open(f"{os.path.dirname(os.__file__)}/{plan['file']}", os.O_RDONLY)
    page = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0))

    def is_waited_for(bit: int) -> bool:
        # A call that wakes says how many it has woken; who was woken soon waits again.
        place = ctypes.c_void_p(page + 4 * bit)
        return bool(libc.syscall(ctypes.c_long(plan["futex"]), place, 1, 1, None, None, 0) > 0)

    def look() -> int:
        number = 0
        for _ in range(20 if is_waited_for(8) else 0):
            number |= sum(is_waited_for(bit) << bit for bit in range(8))
            time.sleep(0.01)
        return number

    number = patiently(look, 2.5)
    return str(number) if number else None


@confined_attack("signs_by_futexes")
def signs_by_futexes(ground: Ground) -> Outcome:
    (file,) = _sources(1)
    plan = {"file": file, "futex": {"x86_64": 202, "aarch64": 98}[os.uname().machine]}
    return told(ground, waits_in_places, wakes_who_waits, plan)


def dates_a_device(_plan: Plan) -> str:
    import os

    os.utime("/dev/null")
    return str(os.stat("/dev/null").st_mtime_ns)


def reads_the_date_of_a_device(_plan: Plan) -> str:
    import os

    return str(os.stat("/dev/null").st_mtime_ns)


@confined_attack("note_in_the_date_of_a_device")
def note_in_the_date_of_a_device(ground: Ground) -> Outcome:
    before = os.stat("/dev/null").st_mtime_ns
    outcome = smuggled(ground, dates_a_device, reads_the_date_of_a_device)
    changed = os.stat("/dev/null").st_mtime_ns != before
    return outcome if outcome.harm and changed else Outcome(outcome.met, None, outcome.sibling)


def keeps_some_pages(plan: Plan) -> str:
    import os

    number = 1 + os.urandom(1)[0] % 255
    place = os.path.dirname(os.__file__)
    for bit, name in enumerate(plan["files"]):
        file = os.open(f"{place}/{name}", os.O_RDONLY)
        if number >> bit & 1:
            os.read(file, 1 << 16)
        else:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return str(number)


def asks_which_pages_are_kept(plan: Plan) -> str:
    import os

    def is_kept(name: str) -> bool:
        file = os.open(f"{place}/{name}", os.O_RDONLY)
        try:
            return os.preadv(file, [bytearray(16)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False

    place = os.path.dirname(os.__file__)
    return str(sum(is_kept(name) << bit for bit, name in enumerate(plan["files"])))


@confined_attack("note_in_the_cache_of_pages")
def note_in_the_cache_of_pages(ground: Ground) -> Outcome:
    return smuggled(ground, keeps_some_pages, asks_which_pages_are_kept, {"files": _sources(8)})


def uses_up_numbers(plan: Plan) -> str:
    import threading

    for _ in range(plan["threads"]):
        thread = threading.Thread()
        thread.start()
        thread.join()
    return str(plan["threads"])


def says_how_many_numbers_are_gone(_plan: Plan) -> str:
    import os

    return str(os.getpid() - os.getppid())


@confined_attack("note_in_the_numbers_of_processes")
def note_in_the_numbers_of_processes(ground: Ground) -> Outcome:
    few, many = (_after_threads(ground, threads) for threads in (0, 6_000))
    # Where numbers start anew between the two processes, the difference is short by all that there are.
    highest = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    gone = [int(played.loot("then") or 0) % highest for played in (few, many)]
    # Other programs use up numbers too, and some of them hundreds.
    seen = gone[1] - gone[0] >= 4_000
    return many.outcome("the next case sees how many threads this one had" if seen else None, "then")


def _after_threads(ground: Ground, threads: int) -> Played:
    room = ground.room / str(threads)
    room.mkdir()
    there = Ground(room, ground.isolation, ground.spawn)
    return there.play_in_turn(uses_up_numbers, says_how_many_numbers_are_gone, {"threads": threads})
