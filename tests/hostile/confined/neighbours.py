"""Rubrics that reach for other processes of their user: signals, limits, priorities, and who is there."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from tests.hostile.attackers.hostile_bench import HONEST, what_it_met
from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.neighbour import neighbour
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way, first_that_works, patiently, system_call
from tests.support.benches import canonical_score


def signals_the_harness(plan: Plan) -> str:
    import os
    import signal
    import struct

    pid, number = plan["pid"], int(signal.SIGUSR1)
    queued = struct.pack("iiiiii104x", number, 0, -1, 0, os.getpid(), os.getuid())
    first_that_works(
        [
            lambda: os.kill(pid, number),
            lambda: system_call("pidfd_send_signal", system_call("pidfd_open", pid, 0), number, 0, 0),
            lambda: system_call("tkill", pid, number),
            lambda: system_call("tgkill", pid, pid, number),
            lambda: system_call("rt_sigqueueinfo", pid, number, queued),
            lambda: system_call("rt_tgsigqueueinfo", pid, pid, number, queued),
        ]
    )
    return "sent"


@confined_attack("signal_to_the_harness")
def signal_to_the_harness(ground: Ground) -> Outcome:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    try:
        played = ground.play(signals_the_harness, {"pid": os.getpid()})
    finally:
        signal.signal(signal.SIGUSR1, before)
    return played.outcome("the harness was interrupted" if heard else None)


def stops_a_process(plan: Plan) -> str:
    import os
    import signal

    os.kill(plan["pid"], signal.SIGSTOP)
    return "stopped"


@confined_attack("neighbour_stopped")
def neighbour_stopped(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(stops_a_process, {"pid": victim.pid})
        stopped = victim.state == "T"
    return played.outcome("it stopped a process of the user" if stopped else None)


def kills_a_group(plan: Plan) -> str:
    import os
    import signal

    os.killpg(plan["pid"], signal.SIGKILL)
    return "killed"


@confined_attack("group_of_processes_killed")
def group_of_processes_killed(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(kills_a_group, {"pid": victim.pid})
        killed = not victim.memory
    return played.outcome("it killed a process group of the user" if killed else None)


def has_the_kernel_send_a_signal(plan: Plan) -> str:
    import fcntl
    import os
    import signal

    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, plan["pid"])
    fcntl.fcntl(reading, 10, signal.SIGTERM)  # F_SETSIG
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writing, b"x")
    return "written"


@confined_attack("signal_by_a_descriptor")
def signal_by_a_descriptor(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(has_the_kernel_send_a_signal, {"pid": victim.pid})
        killed = not victim.memory
    return played.outcome("the kernel ended a process for it" if killed else None)


def kills_whoever_works_beside_it(plan: Plan) -> str | None:
    import contextlib
    import os
    import signal

    def others() -> list[int]:
        if os.getppid() == 1 and not os.path.isdir("/proc/1"):
            # Numbers of a namespace of its own: nobody outside has one.
            return [pid for pid in range(2, 64) if pid != os.getpid()]
        found = []
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            # Beside it, and not in another test that runs at this moment.
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cwd/expected/answer.txt", "rb") as file:
                if file.read() == b"it is other" and os.readlink(f"/proc/{pid}/cwd").startswith(plan["room"]):
                    found.append(pid)
        return found

    def attempt() -> int:
        killed = 0
        for pid in others():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    return f"killed {killed}" if (killed := patiently(attempt)) else None


def judges_slowly(_plan: Plan) -> str:
    import time

    time.sleep(2.5)
    return "judged"


@confined_attack("sibling_killed")
def sibling_killed(ground: Ground) -> Outcome:
    played = ground.play_together(kills_whoever_works_beside_it, judges_slowly, {"room": str(ground.room)})
    met = what_it_met(played.score("other"))
    harm = None if met == "passed" else f"the case beside it met {met}"
    return Outcome(what_it_met(played.score("one")), harm, canonical_score(played.score(HONEST)))


def lowers_a_limit(plan: Plan) -> str:
    import resource

    resource.prlimit(plan["pid"], resource.RLIMIT_NOFILE, (3, 3))
    return "lowered"


@confined_attack("limit_of_a_neighbour_lowered")
def limit_of_a_neighbour_lowered(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(lowers_a_limit, {"pid": victim.pid})
        lowered = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE) == (3, 3)
    return played.outcome("a process of the user cannot open files any more" if lowered else None)


def slows_a_process(plan: Plan) -> str:
    import os

    every_way(
        [
            lambda: os.setpriority(os.PRIO_PROCESS, plan["pid"], 19),
            lambda: os.setpriority(os.PRIO_PGRP, plan["pid"], 19),
            lambda: os.sched_setscheduler(plan["pid"], os.SCHED_IDLE, os.sched_param(0)),
        ]
    )
    return "tried"


@confined_attack("neighbour_slowed")
def neighbour_slowed(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(slows_a_process, {"pid": victim.pid})
        nice = os.getpriority(os.PRIO_PROCESS, victim.pid)
        policy = os.sched_getscheduler(victim.pid)
    slowed = nice == 19 or policy == os.SCHED_IDLE
    return played.outcome("a process of the user runs when nobody else wants to" if slowed else None)


def pins_a_process(plan: Plan) -> str:
    import os

    os.sched_setaffinity(plan["pid"], {plan["processor"]})
    return "pinned"


@confined_attack("neighbour_pinned")
def neighbour_pinned(ground: Ground) -> Outcome:
    processors = os.sched_getaffinity(0)
    with neighbour() as victim:
        os.sched_setaffinity(victim.pid, processors)
        played = ground.play(pins_a_process, {"pid": victim.pid, "processor": min(processors)})
        pinned = os.sched_getaffinity(victim.pid) != processors
    return played.outcome("a process of the user is bound to one processor" if pinned else None)


def offers_a_process_to_the_killer(plan: Plan) -> str:
    with open(f"/proc/{plan['pid']}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    return "offered"


@confined_attack("neighbour_first_to_die")
def neighbour_first_to_die(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(offers_a_process_to_the_killer, {"pid": victim.pid})
        offered = Path(f"/proc/{victim.pid}/oom_score_adj").read_text(encoding="ascii").strip() == "1000"
    return played.outcome("a process of the user dies first when memory is short" if offered else None)


def tells_the_living_from_the_dead(plan: Plan) -> str | None:
    import os
    import time

    def answers(pid: int) -> list[int]:
        questions: list[Callable[[], object]] = [
            lambda: os.kill(pid, 0),
            lambda: os.getpgid(pid),
            lambda: os.getsid(pid),
            lambda: os.sched_getscheduler(pid),
            lambda: os.sched_getaffinity(pid),
            lambda: os.getpriority(os.PRIO_PROCESS, pid),
            lambda: time.clock_gettime((~pid << 3) | 2),
        ]
        numbers = []
        for question in questions:
            try:
                question()
                numbers.append(0)
            except OSError as error:
                numbers.append(error.errno or -1)
        return numbers

    return "told apart" if answers(plan["living"]) != answers(plan["dead"]) else None


@confined_attack("neighbours_found_by_number")
def neighbours_found_by_number(ground: Ground) -> Outcome:
    with neighbour() as gone:
        dead = gone.pid
    with neighbour() as victim:
        played = ground.play(tells_the_living_from_the_dead, {"living": victim.pid, "dead": dead})
    return played.outcome("it tells which numbers are processes of this machine" if played.loot() else None)
