"""Rubrics that use what surrounds every process: the terminal, the machine, the kernel's own calls."""

import ctypes
import os
import platform
import pty
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way, patiently, system_call


@contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """Open a terminal that somebody sits at; give our end and the path of the other."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    try:
        yield ours, os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def writes_on_the_terminal(plan: Plan) -> str:
    import fcntl
    import termios

    def types_for_the_operator(door: str) -> None:
        with open(door, "rb+", buffering=0) as theirs:
            fcntl.ioctl(theirs, termios.TIOCSTI, b"!")

    def speaks_to_the_operator(door: str) -> None:
        with open(door, "wb", buffering=0) as theirs:
            theirs.write(b"all cases passed")

    doors = [plan["terminal"], "/dev/tty"]
    every_way([lambda door=door: types_for_the_operator(door) for door in doors])  # type: ignore[misc]
    every_way([lambda door=door: speaks_to_the_operator(door) for door in doors])  # type: ignore[misc]
    return "tried"


@confined_attack("words_on_the_terminal")
def words_on_the_terminal(ground: Ground) -> Outcome:
    with terminal() as (ours, path):
        played = ground.play(writes_on_the_terminal, {"terminal": path})
        try:
            shown = os.read(ours, 4096)
        except OSError:
            shown = b""
    return played.outcome(f"the terminal shows {shown!r}" if shown else None)


def reads_from_the_terminal(plan: Plan) -> str | None:
    import os

    theirs = os.open(plan["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    typed: bytes | None = patiently(lambda: os.read(theirs, 100))
    return typed.decode().strip() if typed else None


@confined_attack("keys_of_the_operator")
def keys_of_the_operator(ground: Ground) -> Outcome:
    secret = secrets.token_hex(8)
    with terminal() as (ours, path):
        os.write(ours, secret.encode() + b"\n")
        played = ground.play(reads_from_the_terminal, {"terminal": path})
    return played.outcome("it read what the operator types" if played.loot() == secret else None)


def names_the_machine(_plan: Plan) -> str:
    import os

    return os.uname().nodename


@confined_attack("name_of_the_machine")
def name_of_the_machine(ground: Ground) -> Outcome:
    played = ground.play(names_the_machine)
    return played.outcome(
        "it knows on which machine it runs" if played.loot() == socket.gethostname() else None
    )


def says_where_it_stands(_plan: Plan) -> str:
    import os

    return os.getcwd()[-100:]


@confined_attack("place_of_the_run")
def place_of_the_run(ground: Ground) -> Outcome:
    played = ground.play(says_where_it_stands)
    told = "/tmp/codegenie-eval-" in (played.loot() or "")
    return played.outcome("it knows where the directory of this run lies" if told else None)


def says_when_the_machine_started(_plan: Plan) -> str:
    import os
    import time

    return f"{round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))} {os.uname().release}"


@confined_attack("start_of_the_machine")
def start_of_the_machine(ground: Ground) -> Outcome:
    played = ground.play(says_when_the_machine_started)
    seconds, _, release = (played.loot() or "0 none").partition(" ")
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    told = abs(int(seconds) - started) < 10 and release == platform.release()
    return played.outcome("it knows the machine by its kernel and by when it started" if told else None)


def asks_for_its_core_to_be_collected(_plan: Plan) -> str:
    import contextlib
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(ValueError, OSError):  # Python takes every refusal for one to raise it
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    return str(resource.getrlimit(resource.RLIMIT_CORE)[0])


@confined_attack("core_for_the_collector")
def core_for_the_collector(ground: Ground) -> Outcome:
    played = ground.play(asks_for_its_core_to_be_collected)
    # A collector that the kernel starts gets every core, whatever the limit is: only one byte means none.
    collected = played.loot() not in {None, "1"}
    return played.outcome("the machine would keep its memory when it crashes" if collected else None)


@contextmanager
def segment(text: bytes) -> Iterator[tuple[int, "ctypes.Array[ctypes.c_char]"]]:
    """Share memory with whoever knows its key, as a database of the user would."""
    key = 1 + secrets.randbelow(0x7FFFFFFE)
    number = system_call("shmget", key, 4096, 0o1600)
    address = system_call("shmat", number, 0, 0)
    system_call("shmctl", number, 0, 0)  # gone with the last who uses it; the key stays good while we do
    memory = (ctypes.c_char * 64).from_address(address)
    memory.value = text
    try:
        yield number, memory
    finally:
        ctypes.CDLL(None).shmdt(ctypes.c_void_p(address))


def scribbles_into_a_segment(plan: Plan) -> str:
    import ctypes

    ctypes.memmove(system_call("shmat", plan["segment"], 0, 0), b"scribbled", 9)
    return "scribbled"


@confined_attack("shared_memory_of_the_user")
def shared_memory_of_the_user(ground: Ground) -> Outcome:
    with segment(b"untouched") as (number, memory):
        played = ground.play(scribbles_into_a_segment, {"segment": number})
        changed = memory.value != b"untouched"
    return played.outcome("it changed memory that a program of its user shares" if changed else None)


@contextmanager
def kernel_key(text: bytes) -> Iterator[str]:
    """Keep a secret in the kernel, readable for its user."""
    name = secrets.token_hex(8)
    key = system_call("add_key", b"user\0", name.encode() + b"\0", text, len(text), -4)
    system_call("keyctl", 5, key, 0x3F3F0000)
    try:
        yield name
    finally:
        system_call("keyctl", 3, key)


def reads_a_kernel_key(plan: Plan) -> str:
    import ctypes

    key = system_call("keyctl", 10, -4, b"user\0", plan["name"].encode() + b"\0", 0)
    text = ctypes.create_string_buffer(16)
    system_call("keyctl", 11, key, text, 16)
    return text.raw.decode()


@confined_attack("key_of_the_user_in_the_kernel")
def key_of_the_user_in_the_kernel(ground: Ground) -> Outcome:
    secret = secrets.token_hex(8)
    with kernel_key(secret.encode()) as name:
        played = ground.play(reads_a_kernel_key, {"name": name})
    return played.outcome("it read a ticket out of the kernel" if played.loot() == secret else None)


def makes_a_world_of_its_own(_plan: Plan) -> str | None:
    import contextlib

    new_user, new_mounts, new_network = 0x10000000, 0x20000, 0x40000000
    got = []
    for name, flags in (("user", new_user), ("mounts", new_mounts), ("network", new_network)):
        with contextlib.suppress(OSError):
            system_call("unshare", flags)
            got.append(name)
    return " ".join(got)


@confined_attack("nested_namespaces")
def nested_namespaces(ground: Ground) -> Outcome:
    played = ground.play(makes_a_world_of_its_own)
    got = played.loot()
    return played.outcome(f"it is root in namespaces of its own: {got}" if got else None)


def calls_like_an_old_program(plan: Plan) -> str:
    import ctypes
    import mmap

    # int 0x80: another table of numbers, which a filter for this machine's own numbers does not know.
    area = mmap.mmap(-1, 4096, flags=0x62, prot=7)  # private, anonymous, below 4 GiB
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    path = plan["file"].encode() + b"\0"
    area[256 : 256 + len(path)] = path
    words = [b"\x53\xb8\x05\0\0\0\xbb", (base + 256).to_bytes(4, "little"), b"\xb9\x41\0\0\0\xba\x80\x01\0\0"]
    code = b"".join([*words, b"\xcd\x80\x5b\xc3"])  # open(path, O_CREAT | O_WRONLY, 0600)
    area[: len(code)] = code
    return str(ctypes.CFUNCTYPE(ctypes.c_int)(base)())


@confined_attack("calls_of_another_architecture")
def calls_of_another_architecture(ground: Ground) -> Outcome:
    (ground.room / "home").mkdir()
    (ground.room / "home").chmod(0o777)
    made = ground.room / "home" / "made"
    played = ground.play(calls_like_an_old_program, {"file": str(made)})
    return played.outcome("a file was made by a call that no table of ours names" if made.exists() else None)


RARE = (
    "ptrace", "syslog", "pivot_root", "chroot", "acct", "mount", "swapon", "reboot", "sethostname",
    "init_module", "quotactl", "kexec_load", "add_key", "request_key", "keyctl", "migrate_pages",
    "unshare", "move_pages", "perf_event_open", "fanotify_init", "open_by_handle_at", "setns",
    "process_vm_readv", "process_vm_writev", "kcmp", "memfd_create", "bpf", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "open_tree", "fsopen", "pidfd_open", "pidfd_getfd",
    "pidfd_send_signal", "process_madvise", "mount_setattr", "memfd_secret", "shmget", "semget",
    "msgget", "mq_open", "inotify_init1", "personality",
)  # fmt: skip


def tries_rare_calls(plan: Plan) -> str:
    import errno

    answered = []
    for name in plan["names"]:
        # Nothing but nonsense is asked: what counts is whether the kernel looks at it at all.
        try:
            system_call(name, -1, *([0] if name == "msgget" else [-1] * 5))  # a queue would really be made
        except OSError as error:
            if error.errno in {errno.EPERM, errno.ENOSYS}:
                continue
        answered.append(name)
    return f"{len(answered)}: {' '.join(answered)}" if answered else ""


@confined_attack("rare_system_calls")
def rare_system_calls(ground: Ground) -> Outcome:
    played = ground.play(tries_rare_calls, {"names": RARE})
    return played.outcome(
        f"the kernel looked at calls that no rubric needs, {got}" if (got := played.loot()) else None
    )
