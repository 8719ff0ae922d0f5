"""Rubrics against who starts them, and against the next case that it will start."""

import os

from tests.hostile.attackers.hostile_bench import HONEST, what_it_met
from tests.hostile.engine.ground import Deed, Ground, Plan, Played, confined_attack, rubric_of
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way, first_that_works, system_call
from tests.support.benches import CaseFiles


def _next(played: Played, fine: str | None = None) -> str | None:
    """Say what happened to the next case, if it is anything but what it should be."""
    met = what_it_met(played.score("then"))
    if met != "passed":
        return f"the next case met {met}: {played.refusal('then')}"
    return (
        None if fine is None or played.loot("then") == fine else f"the next case says {played.loot('then')}"
    )


def works(_plan: Plan) -> str:
    import json
    import os
    import threading

    thread = threading.Thread(target=json.loads, args=("[1]",))
    thread.start()
    thread.join()
    files = [os.open("rubric.py", os.O_RDONLY) for _ in range(100)]
    with open("made", "w", encoding="ascii") as file:
        file.write("x" * 100_000)
    return f"{len(files)} {sum(map(ord, 'abc'))} {json.dumps({'a': 1})}"


WORKS = '100 294 {"a": 1}'


def kills_who_started_it(_plan: Plan) -> str:
    import os
    import signal
    import time

    ways = [lambda: os.kill(os.getppid(), signal.SIGKILL), lambda: os.kill(os.getppid(), signal.SIGSTOP)]
    if os.getppid() == 1:
        # Only where it is the first process of a small world: there, everybody means nobody outside.
        ways.append(lambda: os.kill(-1, signal.SIGKILL))
    before = os.getppid()
    every_way(ways)
    time.sleep(0.3)
    if os.getppid() != before:
        time.sleep(5)
    return "tried"


@confined_attack("supervisor_killed")
def supervisor_killed(ground: Ground) -> Outcome:
    played = ground.play_in_turn(kills_who_started_it, works)
    ended = "its supervisor is dead" if "supervisor_killed" in played.refusal("first") else None
    return played.outcome(_next(played, WORKS) or ended, "first")


def reads_the_memory_of_who_started_it(_plan: Plan) -> str | None:
    import ctypes
    import os

    parent = os.getppid()

    def by_file() -> bytes:
        with open(f"/proc/{parent}/maps", encoding="utf-8") as maps:
            start, _, end = next(line for line in maps if "[heap]" in line).split()[0].partition("-")
        with open(f"/proc/{parent}/mem", "rb", buffering=0) as file:
            file.seek(int(start, 16))
            return file.read(min(int(end, 16) - int(start, 16), 4 << 20))

    def by_system_call() -> bytes:
        class Part(ctypes.Structure):
            _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

        # Who was forked knows where its parent keeps things: where it keeps them itself.
        text = ctypes.create_string_buffer(64)
        ours, theirs = Part(ctypes.addressof(text), 64), Part(id(os), 64)
        system_call("process_vm_readv", parent, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        return text.raw

    return f"{len(first_that_works([by_file, by_system_call]))} bytes"


@confined_attack("memory_of_the_supervisor")
def memory_of_the_supervisor(ground: Ground) -> Outcome:
    played = ground.play_in_turn(reads_the_memory_of_who_started_it, works)
    got = played.loot("first")
    return played.outcome(f"it read {got} of its supervisor" if got else _next(played, WORKS), "first")


def makes_the_next_one_wait_for_the_disk(_plan: Plan) -> str:
    import os

    idle = 3 << 13
    ways = [lambda: system_call("ioprio_set", 1, os.getppid(), idle)]
    if os.getppid() == 1:
        ways.append(lambda: system_call("ioprio_set", 3, os.getuid(), idle))
    every_way(ways)
    return "tried"


def says_how_it_waits_for_the_disk(_plan: Plan) -> str:
    try:
        return str(system_call("ioprio_get", 1, 0) >> 13)
    except PermissionError:
        return "not told"


@confined_attack("next_case_waits_for_the_disk")
def next_case_waits_for_the_disk(ground: Ground) -> Outcome:
    played = ground.play_in_turn(makes_the_next_one_wait_for_the_disk, says_how_it_waits_for_the_disk)
    idle = played.loot("then") == "3"
    return played.outcome("the next case reads when nobody else does" if idle else None, "first")


def makes_the_next_one_die_first(_plan: Plan) -> str:
    import os

    with open(f"/proc/{os.getppid()}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("999")
    return "offered"


def says_whether_it_dies_first(_plan: Plan) -> str:
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:
        return file.read().strip()


@confined_attack("next_case_dies_first")
def next_case_dies_first(ground: Ground) -> Outcome:
    played = ground.play_in_turn(makes_the_next_one_die_first, says_whether_it_dies_first)
    offered = played.loot("then") == "999"
    return played.outcome("the next case dies first when memory is short" if offered else None, "first")


def lowers_what_the_next_one_gets(_plan: Plan) -> str:
    import os
    import resource

    parent = os.getppid()
    ways = [
        lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (20, 20)),
        lambda: resource.prlimit(parent, resource.RLIMIT_FSIZE, (4, 4)),
        lambda: os.setpriority(os.PRIO_PROCESS, parent, 15),
        lambda: os.sched_setaffinity(parent, {min(os.sched_getaffinity(0))}),
        lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)),
    ]
    if parent == 1:
        ways.append(lambda: os.setpriority(os.PRIO_USER, os.getuid(), 15))
        ways.append(lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(1), 15))
    every_way(ways)
    return "tried"


