"""Every system call that a confined program has no business with fails, and what it needs works.

Each is made for real, with arguments that do nothing even where nobody forbids it. An error of our filter is
EPERM; a call that is not there is ENOSYS.
"""

import errno
import json
import platform
from collections.abc import Mapping

import pytest

from codegenie.eval.isolation.confinement.syscall_numbers import numbers
from codegenie.eval.models import IsolationClass, Spawn
from tests.support.confinement import each_class, each_way, run_all, run_confined
from tests.support.system_calls import REFUSED, WELL_KNOWN

MACHINE = platform.machine()
NUMBERS = numbers(WELL_KNOWN, MACHINE)

PROBE = """\
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_long
own = os.getpid()

def call(number, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    words += [ctypes.c_long(-1)] * (6 - len(words))
    result = libc.syscall(ctypes.c_long(number), *words)
    error = ctypes.get_errno() if result == -1 else 0
    if os.getpid() != own:
        os._exit(0)
    return error

found = {{}}
{calls}
print(json.dumps(found))
"""


def errors(
    isolation_class: IsolationClass, calls: Mapping[str, str], spawn: Spawn = "zygote"
) -> dict[str, int]:
    """Return the error of each call, by name; a call is what stands between the brackets of `call()`."""
    lines = "\n".join(f"found[{name!r}] = call({arguments})" for name, arguments in calls.items())
    ran = run_confined(isolation_class, PROBE.format(calls=lines), spawn)
    assert ran.way == (0, None), ran
    found: dict[str, int] = json.loads(ran.stdout)
    return found


def named(found: Mapping[str, int]) -> dict[str, str]:
    return {name: errno.errorcode.get(error, "no error") for name, error in found.items()}


@each_class
def test_what_counts_for_the_whole_machine_is_neither_taken_nor_told(isolation_class: IsolationClass) -> None:
    room = "ctypes.create_string_buffer(1024)"
    pair = "socket.socketpair()[0].detach()"
    size = "ctypes.byref(ctypes.c_int(1024))"
    page = "libc.mmap(None, 4096, 3, 0x22, -1, 0)"
    calls = {
        "sysinfo": f"{NUMBERS['sysinfo']}, {room}",
        "statfs": f"{NUMBERS['statfs']}, b'.', {room}",
        "fstatfs": f"{NUMBERS['fstatfs']}, 0, {room}",
        "statx": f"{NUMBERS['statx']}, -100, b'.', 0, 0x1000, {room}",
        "huge pages": f"{NUMBERS['mmap']}, 0, 2 << 20, 3, 0x40022, -1, 0",
        "push out": f"{NUMBERS['madvise']}, {page}, 4096, 21",
        "cookie": f"{NUMBERS['getsockopt']}, {pair}, 1, 57, {room}, {size}",
        "descriptor of the peer": f"{NUMBERS['getsockopt']}, {pair}, 1, 77, {room}, {size}",
        "kind of a socket": f"{NUMBERS['getsockopt']}, {pair}, 1, 3, {room}, {size}",
        "a hint": f"{NUMBERS['madvise']}, {page}, 4096, 4",
        "pages": f"{NUMBERS['mmap']}, 0, 2 << 20, 3, 0x22, -1, 0",
    }
    free = dict.fromkeys(("kind of a socket", "a hint", "pages"), "no error")
    assert named(errors(isolation_class, calls)) == {
        **dict.fromkeys(calls, "EPERM"),
        "statx": "ENOSYS",
        **free,
    }


@each_way
def test_every_call_that_is_on_no_list_is_refused(isolation_class: IsolationClass, spawn: Spawn) -> None:
    refused = numbers(REFUSED, MACHINE)
    # The two that make processes come last: where they are not refused, nothing comes in their child.
    last = [name for name in ("fork", "vfork") if name in refused]
    names = [*(name for name in refused if name not in last), *last]
    # A message queue is made whatever the other arguments are.
    calls = {name: f"{refused[name]}, -1, 0" if name == "msgget" else str(refused[name]) for name in names}
    found = named(errors(isolation_class, calls, spawn))

    assert len(found) > 190
    assert {name: error for name, error in found.items() if error != "EPERM"} == {}


