"""Rubrics that take what the kernel counts for a whole user: others of that user go without."""

import json
import tempfile
from pathlib import Path

from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.support.ordinary_user import run_as_ordinary_user

MIB = 1 << 20


def takes_the_memory_for_pipes(_plan: Plan) -> str:
    import contextlib
    import fcntl
    import os

    held: list[int] = []
    with contextlib.suppress(OSError):
        while len(held) < 100:
            held.append(os.pipe()[1])
            with contextlib.suppress(OSError):
                fcntl.fcntl(held[-1], 1031, 1 << 20)  # F_SETPIPE_SZ
    return str(sum(fcntl.fcntl(pipe, 1032) for pipe in held))


@confined_attack("memory_for_pipes")
def memory_for_pipes(ground: Ground) -> Outcome:
    played = ground.play(takes_the_memory_for_pipes)
    taken = int(played.loot() or 0)
    # When all pipes of a user have 64 MiB, the kernel gives every new one as good as none.
    return played.outcome(f"its pipes have {taken // MIB} MiB" if taken >= 32 * MIB else None)


@confined_attack("processes_of_the_user")
def processes_of_the_user(ground: Ground) -> Outcome:
    # As a user of its own, and in a namespace: root is not counted, and others must not go without.
    with tempfile.TemporaryDirectory() as room:
        cases = ("hostile", "honest", "other")
        done = run_as_ordinary_user(
            "tests.support.crowded_user", Path(room), 130, ground.isolation, ground.spawn, *cases
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "refusal" not in found["run"], found
    lost = [name for name in cases if found["run"][name] != "passed"]
    return Outcome(found["run"]["hostile"], f"without a thread: {lost}" if lost else None)


def sends_descriptors_to_itself(_plan: Plan) -> str:
    import contextlib
    import socket

    one, _other = socket.socketpair()
    sent = 0
    with contextlib.suppress(OSError):
        while sent < 400:
            socket.send_fds(one, [b"x"], [0] * 200)
            sent += 200
    return str(sent)


@confined_attack("descriptors_in_flight")
def descriptors_in_flight(ground: Ground) -> Outcome:
    played = ground.play(sends_descriptors_to_itself)
    # The kernel counts them for the user: with enough under way no harness of that user can pass one on.
    held = int(played.loot() or 0)
    return played.outcome(f"{held} descriptors are under way" if held else None)


def lets_signals_wait(_plan: Plan) -> str:
    import contextlib
    import os
    import signal

    number = signal.SIGRTMIN + 3
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    waiting = 0
    with contextlib.suppress(OSError):
        while waiting < 2_000:
            os.kill(os.getpid(), number)
            waiting += 1
    # A signal that finds no room is not refused and not kept: only those that come back were there.
    kept = 0
    while signal.sigtimedwait([number], 0):
        kept += 1
    return str(kept)


@confined_attack("signals_that_wait")
def signals_that_wait(ground: Ground) -> Outcome:
    played = ground.play(lets_signals_wait)
    # They are counted for the user: when all are taken, no process of that user can make a timer.
    kept = int(played.loot() or 0)
    return played.outcome(f"{kept} signals wait" if kept > 1_000 else None)


def spreads_pages(_plan: Plan) -> str:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_long
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    spread = 0
    for number in range(8_000):
        # A fixed place that is free, a gigabyte and two megabytes from the one before.
        place = library.mmap((1 << 40) + number * ((1 << 30) + (1 << 21)), 4096, 3, 0x100022, -1, 0)
        if place != -1:
            ctypes.c_char.from_address(place).value = b"x"
            spread += 1
    return str(spread)


@confined_attack("memory_for_page_tables")
def memory_for_page_tables(ground: Ground) -> Outcome:
    played = ground.play(spreads_pages)
    spread = int(played.loot() or 0)
    return played.outcome(f"{spread} pages have tables of their own" if spread > 100 else None)


def moves_pages(_plan: Plan) -> str:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = library.mremap.restype = ctypes.c_long
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    sizes = [ctypes.c_size_t, ctypes.c_size_t]
    library.mremap.argtypes = [ctypes.c_void_p, *sizes, ctypes.c_int, ctypes.c_void_p]
    moved = 0
    for number in range(8_000):
        place = library.mmap(None, 4096, 3, 0x22, -1, 0)
        ctypes.c_char.from_address(place).value = b"x"
        target = (1 << 40) + number * ((1 << 30) + (1 << 21))
        moved += library.mremap(place, 4096, 4096, 3, target) == target
    return str(moved)


@confined_attack("memory_for_page_tables_by_moving")
def memory_for_page_tables_by_moving(ground: Ground) -> Outcome:
    played = ground.play(moves_pages)
    moved = int(played.loot() or 0)
    return played.outcome(f"{moved} pages have tables of their own" if moved > 100 else None)