def says_what_it_gets(plan: Plan) -> str:
    import os
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    known = []
    for question in (
        lambda: os.nice(0) == plan["nice"],
        lambda: len(os.sched_getaffinity(0)) == plan["processors"],
        lambda: os.sched_getscheduler(0) == os.SCHED_OTHER,
    ):
        try:
            known.append(question())
        except OSError:
            known.append(True)  # who is not told cannot tell
    return "as it should be" if files >= 100 and size > 4 and all(known) else f"{files} {size} {known}"


@confined_attack("next_case_gets_less")
def next_case_gets_less(ground: Ground) -> Outcome:
    plan = {"nice": os.nice(0), "processors": len(os.sched_getaffinity(0))}
    played = ground.play_in_turn(lowers_what_the_next_one_gets, says_what_it_gets, plan)
    return played.outcome(_next(played, "as it should be"), "first")


def poisons_the_interpreter(_plan: Plan) -> str:
    import atexit
    import builtins
    import gc
    import json
    import os
    import sys

    answer = '{"passed": true, "score": 1.0, "breakdown": {}, "failure_modes": []}'
    before = json.dump
    json.dumps = lambda *_a, **_k: answer
    vars(builtins)["sum"] = lambda *_a, **_k: 0
    sys.modules["threading"] = json
    sys.path.insert(0, "/tmp")
    os.environ["PYTHONPATH"] = "/tmp"
    os.register_at_fork(before=lambda: os._exit(7), after_in_child=lambda: os._exit(7))
    atexit.register(gc.collect)
    gc.disable()
    sys.setrecursionlimit(60)
    sys.stdout.flush()
    json.dump = before
    return "poisoned"


@confined_attack("interpreter_poisoned_for_the_next_case")
def interpreter_poisoned_for_the_next_case(ground: Ground) -> Outcome:
    played = ground.play_in_turn(poisons_the_interpreter, works)
    return played.outcome(_next(played, WORKS), "first")


def keeps_a_secret_in_memory(plan: Plan) -> str:
    marked = (plan["head"] + "told-" + "first").encode()
    hoard = [bytes(marked) + bytes([number]) for number in range(200)]
    return str(len(hoard))


def searches_its_own_memory(plan: Plan) -> str:
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    reading, writing = os.pipe()
    page = 4096
    # What the earlier case made up, what it was asked and what it was to judge. Its own words are in its
    # memory too, so the end of each is compared backwards and never put together.
    heads = [(plan["head"] + "told-").encode(), b"what is ", b"it is ", (plan["head"] + "control-").encode()]
    control = bytearray(heads[-1]) + bytearray(b"first")
    found: set[int] = set()

    def page_at(address: int) -> bytes:
        # The kernel says of an address whether it can be read, where reading it would be the end.
        if library.write(writing, ctypes.c_void_p(address), page) != page:
            return b""
        return os.read(reading, page)

    def look(content: bytes) -> None:
        for number, head in enumerate(heads):
            place = content.find(head)
            while place >= 0:
                place += len(head)
                if content[place : place + 5][::-1] == b"tsrif":
                    found.add(number)
                place = content.find(head, place)

    here = [id(control), id(plan), id(object()), id(os), ctypes.addressof(ctypes.c_char.from_buffer(control))]
    pages = {
        address & ~(page - 1)
        for start in here
        for address in range(start - (8 << 20), start + (8 << 20), page)
    }
    for address in sorted(pages):
        look(page_at(address))
    return f"found {sorted(found)} of {len(heads)}"