CHECKED_CALLS = {
    "clone of a process": "{clone}, 17, 0, 0, 0, 0",
    "clone of a sibling": "{clone}, 0x8011, 0, 0, 0, 0",
    "clone into a user namespace": "{clone}, 0x10000011, 0, 0, 0, 0",
    "kill of our group by nought": "{kill}, 0, 0",
    "kill of our group by its number": "{kill}, -own, 0",
    "kill of everybody": "{kill}, -1, 0",
    "kill of the parent": "{kill}, os.getppid(), 0",
    "kill of the first process": "{kill}, 1, 0",
    "tgkill of the first process": "{tgkill}, 1, 1, 0",
    "prlimit of the parent": "{prlimit64}, os.getppid(), 7, 0, ctypes.create_string_buffer(16)",
    "prlimit of the first process": "{prlimit64}, 1, 7, 0, ctypes.create_string_buffer(16)",
    "prlimit by a number": "{prlimit64}, own, 7, 0, ctypes.create_string_buffer(16)",
    "prlimit of cores": "{prlimit64}, 0, 4, ctypes.create_string_buffer(16), 0",
    "setrlimit of cores": "{setrlimit}, 4, ctypes.create_string_buffer(16)",
    "prctl PR_SET_PDEATHSIG": "{prctl}, 1, 0, 0, 0, 0",
    "prctl PR_SET_DUMPABLE": "{prctl}, 4, 1, 0, 0, 0",
    "prctl PR_SET_KEEPCAPS": "{prctl}, 8, 0, 0, 0, 0",
    "prctl PR_SET_SECCOMP": "{prctl}, 22, 0, 0, 0, 0",
    "prctl PR_SET_TIMERSLACK": "{prctl}, 29, 50000, 0, 0, 0",
    "prctl PR_SET_CHILD_SUBREAPER": "{prctl}, 36, 1, 0, 0, 0",
    "prctl PR_CAP_AMBIENT": "{prctl}, 47, 4, 0, 0, 0",
    "prctl PR_SET_PTRACER": "{prctl}, 0x59616D61, -1, 0, 0, 0",
    "fcntl F_SETOWN": "{fcntl}, 0, 8, own",
    "fcntl F_SETSIG": "{fcntl}, 0, 10, 0",
    "fcntl F_SETOWN_EX": "{fcntl}, 0, 15, ctypes.create_string_buffer(8)",
    "fcntl F_GETLK": "{fcntl}, 0, 5, ctypes.create_string_buffer(32)",
    "fcntl F_SETLK": "{fcntl}, 0, 6, ctypes.create_string_buffer(32)",
    "fcntl F_SETLKW": "{fcntl}, 0, 7, ctypes.create_string_buffer(32)",
    "fcntl F_OFD_SETLK": "{fcntl}, 0, 37, ctypes.create_string_buffer(32)",
    "fcntl F_SETPIPE_SZ": "{fcntl}, 0, 1031, 4096",
    "fcntl F_SETLEASE": "{fcntl}, 0, 1024, 2",
    "fcntl F_NOTIFY": "{fcntl}, 0, 1026, 0",
    "fcntl F_ADD_SEALS": "{fcntl}, 0, 1033, 0",
    "ioctl TIOCSTI": "{ioctl}, 0, 0x5412, b'x'",
    "ioctl TIOCSCTTY": "{ioctl}, 0, 0x540E, 0",
    "ioctl TIOCLINUX": "{ioctl}, 0, 0x541C, b'x'",
    "ioctl FIOASYNC": "{ioctl}, 0, 0x5452, ctypes.create_string_buffer(4)",
    "ioctl FICLONE": "{ioctl}, 0, 0x40049409, 1",
    "ioctl FS_IOC_SETFLAGS": "{ioctl}, 0, 0x40086602, ctypes.create_string_buffer(8)",
    "socketpair of datagrams": "{socketpair}, 1, 2, 0, ctypes.create_string_buffer(8)",
    "socketpair of packets": "{socketpair}, 1, 5, 0, ctypes.create_string_buffer(8)",
    "socketpair of TIPC": "{socketpair}, 30, 1, 0, ctypes.create_string_buffer(8)",
    "sendto an address": "{sendto}, 0, b'x', 1, 0, ctypes.create_string_buffer(16), 16",
    "sendto an address whose lower half is nought": "{sendto}, 0, b'x', 1, 0, 1 << 32, 16",
}


