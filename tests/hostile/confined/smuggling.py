"""Rubrics that tell the next case, or the one beside them, what they know.

Both cases are judged by the same text, so what is smuggled is made up at run time. The witness is the report
of the harness: the second case says what only the first one could have told it.
"""

from tests.hostile.engine.ground import Deed, Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way, patiently, system_call


def smuggled(ground: Ground, tell: Deed, hear: Deed, plan: Plan | None = None) -> Outcome:
    """Let one case tell the next one."""
    played = ground.play_in_turn(tell, hear, plan)
    said, found = played.loot("first"), played.loot("then")
    harm = "the next case knows what this one knew" if found and said == found else None
    return played.outcome(harm, "then")


def told(ground: Ground, tell: Deed, hear: Deed, plan: Plan | None = None) -> Outcome:
    """Let one case tell the one beside it."""
    played = ground.play_together(tell, hear, plan)
    said, found = played.loot("one"), played.loot("other")
    harm = "the case beside it knows what this one knows" if found and said == found else None
    return played.outcome(harm, "other")


def leaves_a_file(plan: Plan) -> str:
    import os

    token = os.urandom(8).hex()
    for place in plan["places"]:

        def leave(place: str = place) -> None:
            with open(f"{place}/{plan['name']}", "w", encoding="ascii") as file:
                file.write(token)

        every_way([leave])
    return token


def finds_a_file(plan: Plan) -> str | None:
    import contextlib
    import os

    found = None
    for place in plan["places"]:
        with contextlib.suppress(OSError):
            with open(f"{place}/{plan['name']}", encoding="ascii") as file:
                found = file.read()
            os.unlink(f"{place}/{plan['name']}")
    return found


def _by_file(ground: Ground, *places: str) -> Outcome:
    plan = {"places": places, "name": f"note-{ground.room.name}"[:100]}
    return smuggled(ground, leaves_a_file, finds_a_file, plan)


@confined_attack("note_in_the_temporary_directory")
def note_in_the_temporary_directory(ground: Ground) -> Outcome:
    return _by_file(ground, "/tmp", "/var/tmp")


@confined_attack("note_in_shared_memory")
def note_in_shared_memory(ground: Ground) -> Outcome:
    return _by_file(ground, "/dev/shm")


@confined_attack("note_beside_its_directory")
def note_beside_its_directory(ground: Ground) -> Outcome:
    # Whatever a reused sandbox would keep: above the directory of the case, and at the root of its world.
    return _by_file(ground, "..", "../..", "/box", "/dev", "/run", "/proc")


def leaves_a_segment(plan: Plan) -> str:
    import ctypes
    import os

    token = os.urandom(8).hex()
    segment = system_call("shmget", plan["key"], 4096, 0o1600)
    ctypes.memmove(system_call("shmat", segment, 0, 0), token.encode(), 16)
    return token


def finds_a_segment(plan: Plan) -> str:
    import ctypes

    segment = system_call("shmget", plan["key"], 4096, 0)
    found = ctypes.string_at(system_call("shmat", segment, 0, 0), 16).decode()
    system_call("shmctl", segment, 0, 0)  # IPC_RMID
    return found


def key_of(ground: Ground) -> int:
    """Return a number that only this play uses."""
    return hash(str(ground.room)) & 0x7FFFFFFF


@confined_attack("note_in_a_system_v_segment")
def note_in_a_system_v_segment(ground: Ground) -> Outcome:
    return smuggled(ground, leaves_a_segment, finds_a_segment, {"key": key_of(ground)})


def leaves_a_message(plan: Plan) -> str:
    import os

    token = os.urandom(8).hex()
    queue = system_call("msgget", plan["key"], 0o1600)
    system_call("msgsnd", queue, (1).to_bytes(8, "little") + token.encode(), 16, 0)
    return token