@confined_attack("earlier_case_searched_in_memory")
def earlier_case_searched_in_memory(ground: Ground) -> Outcome:
    plan = {"head": os.urandom(4).hex()}
    played = ground.play_in_turn(keeps_a_secret_in_memory, searches_its_own_memory, plan)
    found = played.loot("then") or played.refusal("then")
    assert "3] of 4" in found, f"a search that does not find its own control: {found}"
    harm = None if found == "found [3] of 4" else "it read what an earlier case had in memory"
    return played.outcome(harm, "then")


def lists_its_descriptors(_plan: Plan) -> str | None:
    import contextlib
    import os

    found = []
    for number in range(3, 1_024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(str(number))
    return " ".join(found)


@confined_attack("descriptors_of_its_supervisor")
def descriptors_of_its_supervisor(ground: Ground) -> Outcome:
    played = ground.play(lists_its_descriptors)
    got = played.loot()
    return played.outcome(f"it was given the descriptors {got}" if got else None)


def uses_up_its_descriptors(_plan: Plan) -> str:
    import os
    import socket

    held: list[object] = []
    try:
        while len(held) < 4_096:
            held.append(socket.socketpair() if len(held) % 2 else os.dup(0))
    except OSError:
        os._exit(0)
    return "all taken"


def seals_its_streams(_plan: Plan) -> str:
    import fcntl
    import os

    def bend(number: int) -> None:
        add_seals = 1033
        every_way(
            [
                lambda: os.ftruncate(number, 1 << 20) if number != 1 else None,
                lambda: fcntl.fcntl(number, fcntl.F_SETFL, os.O_APPEND),
                lambda: fcntl.fcntl(number, add_seals, 0b1111 if number != 1 else 0b0011),
            ]
        )

    for number in range(3):
        bend(number)
    return "sealed"


def floods(_plan: Plan) -> str:
    import contextlib
    import os

    with contextlib.suppress(OSError):
        for _ in range(40):
            os.write(1, b" " * (1 << 20))
            os.write(2, b" " * (1 << 20))
    os._exit(0)


def stops_itself(_plan: Plan) -> str:
    import os
    import signal

    # Again and again: on a busy machine the deadline is put off, and who waits lets it go on for that.
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def _survived(ground: Ground, deed: Deed, seconds: int = 20) -> Outcome:
    played = ground.play_cases({"first": deed, "then": works}, seconds=seconds, concurrency=1)
    return played.outcome(_next(played, WORKS), "first")


@confined_attack("all_descriptors_taken")
def all_descriptors_taken(ground: Ground) -> Outcome:
    return _survived(ground, uses_up_its_descriptors)


@confined_attack("streams_sealed")
def streams_sealed(ground: Ground) -> Outcome:
    return _survived(ground, seals_its_streams)


@confined_attack("flood_of_output")
def flood_of_output(ground: Ground) -> Outcome:
    return _survived(ground, floods)


@confined_attack("rubric_that_stops_itself")
def rubric_that_stops_itself(ground: Ground) -> Outcome:
    return _survived(ground, stops_itself, seconds=1)


def dies_as_its_case_says(_plan: Plan) -> str:
    import os
    import signal

    # The cases have no plan of their own: the name of one says how it dies.
    kind, _, number = str(case_id).partition("-")  # type: ignore[name-defined]  # noqa: F821 - the rubric's
    if kind == "exit":
        os._exit(int(number))
    signal.signal(int(number), signal.SIG_DFL) if int(number) != signal.SIGKILL else None
    os.kill(os.getpid(), int(number))
    return "alive"


DEATHS = (
    *(f"exit-{code}" for code in (1, 2, 70, 71, *range(95, 103), 119, 120, 125, 126, 127, 255)),
    *(f"signal-{number}" for number in (4, 6, 7, 8, 9, 11, 13, 14, 15, 31)),
)


@confined_attack("every_way_to_die")
def every_way_to_die(ground: Ground) -> Outcome:
    deeds: dict[str, Deed] = dict.fromkeys(DEATHS, dies_as_its_case_says)
    rubric = rubric_of(deeds, {})
    played = ground.run(rubric, (*(CaseFiles(name) for name in DEATHS), HONEST))
    met = {name: what_it_met(played.score(name)) for name in DEATHS}
    odd = [f"{name} met {what}" for name, what in met.items() if what != "rubric.malformed_output"]
    return played.outcome(f"not its own fault: {', '.join(odd)}" if odd else None, DEATHS[0])
