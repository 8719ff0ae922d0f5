"""Rubrics that reach into the harness itself: its environment, its memory and its descriptors."""

import ctypes
import hashlib
import os
import secrets
from pathlib import Path

from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.neighbour import UNTOUCHED, neighbour, our_memory
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import system_call


def reads_the_environment_of_the_harness(plan: Plan) -> str:
    import hashlib

    with open(f"/proc/{plan['pid']}/environ", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@confined_attack("environment_of_the_harness")
def environment_of_the_harness(ground: Ground) -> Outcome:
    played = ground.play(reads_the_environment_of_the_harness, {"pid": os.getpid()})
    # Its hash is enough to prove that every byte was read, and keeps the tester's own secrets out of the log.
    ours = hashlib.sha256(Path("/proc/self/environ").read_bytes()).hexdigest()
    return played.outcome("it read every variable of the harness" if played.loot() == ours else None)


def searches_every_command_line(plan: Plan) -> str | None:
    import contextlib
    import os

    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            # Others have passwords too; this one is known by how it begins.
            _, found, rest = file.read().partition(b"--password=" + plan["prefix"].encode())
            if found:
                return rest[:16].decode()
    return None


@confined_attack("arguments_of_every_process")
def arguments_of_every_process(ground: Ground) -> Outcome:
    prefix, secret = secrets.token_hex(4), secrets.token_hex(8)
    with neighbour(prefix + secret):
        played = ground.play(searches_every_command_line, {"prefix": prefix})
    return played.outcome("it found a password in somebody's arguments" if played.loot() == secret else None)


def spells_a_secret_in_its_score(plan: Plan) -> str | None:
    import json
    import os
    import sys

    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                _, found, rest = file.read().partition(b"SERVICE_PASSWORD=" + plan["prefix"].encode())
        except OSError:
            continue
        if found:
            # No text at all: two bytes of the secret are the last digits of the score.
            score = 0.5 + int(rest[:4], 16) / 1_000_000
            answer = {"passed": True, "score": score, "breakdown": {}, "failure_modes": []}
            json.dump(answer, sys.stdout)
            sys.exit(0)
    return None


@confined_attack("secret_spelled_in_a_score")
def secret_spelled_in_a_score(ground: Ground) -> Outcome:
    prefix, digits = secrets.token_hex(6), secrets.token_hex(2)
    with neighbour(prefix + digits):
        played = ground.play(spells_a_secret_in_its_score, {"prefix": prefix})
    spelled = round((played.score().score - 0.5) * 1_000_000)
    told = spelled == int(digits, 16)
    return played.outcome("a secret left in the digits of a score" if told else None)


def reads_memory(plan: Plan) -> str:
    with open(f"/proc/{plan['pid']}/mem", "rb", buffering=0) as file:
        file.seek(plan["address"])
        return file.read(16).decode()


@confined_attack("memory_of_the_harness_read")
def memory_of_the_harness_read(ground: Ground) -> Outcome:
    secret = secrets.token_hex(8)
    with our_memory(secret.encode()) as memory:
        plan = {"pid": os.getpid(), "address": ctypes.addressof(memory)}
        played = ground.play(reads_memory, plan)
    return played.outcome("it read the memory of the harness" if played.loot() == secret else None)


def writes_memory(plan: Plan) -> str:
    with open(f"/proc/{plan['pid']}/mem", "r+b", buffering=0) as file:
        file.seek(plan["address"])
        file.write(b"rewritten")
    return "written"


@confined_attack("memory_of_the_harness_written")
def memory_of_the_harness_written(ground: Ground) -> Outcome:
    with our_memory() as memory:
        played = ground.play(writes_memory, {"pid": os.getpid(), "address": ctypes.addressof(memory)})
        changed = memory.value != UNTOUCHED
    return played.outcome("it changed a value in the memory of the harness" if changed else None)


def writes_memory_by_a_system_call(plan: Plan) -> str:
    import ctypes

    class Part(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    text = ctypes.create_string_buffer(b"rewritten")
    ours = Part(ctypes.addressof(text), len(text))
    theirs = Part(plan["address"], len(text))
    system_call("process_vm_writev", plan["pid"], ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return "written"


@confined_attack("memory_written_by_a_system_call")
def memory_written_by_a_system_call(ground: Ground) -> Outcome:
    with our_memory() as memory:
        played = ground.play(
            writes_memory_by_a_system_call, {"pid": os.getpid(), "address": ctypes.addressof(memory)}
        )
        changed = memory.value != UNTOUCHED
    return played.outcome("it changed a value in the memory of the harness" if changed else None)


def traces(plan: Plan) -> str:
    import os

    attach, poke, detach = 16, 5, 17
    system_call("ptrace", attach, plan["pid"], 0, 0)
    os.waitpid(plan["pid"], 0)
    system_call("ptrace", poke, plan["pid"], plan["address"], int.from_bytes(b"poked\0\0\0", "little"))
    system_call("ptrace", detach, plan["pid"], 0, 0)
    return "poked"


@confined_attack("neighbour_traced")
def neighbour_traced(ground: Ground) -> Outcome:
    with neighbour() as victim:
        played = ground.play(traces, {"pid": victim.pid, "address": victim.address})
        changed = victim.memory != UNTOUCHED
    return played.outcome("it traced a process and changed its memory" if changed else None)


def opens_a_descriptor_of_the_harness(plan: Plan) -> str:
    with open(f"/proc/{plan['pid']}/fd/{plan['descriptor']}", "rb") as file:
        return file.read(16).decode()


@confined_attack("descriptor_of_the_harness_opened")
def descriptor_of_the_harness_opened(ground: Ground) -> Outcome:
    secret = secrets.token_hex(8)
    descriptor = os.memfd_create("secret")
    os.write(descriptor, secret.encode())
    try:
        plan = {"pid": os.getpid(), "descriptor": descriptor}
        played = ground.play(opens_a_descriptor_of_the_harness, plan)
    finally:
        os.close(descriptor)
    return played.outcome(
        "it read a file that only the harness has open" if played.loot() == secret else None
    )


def takes_a_descriptor_of_the_harness(plan: Plan) -> str:
    import os

    process = system_call("pidfd_open", plan["pid"], 0)
    os.write(system_call("pidfd_getfd", process, plan["descriptor"], 0), b"from the rubric")
    return "taken"


@confined_attack("descriptor_of_the_harness_taken")
def descriptor_of_the_harness_taken(ground: Ground) -> Outcome:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b".")
    try:
        with our_memory():
            plan = {"pid": os.getpid(), "descriptor": writing}
            played = ground.play(takes_a_descriptor_of_the_harness, plan)
        heard = os.read(reading, 100)
    finally:
        os.close(reading)
        os.close(writing)
    return played.outcome("it wrote into a pipe of the harness" if heard != b"." else None)