@each_way
def test_a_call_that_is_free_for_some_arguments_is_refused_for_the_others(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    calls = {name: arguments.format_map(NUMBERS) for name, arguments in CHECKED_CALLS.items()}
    found = named(errors(isolation_class, calls, spawn))

    assert {name: error for name, error in found.items() if error != "EPERM"} == {}


@each_class
def test_no_family_of_sockets_is_there(isolation_class: IsolationClass) -> None:
    kinds = [f"{family}, {kind}, 0" for family in range(46) for kind in (1, 2, 3)]
    calls = {kind: f"{NUMBERS['socket']}, {kind}" for kind in kinds}
    assert set(named(errors(isolation_class, calls)).values()) == {"EPERM"}


@each_class
def test_what_is_newer_than_our_list_fails_as_if_the_kernel_were_older(
    isolation_class: IsolationClass,
) -> None:
    absent = [NUMBERS[name] for name in ("clone3", "preadv2", "pwritev2")]
    newer = {str(number): f"{number}" for number in (*absent, *range(463, 500), 600, 1 << 20)}
    assert set(named(errors(isolation_class, newer)).values()) == {"ENOSYS"}


MACHINE_CODE = """\
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({code!r}))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""
# The number of the process, asked for by the door of the 32-bit kernel, and by an x32 number.
FOREIGN = {
    "x86_64": [
        MACHINE_CODE.format(code="b814000000cd80c3"),
        PROBE.format(calls="call(0x40000000 | 39)"),
        PROBE.format(calls="call(0x40000000 | 512)"),
    ],
    "aarch64": [],  # no program can change its architecture here without execve
}


@each_class
def test_a_call_of_a_foreign_architecture_ends_the_process(isolation_class: IsolationClass) -> None:
    native = MACHINE_CODE.format(code="b827000000" + "0f05c3") if MACHINE == "x86_64" else "pass"
    first, *foreign = run_all(isolation_class, [native, *FOREIGN[MACHINE]])

    assert first.way == (0, None), first
    assert [ran.way for ran in foreign] == [(None, "SYS")] * len(FOREIGN[MACHINE])


ENDS = {
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": (None, "TERM"),
    "import os; os.kill(os.getpid(), 9)": (None, "KILL"),
    "import os; os.abort()": (None, "ABRT"),
    "import signal; signal.raise_signal(signal.SIGUSR1)": (None, "USR1"),
    "import ctypes; ctypes.string_at(0)": (None, "SEGV"),
    "import signal, time; signal.alarm(1); time.sleep(20)": (None, "ALRM"),
    "import sys; sys.exit(7)": (7, None),
    "import os; os._exit(3)": (3, None),
    "raise ValueError": (1, None),
    "raise KeyboardInterrupt": (None, "INT"),
    "": (0, None),
}


@each_way
def test_how_a_program_ends_is_told_as_it_was(isolation_class: IsolationClass, spawn: Spawn) -> None:
    assert [ran.way for ran in run_all(isolation_class, ENDS, spawn)] == list(ENDS.values())


# What an honest rubric does. Each is a program of its own, and must end well.
WORKS = {
    "threads": """
        import threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(20)]
        [each.start() for each in threads], [each.join() for each in threads]
        assert sorted(done) == list(range(20))
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(len, ["a", "bb"])) == 3""",
    "a pair of sockets": """
        import socket
        one, other = socket.socketpair()
        one.sendall(b"x"); assert other.recv(1) == b"x"
        one.setblocking(False)
        other.send(b"y"); assert one.recv(1) == b"y"
        one.shutdown(socket.SHUT_RDWR)""",
    "waiting": """
        import os, select
        read, write = os.pipe()
        epoll = select.epoll(); epoll.register(read, select.EPOLLIN)
        os.write(write, b"x")
        assert epoll.poll(5) and select.select([read], [], [], 5)[0]
        poll = select.poll(); poll.register(read, select.POLLIN); assert poll.poll(5000)""",
    "an event loop": """
        import asyncio
        async def main():
            await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: 5) == 5
            return await asyncio.gather(*(asyncio.sleep(0, n) for n in range(5)))
        assert asyncio.run(main()) == list(range(5))""",
    "a signal's handler": """
        import os, signal, time
        heard = []
        signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.signal(signal.SIGALRM, lambda *_: heard.append(2))
        deadline = time.monotonic() + 20
        while heard != [1, 2] and time.monotonic() < deadline: time.sleep(0.01)
        assert heard == [1, 2]""",
    "time and chance": """
        import os, random, secrets, time, uuid
        assert len(os.urandom(8)) == len(secrets.token_bytes(8)) == 8
        with open("/dev/urandom", "rb") as file: assert len(file.read(8)) == 8
        time.sleep(0.001), time.monotonic(), time.process_time(), time.thread_time(), uuid.uuid4()""",
    "memory": """
        import mmap
        with mmap.mmap(-1, 1 << 20) as memory: memory[5] = 5
        open("mapped", "wb").write(bytes(4096))
        with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory: memory[5] = 5
        assert open("mapped", "rb").read()[5] == 5""",
    "files in the box": """
        import os, shutil, tempfile
        with tempfile.NamedTemporaryFile() as file: file.write(b"x"); assert file.name.startswith(os.getcwd())
        with tempfile.TemporaryDirectory() as folder: open(folder + "/x", "w").write("x")
        os.makedirs("deep/er"); open("deep/er/file", "w").write("text")
        os.rename("deep/er/file", "deep/moved"); os.symlink("deep", "link")
        os.link("deep/moved", "deep/twice")
        assert open("link/moved").read() == open("deep/twice").read() == "text"
        os.truncate("deep/moved", 2); os.replace("deep/moved", "deep/er/back")
        assert sorted(os.listdir("deep")) == ["er", "twice"] and os.stat("deep/er/back").st_size == 2
        shutil.rmtree("deep"); os.unlink("link")""",
    "the library": """
        import collections, csv, ctypes, datetime, decimal, difflib, hashlib, json, math, re, sqlite3, ssl
        import statistics, tomllib, unicodedata, xml.etree.ElementTree, zipfile, zlib, zoneinfo, lzma, bz2
        hashlib.sha256(b"x").hexdigest(); ssl.create_default_context
        table = sqlite3.connect("file:base.db?nolock=1", uri=True)  # locks are not free
        table.execute("create table t (x)"); table.commit(); table.close()
        assert json.loads("[1]") == [1]""",
    "its own limits": """
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss""",
    "no other process, and an error that says so": """
        import multiprocessing, os, subprocess, sys
        for attempt in (
            os.fork,
            lambda: subprocess.run([sys.executable, "-c", ""]),
            lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}),
            lambda: multiprocessing.get_context("fork").Process(target=print).start(),
        ):
            try: attempt()
            except PermissionError: pass
            else: raise AssertionError(attempt)""",
    "no network, and an error that says so": """
        import socket
        for attempt in (socket.socket, lambda: socket.create_connection(("127.0.0.1", 9))):
            try: attempt()
            except PermissionError: pass
            else: raise AssertionError(attempt)""",
    "no names of other hosts, and an error that says so": """
        import socket
        try: socket.getaddrinfo("example.invalid", 80)
        except OSError: pass
        else: raise AssertionError""",
}


def program(text: str) -> str:
    indented = [line for line in text.split("\n") if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in indented)
    return "\n".join(line[margin:] for line in indented)


@each_way
def test_what_an_honest_program_does_works(isolation_class: IsolationClass, spawn: Spawn) -> None:
    ran = run_all(isolation_class, map(program, WORKS.values()), spawn)
    failed = {
        name: each for name, each in zip(WORKS, ran, strict=True) if each.way != (0, None) or each.stderr
    }
    assert failed == {}


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_modes_and_times_can_be_changed_where_the_rest_is_read_only(spawn: Spawn) -> None:
    source = program("""
        import os
        open("x", "w").close(); os.chmod("x", 0o400); os.utime("x", (5, 5))
        assert os.stat("x").st_mtime == 5""")
    assert run_confined("namespace", source, spawn).way == (0, None)


def test_modes_and_times_cannot_be_changed_where_landlock_does_not_see_it() -> None:
    source = program("""
        import os
        change = lambda: os.chmod("rubric.py", 0o777)
        for attempt in (change, lambda: os.utime("rubric.py"), lambda: os.chmod(1, 0)):
            try: attempt()
            except PermissionError: pass
            else: raise AssertionError(attempt)""")
    assert run_confined("landlock", source).way == (0, None)