def finds_a_message(plan: Plan) -> str:
    import ctypes

    queue = system_call("msgget", plan["key"], 0)
    text = ctypes.create_string_buffer(24)
    system_call("msgrcv", queue, text, 16, 0, 0o4000)  # IPC_NOWAIT
    system_call("msgctl", queue, 0, 0)
    return text.raw[8:].decode()


@confined_attack("note_in_a_message_queue")
def note_in_a_message_queue(ground: Ground) -> Outcome:
    return smuggled(ground, leaves_a_message, finds_a_message, {"key": key_of(ground)})


def leaves_a_posix_message(plan: Plan) -> str:
    import ctypes
    import os

    token = os.urandom(8).hex()
    shape = (ctypes.c_long * 8)(0, 4, 16)
    queue = system_call("mq_open", plan["name"].encode() + b"\0", os.O_CREAT | os.O_RDWR, 0o600, shape)
    system_call("mq_timedsend", queue, token.encode(), 16, 0, 0)
    return token


def finds_a_posix_message(plan: Plan) -> str:
    import ctypes
    import os

    name = plan["name"].encode() + b"\0"
    queue = system_call("mq_open", name, os.O_RDONLY | os.O_NONBLOCK, 0, 0)
    text = ctypes.create_string_buffer(16)
    system_call("mq_timedreceive", queue, text, 16, 0, 0)
    system_call("mq_unlink", name)
    return text.raw.decode()


@confined_attack("note_in_a_posix_queue")
def note_in_a_posix_queue(ground: Ground) -> Outcome:
    return smuggled(ground, leaves_a_posix_message, finds_a_posix_message, {"name": f"q{key_of(ground)}"})


def leaves_a_key(plan: Plan) -> str:
    import os

    token = os.urandom(8).hex()
    # Into the keyring of the user; its owner may read it without possessing it.
    key = system_call("add_key", b"user\0", plan["name"].encode() + b"\0", token.encode(), 16, -4)
    system_call("keyctl", 5, key, 0x3F3F0000)
    return token


def finds_a_key(plan: Plan) -> str:
    import ctypes

    key = system_call("keyctl", 10, -4, b"user\0", plan["name"].encode() + b"\0", 0)
    text = ctypes.create_string_buffer(16)
    system_call("keyctl", 11, key, text, 16)
    system_call("keyctl", 3, key)  # KEYCTL_REVOKE
    return text.raw.decode()


@confined_attack("note_in_the_kernel_keyring")
def note_in_the_kernel_keyring(ground: Ground) -> Outcome:
    return smuggled(ground, leaves_a_key, finds_a_key, {"name": f"k{key_of(ground)}"})


def offers_it_on_loopback(plan: Plan) -> str:
    import os
    import socket

    token = os.urandom(8).hex()
    with socket.socket(plan["family"]) as ours:
        ours.bind(tuple(plan["address"]) if plan["family"] == socket.AF_INET else plan["address"])
        ours.listen()
        ours.settimeout(2)
        with ours.accept()[0] as caller:
            caller.sendall(token.encode())
    return token


def fetches_it_from_loopback(plan: Plan) -> str | None:
    import socket

    def call() -> str:
        with socket.socket(plan["family"]) as caller:
            caller.settimeout(2)
            caller.connect(tuple(plan["address"]) if plan["family"] == socket.AF_INET else plan["address"])
            return caller.recv(16).decode()

    found: str | None = patiently(call)
    return found


@confined_attack("call_on_an_abstract_name")
def call_on_an_abstract_name(ground: Ground) -> Outcome:
    plan = {"family": 1, "address": f"\0n{key_of(ground)}"}
    return told(ground, offers_it_on_loopback, fetches_it_from_loopback, plan)


@confined_attack("call_over_loopback")
def call_over_loopback(ground: Ground) -> Outcome:
    # An address of its own in 127/8, so that no port of the machine is in the way.
    key = key_of(ground)
    address = (f"127.{1 + key % 250}.{1 + key // 250 % 250}.9", 40_999)
    return told(ground, offers_it_on_loopback, fetches_it_from_loopback, {"family": 2, "address": address})
