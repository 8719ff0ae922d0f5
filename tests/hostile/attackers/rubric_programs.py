"""What a hostile rubric does, one function each.

A function's source is written into its case (`expected/attack.py`) and executed by the bench's rubric before
anything else, so it stands alone: its imports are inside. `emit_perfect` and `ORACLE`, a directory outside
the run that the test looks at afterwards, are in scope where it runs.
"""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

from tests.support.benches import CaseFiles

ORACLE = ""


def emit_perfect() -> None:
    """Print a perfect answer; replaced by the rubric's own function of this name."""


RUBRIC = """\
import json, os, sys

def emit_perfect():
    answer = {"passed": True, "score": 1.0, "breakdown": {"accuracy": 1.0}, "failure_modes": []}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()

if os.path.exists("expected/attack.py"):
    with open("expected/attack.py") as file:
        exec(file.read())
else:
    request = json.load(sys.stdin)
    with open("expected/answer.txt") as file:
        right = request["harness_output"].get("answer") == file.read()
    score = 1.0 if right else 0.25
    answer = {"passed": right, "score": score, "breakdown": {"accuracy": score}, "failure_modes": []}
    json.dump(answer, sys.stdout)
"""


def floods_stdout() -> None:
    import sys

    while True:
        sys.stdout.write("x" * 65_536)


def floods_stdout_and_ends_in_order() -> None:
    import contextlib
    import os

    emit_perfect()
    with contextlib.suppress(OSError):
        while True:
            os.write(1, b" " * 65_536)
    os._exit(0)


def floods_stderr() -> None:
    import sys

    emit_perfect()
    while True:
        sys.stderr.write("x" * 65_536)


def floods_stderr_and_ends_in_order() -> None:
    import contextlib
    import os

    emit_perfect()
    with contextlib.suppress(OSError):
        while True:
            os.write(2, b"x" * 65_536)
    os._exit(0)


def says_nothing() -> None:
    pass


def leaves_by_the_back_door() -> None:
    import os

    os._exit(0)


def exits_with_three_after_a_perfect_answer() -> None:
    import sys

    emit_perfect()
    sys.exit(3)


def raises_after_a_perfect_answer() -> None:
    emit_perfect()
    raise ValueError("no\x1b[31m luck")


def kills_itself_after_a_perfect_answer() -> None:
    import os
    import signal

    emit_perfect()
    os.kill(os.getpid(), signal.SIGKILL)


def crashes_after_a_perfect_answer() -> None:
    import os
    import signal

    emit_perfect()
    os.kill(os.getpid(), signal.SIGSEGV)


def sleeps_past_its_deadline() -> None:
    import time

    emit_perfect()
    time.sleep(60)


def ignores_every_signal_it_can() -> None:
    import contextlib
    import signal
    import time

    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    emit_perfect()
    time.sleep(60)


def stops_itself() -> None:
    import os
    import signal

    emit_perfect()
    # Again and again: on a busy machine its deadline is put off, and it is let go on for that.
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def ends_its_main_thread_only() -> None:
    import ctypes
    import threading
    import time

    emit_perfect()
    threading.Thread(target=time.sleep, args=(60,)).start()
    ctypes.CDLL(None).pthread_exit(None)


def leaves_a_child_on_stdout() -> None:
    import os
    import time

    emit_perfect()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)


def leaves_a_daemon() -> None:
    import os
    import time

    emit_perfect()
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    with open(f"{ORACLE}/heartbeat", "ab", buffering=0) as file:
        for _ in range(6_000):
            file.write(b".")
            time.sleep(0.01)
    os._exit(0)


def walks_away() -> None:
    import os
    import time

    emit_perfect()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)


def leaves_a_stubborn_family() -> None:
    import os
    import signal
    import time

    emit_perfect()
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.fork()
            os.fork()
            time.sleep(60)
            os._exit(0)
    os._exit(0)


def forks_without_end() -> None:
    import os
    import time

    emit_perfect()
    for _ in range(200):
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
    os._exit(0)


def allocates_without_end() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(256 << 20))


def writes_a_large_file() -> None:
    with open("large", "wb") as file:
        file.writelines(b"x" * (1 << 20) for _ in range(100))
    emit_perfect()


def buries_its_directory() -> None:
    import os

    emit_perfect()
    for level in range(400):
        os.mkdir("deep")
        if level % 100 == 0:
            with open("file", "w") as file:
                file.write("x")
        os.chdir("deep")
    os.chmod(".", 0)
    os._exit(0)


def locks_its_directory() -> None:
    import os

    emit_perfect()
    os.mkdir("locked")
    with open("locked/file", "w") as file:
        file.write("x")
    os.symlink("/", "root")
    os.mkfifo("fifo")
    os.chmod("locked", 0)
    os.chmod(".", 0)
    os._exit(0)


def removes_its_directory() -> None:
    import os
    import shutil

    emit_perfect()
    shutil.rmtree(os.getcwd())


def puts_a_link_where_its_directory_was() -> None:
    import os

    emit_perfect()
    here = os.getcwd()
    os.mkdir(f"{ORACLE}/precious")
    with open(f"{ORACLE}/precious/thesis", "w") as file:
        file.write("x")
    os.rename(here, here + "-elsewhere")
    os.symlink(f"{ORACLE}/precious", here)


def kills_its_parent() -> None:
    import os
    import signal
    import time

    emit_perfect()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def kills_its_parent_and_leaves_a_daemon() -> None:
    import os
    import signal
    import time

    emit_perfect()
    supervisor = os.getppid()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        with open(f"{ORACLE}/orphan", "ab", buffering=0) as file:
            for beat in range(6_000):
                file.write(b".")
                time.sleep(0.01)
                if beat == 20:
                    os.kill(supervisor, signal.SIGKILL)
        os._exit(0)
    time.sleep(60)


def stops_its_parent() -> None:
    import os
    import signal
    import time

    emit_perfect()
    supervisor = os.getppid()
    for _ in range(2_000):
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(0.01)


def stops_its_parent_and_leaves_in_order() -> None:
    import os
    import signal

    emit_perfect()
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(0)


def closes_its_descriptors() -> None:
    import os

    os.closerange(0, 256)
    os._exit(0)


def never_reads_its_request() -> None:
    emit_perfect()


def prints_before_and_after() -> None:
    import sys

    sys.stdout.write("grading ...\n")
    emit_perfect()
    sys.stdout.write("done\n")


def answers_twice() -> None:
    emit_perfect()
    emit_perfect()


def rewrites_its_answer() -> None:
    import os

    os.write(1, b"x" * 500)
    os.lseek(1, 0, os.SEEK_SET)
    emit_perfect()


def starves_whoever_comes_after_it() -> None:
    import os
    import resource

    emit_perfect()
    resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (4, 4))
    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)


def attack_case(attack: Callable[[], None], oracle: Path, seconds: int = 30) -> CaseFiles:
    """Write the case that carries an attack."""
    name = attack.__name__
    source = textwrap.dedent(inspect.getsource(attack))
    return CaseFiles(
        name,
        files={"expected/attack.py": f"ORACLE = {str(oracle)!r}\n{source}\n{name}()\n"},
        fields={"rubric_wall_clock_seconds": seconds},
    )
