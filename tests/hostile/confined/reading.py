"""Rubrics that look for what is not theirs on the disk: keys, answers, sources, and what is there at all."""

import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pydantic

from codegenie.eval import limits
from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import first_that_works, patiently, system_call
from tests.support.benches import TASK_CLASS


def private(file: Path, content: str) -> Path:
    """Write a file that only its owner may read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(content, encoding="utf-8")
    return file


def reads_a_file(plan: Plan) -> str:
    with open(plan["file"], encoding="utf-8") as file:
        return file.read(100)


@confined_attack("key_in_the_home_directory")
def key_in_the_home_directory(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    file = private(ground.room / "home" / ".ssh" / "id_ed25519", secret)
    played = ground.play(reads_a_file, {"file": str(file)})
    return played.outcome("it read a private key" if played.loot() == secret else None)


def goes_through_the_root_of_the_harness(plan: Plan) -> str:
    def through(door: str) -> str:
        with open(f"/proc/{door}/root{plan['file']}", encoding="utf-8") as file:
            return file.read(100)

    # The last three are what a half-made sandbox leaves: its own view, and its first process's.
    doors = [str(plan["pid"]), "1", "self", "thread-self"]
    found: str = first_that_works([lambda door=door: through(door) for door in doors])  # type: ignore[misc]
    return found


@confined_attack("files_through_the_root_of_the_harness")
def files_through_the_root_of_the_harness(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    file = private(ground.room / "home" / ".netrc", secret)
    plan = {"pid": os.getpid(), "file": str(file)}
    played = ground.play(goes_through_the_root_of_the_harness, plan)
    return played.outcome("it read a file by way of the harness" if played.loot() == secret else None)


def hashes_a_file(plan: Plan) -> str:
    import hashlib

    with open(plan["file"], "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _hash_read(ground: Ground, file: Path, harm: str) -> Outcome:
    played = ground.play(hashes_a_file, {"file": str(file)})
    told = hashlib.sha256(file.read_bytes()).hexdigest() == played.loot()
    return played.outcome(harm if told else None)


@confined_attack("source_of_the_harness")
def source_of_the_harness(ground: Ground) -> Outcome:
    return _hash_read(ground, Path(limits.__file__), "it read the source of what judges it")


@confined_attack("installed_package_read")
def installed_package_read(ground: Ground) -> Outcome:
    # Where the library keeps packages below itself, one of those: a rule for the library covers them, too.
    library = Path(os.__file__).parent
    installed = sorted(
        file for place in ("site-packages", "dist-packages") for file in library.glob(f"{place}/*/*.py")
    )
    package = next(iter(installed), Path(pydantic.__file__))
    return _hash_read(ground, package, "it read a package that somebody installed")


@confined_attack("accounts_of_the_machine")
def accounts_of_the_machine(ground: Ground) -> Outcome:
    return _hash_read(ground, Path("/etc/passwd"), "it read who has an account")


@confined_attack("answer_of_another_case")
def answer_of_another_case(ground: Ground) -> Outcome:
    answer = ground.room / "bench" / TASK_CLASS / "cases" / "honest" / "expected" / "answer.txt"
    played = ground.play(reads_a_file, {"file": str(answer)})
    return played.outcome("it read what another case expects" if played.loot() == "it is honest" else None)


def walks_around(plan: Plan) -> str | None:
    import os

    # Up from where it stands, as far as the temporary directory of the run, and down again.
    above = [os.path.abspath("/".join([".."] * level)) for level in range(1, 5)]
    for start in [*above, plan["place"]]:
        for place, _, files in os.walk(start) if start != "/" else ():
            if "answer-key.txt" in files:
                with open(f"{place}/answer-key.txt", encoding="utf-8") as file:
                    return file.read(100)
    return None


@confined_attack("answers_searched_from_where_it_stands")
def answers_searched_from_where_it_stands(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    private(ground.room / "repository" / "old" / "answer-key.txt", secret)
    played = ground.play(walks_around, {"place": str(ground.room)})
    return played.outcome("it found an answer key in the repository" if played.loot() == secret else None)


def reads_beside_it(_plan: Plan) -> str | None:
    import os

    def look() -> str | None:
        for name in os.listdir(".."):
            with open(f"../{name}/expected/answer.txt", encoding="utf-8") as file:
                text = file.read(100)
            if text == "it is other":
                return text
        return None

    found: str | None = patiently(look)
    return found


def judges_for_two_seconds(_plan: Plan) -> str:
    import time

    time.sleep(2.2)
    return "judged"


@confined_attack("directory_of_a_sibling_read")
def directory_of_a_sibling_read(ground: Ground) -> Outcome:
    played = ground.play_together(reads_beside_it, judges_for_two_seconds)
    told = played.loot("one") == "it is other"
    return played.outcome("it read what lies in the directory of a sibling" if told else None, "one")


def imports_from_outside(plan: Plan) -> str:
    import sys

    sys.path.insert(0, plan["place"])
    try:
        module = __import__("helper_of_the_day")
    except ImportError as error:
        raise OSError(str(error)) from None
    return str(module.VERDICT)


@confined_attack("code_outside_the_digest")
def code_outside_the_digest(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    private(ground.room / "lib" / "helper_of_the_day.py", f"VERDICT = {secret!r}\n")
    played = ground.play(imports_from_outside, {"place": str(ground.room / "lib")})
    return played.outcome("it ran code that no digest covers" if played.loot() == secret else None)


def links_a_file_into_its_own_directory(plan: Plan) -> str:
    import os

    os.link(plan["file"], "mine")
    with open("mine", encoding="utf-8") as file:
        return file.read(100)


@confined_attack("hard_link_to_a_file_outside")
def hard_link_to_a_file_outside(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    file = private(ground.room / "home" / "notes", secret)
    played = ground.play(links_a_file_into_its_own_directory, {"file": str(file)})
    return played.outcome("it made a file of somebody else its own" if played.loot() == secret else None)


def measures_a_file(plan: Plan) -> str:
    import os

    def by_opening_nothing() -> int:
        return os.fstat(os.open(plan["file"], os.O_PATH)).st_size

    return str(first_that_works([lambda: os.stat(plan["file"]).st_size, by_opening_nothing]))


@confined_attack("size_of_a_file_outside")
def size_of_a_file_outside(ground: Ground) -> Outcome:
    size = 1_000 + secrets.randbelow(100_000)
    file = private(ground.room / "home" / "diary", "x" * size)
    played = ground.play(measures_a_file, {"file": str(file)})
    return played.outcome(
        "it knows that a file exists and how large it is" if played.loot() == str(size) else None
    )


def reads_a_link(plan: Plan) -> str:
    import os

    return str(os.readlink(plan["link"]))


@confined_attack("target_of_a_link_outside")
def target_of_a_link_outside(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    link = ground.room / "lock"
    link.symlink_to(secret)
    played = ground.play(reads_a_link, {"link": str(link)})
    return played.outcome("it knows where a link of its user leads" if played.loot() == secret else None)


def lists_a_directory(plan: Plan) -> str:
    import os

    return " ".join(os.listdir(plan["place"]))


@confined_attack("names_in_a_directory_outside")
def names_in_a_directory_outside(ground: Ground) -> Outcome:
    name = secrets.token_hex(16)
    private(ground.room / "home" / name, "")
    played = ground.play(lists_a_directory, {"place": str(ground.room / "home")})
    return played.outcome("it lists somebody's files" if played.loot() == name else None)


def watches_a_directory(plan: Plan) -> str | None:
    import os

    watcher = system_call("inotify_init1", os.O_NONBLOCK)
    system_call("inotify_add_watch", watcher, plan["place"].encode() + b"\0", 0x100)  # IN_CREATE
    seen: bytes | None = patiently(lambda: os.read(watcher, 4096))
    return seen[16:].partition(b"\0")[0].decode() if seen else None


@contextmanager
def busy_operator(place: Path) -> Iterator[str]:
    """Make and remove a file over and over, under a name that nobody can guess."""
    place.mkdir()
    name, done = secrets.token_hex(16), threading.Event()

    def work() -> None:
        while not done.wait(0.01):
            with contextlib.suppress(OSError):
                (place / name).touch()
                (place / name).unlink()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield name
    finally:
        done.set()
        thread.join()


@confined_attack("directory_outside_watched")
def directory_outside_watched(ground: Ground) -> Outcome:
    with busy_operator(ground.room / "work") as name:
        played = ground.play(watches_a_directory, {"place": str(ground.room / "work")})
    return played.outcome("it watches what somebody works on" if played.loot() == name else None)


def reads_by_io_uring(plan: Plan) -> str:
    import ctypes
    import mmap
    import os
    import struct

    # The kernel opens and reads on behalf of the ring: a filter sees neither call.
    parameters = ctypes.create_string_buffer(120)
    ring = system_call("io_uring_setup", 4, parameters)
    words = struct.unpack("30I", parameters.raw)
    entries, submission, completion = words[0], words[10:20], words[20:30]
    rings = mmap.mmap(ring, 4096, offset=0)
    results = mmap.mmap(ring, 4096, offset=0x8000000)
    requests = mmap.mmap(ring, entries * 64, offset=0x10000000)

    def submit(code: int, descriptor: int, address: int, length: int) -> int:
        tail = struct.unpack_from("I", rings, submission[1])[0]
        slot = tail & struct.unpack_from("I", rings, submission[2])[0]
        requests[slot * 64 : slot * 64 + 64] = struct.pack(
            "BBHiQQI36x", code, 0, 0, descriptor, 0, address, length
        )
        struct.pack_into("I", rings, submission[6] + 4 * slot, slot)
        struct.pack_into("I", rings, submission[1], tail + 1)
        system_call("io_uring_enter", ring, 1, 1, 1, 0, 0)
        head = struct.unpack_from("I", results, completion[0])[0]
        place = completion[5] + 16 * (head & struct.unpack_from("I", results, completion[2])[0])
        result: int = struct.unpack_from("i", results, place + 8)[0]
        struct.pack_into("I", results, completion[0], head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result), "io_uring")
        return result

    path, text = ctypes.create_string_buffer(plan["file"].encode()), ctypes.create_string_buffer(100)
    opened = submit(18, -100, ctypes.addressof(path), 0)  # IORING_OP_OPENAT
    length = submit(22, opened, ctypes.addressof(text), 100)  # IORING_OP_READ
    return text.raw[:length].decode()


@confined_attack("file_read_by_io_uring")
def file_read_by_io_uring(ground: Ground) -> Outcome:
    secret = secrets.token_hex(16)
    file = private(ground.room / "home" / "token", secret)
    played = ground.play(reads_by_io_uring, {"file": str(file)})
    return played.outcome("the kernel read a file for it" if played.loot() == secret else None)
