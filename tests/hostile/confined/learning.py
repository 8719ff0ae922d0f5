"""Rubrics that learn of the machine and of the run what is not said to them, or leave what is not theirs."""

import contextlib
import ctypes
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from tests.hostile.engine.census import descendants
from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome, files_that_hold
from tests.hostile.engine.tools import first_that_works, system_call

Seen = TypeVar("Seen")


def searches_its_memory_for_the_run(_plan: Plan) -> str | None:
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    reading, writing = os.pipe()
    page = 4096

    def page_at(address: int) -> bytes:
        # The kernel says of an address whether it can be read, where reading it would be the end.
        if library.write(writing, ctypes.c_void_p(address), page) != page:
            return b""
        return os.read(reading, page)

    def where(content: bytes) -> str | None:
        # Its own words are in its memory too, so the second half of the name is compared backwards.
        place = content.find(b"/codegenie")
        while place >= 0:
            place += 10
            if content[place : place + 6][::-1] == b"-lave-":
                return content[place - 30 : place + 14].decode("latin-1")
            place = content.find(b"/codegenie", place)
        return None

    large = ctypes.create_string_buffer(100_000)
    here = [id(page_at), id(os), id(object()), id(os.environ), ctypes.addressof(large)]
    pages = {at & ~(page - 1) for start in here for at in range(start - (16 << 20), start + (16 << 20), page)}
    found = (where(page_at(address)) for address in sorted(pages))
    return next((text for text in found if text), None)


@confined_attack("path_of_the_run_in_memory")
def path_of_the_run_in_memory(ground: Ground) -> Outcome:
    played = ground.play(searches_its_memory_for_the_run)
    return played.outcome("it knows where the directory of this run lies" if played.loot() else None)


def numbers_it_can_find(_plan: Plan) -> str:
    import ctypes
    import os
    import threading

    # What the C library remembers of this thread, in the first words of its description.
    words = list((ctypes.c_int32 * 256).from_address(threading.get_ident()))
    found = [os.getppid(), threading.main_thread().native_id or 0, *words]
    # Its own number is told to everybody; only large ones can be those of the host.
    numbers = {number for number in found if 300 < number < 1 << 22 and number != os.getpid()}
    return " ".join(map(str, sorted(numbers)[:20])) or "none"


@contextmanager
def below_us(look: Callable[[int], Seen]) -> Iterator[set[Seen]]:
    """Collect what `look` sees of every process of a run, by the number that it has on the host."""
    found: set[Seen] = set()
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.02):
            for number in descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    found.add(look(number))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@confined_attack("number_of_its_supervisor")
def number_of_its_supervisor(ground: Ground) -> Outcome:
    with below_us(int) as numbers:
        played = ground.play(numbers_it_can_find)
    said = {int(word) for word in (played.loot() or "").split() if word.isdigit()}
    return played.outcome("it knows a process of the harness by its number" if said & numbers else None)


def asks_for_the_load(_plan: Plan) -> str:
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    said = (ctypes.c_ulong * 16)()
    if library.sysinfo(ctypes.byref(said)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return str(said[4])


@confined_attack("load_of_the_machine")
def load_of_the_machine(ground: Ground) -> Outcome:
    played = ground.play(asks_for_the_load)
    ours = (ctypes.c_ulong * 16)()
    ctypes.CDLL(None).sysinfo(ctypes.byref(ours))
    told_it = played.loot() == str(ours[4])
    return played.outcome("it knows how much memory this machine has" if told_it else None)


def asks_for_the_disk(_plan: Plan) -> str:
    import os

    return str(os.statvfs(os.__file__).f_blocks)


@confined_attack("disk_of_the_machine")
def disk_of_the_machine(ground: Ground) -> Outcome:
    played = ground.play(asks_for_the_disk)
    told_it = played.loot() == str(os.statvfs(os.path.realpath(os.__file__)).f_blocks)
    return played.outcome("it knows how large the disk of this machine is" if told_it else None)


def asks_for_a_cookie(_plan: Plan) -> str:
    import socket

    one, other = socket.socketpair()
    with one, other:
        return str(int.from_bytes(one.getsockopt(socket.SOL_SOCKET, 57, 8), "little"))


@confined_attack("count_of_the_sockets")
def count_of_the_sockets(ground: Ground) -> Outcome:
    played = ground.play(asks_for_a_cookie)
    one, other = socket.socketpair()
    with one, other:
        ours = int.from_bytes(one.getsockopt(socket.SOL_SOCKET, 57, 8), "little")
    # The number grows with every cookie that is asked for; each processor draws some at a time.
    told_it = abs(int(played.loot() or -(1 << 40)) - ours) < 1 << 20
    return played.outcome("it reads a number that the whole machine counts on" if told_it else None)


def asks_for_its_mount(_plan: Plan) -> str:
    import ctypes

    said = ctypes.create_string_buffer(256)
    system_call("statx", -100, b".", 0, 0x1000, said)
    return str(int.from_bytes(said.raw[0x90:0x98], "little"))


@confined_attack("count_of_the_mounts")
def count_of_the_mounts(ground: Ground) -> Outcome:
    played = ground.play(asks_for_its_mount)
    told_it = (played.loot() or "0") != "0"
    return played.outcome("it reads the number of a mount of this machine" if told_it else None)


def asks_for_the_number_of_a_pipe(_plan: Plan) -> str:
    import os

    return str(os.fstat(os.pipe()[0]).st_ino)


@confined_attack("count_of_the_pipes")
def count_of_the_pipes(ground: Ground) -> Outcome:
    ends = os.pipe()
    before = os.fstat(ends[0]).st_ino
    played = ground.play(asks_for_the_number_of_a_pipe)
    for end in ends:
        os.close(end)
    # Each processor draws 1,024 numbers at a time.
    near = abs(int(played.loot() or -(1 << 40)) - before) < 1 << 20
    return played.outcome("it reads a number that the whole machine counts on" if near else None)


def takes_a_name(plan: Plan) -> NoReturn:
    import json
    import os
    import sys

    modes = [{"code": "answer.noted", "detail": "named"}]
    answer = {"passed": True, "score": 1.0, "breakdown": {"accuracy": 1.0}, "failure_modes": modes}
    source = f"import time; time.sleep(1); print({json.dumps(json.dumps(answer))})"
    os.symlink(os.path.realpath(sys.executable), plan["name"])
    os.execv(plan["name"], [plan["name"], "-c", source])  # noqa: S606 - there is no shell in reach


def name_of(number: int) -> str:
    """Return the name of a process, as the host sees it."""
    return Path(f"/proc/{number}/comm").read_text(encoding="utf-8").strip()


@confined_attack("name_of_its_choice")
def name_of_its_choice(ground: Ground) -> Outcome:
    name = f"w{secrets.token_hex(6)}"
    with below_us(name_of) as names:
        played = ground.play(takes_a_name, {"name": name})
    return played.outcome("its process has a name of its choice" if name in names else None)


def runs_what_it_may_only_read(_plan: Plan) -> str:
    import os
    import sysconfig

    places = ["/lib64", "/lib", "/usr/lib", f"/lib/{sysconfig.get_config_var('MULTIARCH')}"]
    loaders = [
        f"{place}/{name}"
        for place in places
        if os.path.isdir(place)
        for name in ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
    ]
    objects = [f"{place}/libc.so.6" for place in places]
    # The C library is a program too: it says its name. What a rubric wrote itself would do as well.
    ways = [
        lambda loader=loader, text=text: os.execv(loader, [loader, text])  # noqa: S606 - likewise
        for loader in loaders
        for text in objects
        if os.path.exists(loader) and os.path.exists(text)
    ]
    first_that_works(ways)
    return "nothing"


@confined_attack("program_through_the_loader")
def program_through_the_loader(ground: Ground) -> Outcome:
    played = ground.play(runs_what_it_may_only_read)
    ran = files_that_hold(b"GNU C Library", ground.room / "runs")
    return played.outcome("it ran a program that it may only read" if ran else None)


def remembers_names(plan: Plan) -> str:
    import contextlib
    import os

    number = 1 + os.urandom(1)[0] % 255
    place = os.path.dirname(os.__file__)
    for bit in range(8):
        for copy in range(16) if number >> bit & 1 else ():
            with contextlib.suppress(OSError):
                os.stat(f"{place}/{plan['key']}-{bit}-{copy}")
    return str(number)


def times_names(plan: Plan) -> str:
    import os
    import time

    place = os.path.dirname(os.__file__)

    def seconds(name: str) -> int:
        path = f"{place}/{name}"
        before = time.perf_counter_ns()
        try:
            os.stat(path)
        except OSError:
            return time.perf_counter_ns() - before
        return 0

    def shortest(names: list[str]) -> int:
        # Others take the processor now and then, which makes some times longer and none shorter.
        return min(map(seconds, names))

    fresh = [f"{plan['key']}-fresh-{number}" for number in range(64)]
    shortest(fresh[:32])
    known, unknown = shortest(fresh[:32]), shortest(fresh[32:])
    limit = (known + unknown) / 2
    bits = [shortest([f"{plan['key']}-{bit}-{copy}" for copy in range(16)]) < limit for bit in range(8)]
    return str(sum(is_set << bit for bit, is_set in enumerate(bits)))


@confined_attack("note_in_names_that_do_not_exist")
def note_in_names_that_do_not_exist(ground: Ground) -> Outcome:
    plan = {"key": secrets.token_hex(12)}
    played = ground.play_in_turn(remembers_names, times_names, plan)
    wrote, read = (int(played.loot(case) or 0) for case in ("first", "then"))
    # One bit of eight may be wrong on a busy machine: whoever wants it right says it twice.
    passed_on = wrote > 0 and read > 0 and (wrote ^ read).bit_count() <= 1
    return played.outcome("the next case read the note" if passed_on else None, "first")
