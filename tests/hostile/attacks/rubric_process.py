"""Rubrics that attack by how they end, if they do, and by how much they write and take."""

import os
import signal
from pathlib import Path

from tests.hostile.attackers.hostile_bench import (
    HONEST,
    HOSTILE,
    judged,
    refused,
    rubric_that,
    run_cases,
    run_hostile,
    what_it_met,
)
from tests.hostile.attackers.perfect_rubrics import (
    PERFECT,
    daemon,
    in_one_second,
    perfect,
    perfect_and,
    still_beats,
)
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import CaseFiles
from tests.support.busy_machine import busy_machine, one_processor

MIB = 1 << 20

_DEATHS = {
    "exit": "sys.exit(3)",
    "exception": "raise ValueError('no')",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "crashed": "import ctypes; ctypes.string_at(0)",
    "aborted": "os.abort()",
    "terminated": "os.kill(os.getpid(), signal.SIGTERM)",
}


@attack("perfect_and_dead")
def perfect_and_dead(room: Path) -> Outcome:
    silent = "import os\nif request['case']['case_id'] == 'silent':\n    os._exit(0)\n"
    deeds = f"exec({_DEATHS!r}[request['case']['case_id']])\n"
    rubric = rubric_that(silent + PERFECT + deeds)
    report = run_cases(room, rubric, (HONEST, "silent", *_DEATHS))
    scores = dict(report.per_case)
    del scores[HONEST]
    got = [name for name, score in scores.items() if score.score]
    met = sorted(set(map(what_it_met, scores.values())))
    return Outcome(" ".join(met), f"dead and perfect: {got}" if got else None)


@twin("perfect_and_dead")
def perfect_and_alive_to_the_end(room: Path) -> Outcome:
    return perfect(room)


@attack("daemon_that_left_its_session")
def daemon_that_left_its_session(room: Path) -> Outcome:
    report = run_hostile(room, perfect_and(daemon(room / "beats")))
    return judged(report, lambda _report: still_beats(room / "beats"))


@twin("daemon_that_left_its_session")
def child_that_is_waited_for(room: Path) -> Outcome:
    waiting = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(0.05)\n    os._exit(0)\nos.wait()\n"
    outcome = judged(run_hostile(room, perfect_and(waiting)))
    return Outcome(outcome.met, None, outcome.sibling)


@attack("answer_of_a_leaking_rubric")
def answer_of_a_leaking_rubric(room: Path) -> Outcome:
    return judged(run_hostile(room, perfect_and("if os.fork() == 0:\n    time.sleep(6)\nos._exit(0)\n")))


@twin("answer_of_a_leaking_rubric")
def child_that_ends_a_moment_later(room: Path) -> Outcome:
    late = "if os.fork() == 0:\n    time.sleep(0.05)\nos._exit(0)\n"
    outcome = judged(run_hostile(room, perfect_and(late)))
    return Outcome(outcome.met, None, outcome.sibling)


@attack("child_that_holds_stdout")
def child_that_holds_stdout(room: Path) -> Outcome:
    return judged(run_hostile(room, perfect_and("if os.fork() == 0:\n    time.sleep(10)\nos._exit(0)\n")))


@twin("child_that_holds_stdout")
def child_that_lets_go_of_stdout(room: Path) -> Outcome:
    return child_that_ends_a_moment_later(room)


@attack("deaf_to_every_signal")
def deaf_to_every_signal(room: Path) -> Outcome:
    ignoring = f"""\
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
if os.fork() == 0:
    os.setsid()
    with open({str(room / "pid")!r}, "w") as file:
        file.write(str(os.getpid()))
time.sleep(60)
"""
    rubric, cases = in_one_second(ignoring)
    report = run_cases(room, rubric, cases)
    return judged(report, lambda _report: "it outlived the run" if ended_only_now(room / "pid") else None)


def ended_only_now(note: Path) -> bool:
    """Say whether a process that noted its number is still there, and end it."""
    try:
        os.kill(int(note.read_text(encoding="utf-8")), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@twin("deaf_to_every_signal")
def deaf_and_quick(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n")))
    return Outcome(outcome.met, None, outcome.sibling)


def largest_file(room: Path) -> int:
    """Return the size of the largest file that a run left in its log."""
    return max(file.stat().st_size for file in (room / "runs").rglob("*") if file.is_file())


@attack("stdout_flood")
def stdout_flood(room: Path) -> Outcome:
    flood = f"for _ in range(24):\n    os.write(1, b' ' * {MIB})\nos._exit(0)\n"
    outcome = judged(run_hostile(room, perfect_and(flood)))
    size = largest_file(room)
    return Outcome(outcome.met, f"{size} bytes are kept of it" if size > 2 * MIB else None, outcome.sibling)


@twin("stdout_flood")
def stdout_below_the_cap(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(f"os.write(1, b' ' * {MIB // 2})\nos._exit(0)\n")))
    return Outcome(outcome.met, None, outcome.sibling)


@attack("stderr_flood")
def stderr_flood(room: Path) -> Outcome:
    flood = f"for _ in range(24):\n    os.write(2, b'x' * {MIB})\nos._exit(3)\n"
    outcome = judged(run_hostile(room, perfect_and(flood)))
    size = largest_file(room)
    return Outcome(outcome.met, f"{size} bytes are kept of it" if size > 2 * MIB else None, outcome.sibling)


@twin("stderr_flood")
def stderr_beyond_the_cap_and_in_order(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(f"os.write(2, b'x' * {MIB})\nos._exit(0)\n")))
    return Outcome(outcome.met, None, outcome.sibling)


def _writes_a_file(file: Path, mebibytes: int) -> str:
    return (
        f"signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        f"file = os.open({str(file)!r}, os.O_WRONLY | os.O_CREAT)\n"
        f"for _ in range({mebibytes}):\n    os.write(file, bytes({MIB}))\n"
    )


@attack("file_flood")
def file_flood(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(_writes_a_file(room / "large", 40))))
    size = (room / "large").stat().st_size
    (room / "large").unlink()
    return Outcome(outcome.met, f"wrote {size} bytes" if size > 32 * MIB else None, outcome.sibling)


@twin("file_flood")
def file_of_a_reasonable_size(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(_writes_a_file(room / "large", 4))))
    return Outcome(outcome.met, None, outcome.sibling)


def _maps(mebibytes: int, witness: Path) -> str:
    # Private and read only: asked for and never taken, so that the machine does not notice.
    flags = "flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ"
    asking = f"import mmap\nheld = mmap.mmap(-1, {mebibytes * MIB}, {flags})\n"
    return asking + f"open({str(witness)!r}, 'w').close()\n"


@attack("three_gigabytes_of_memory")
def three_gigabytes_of_memory(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(_maps(3_072, room / "got"))))
    return Outcome(
        outcome.met, "it was given three gigabytes" if (room / "got").exists() else None, outcome.sibling
    )


@twin("three_gigabytes_of_memory")
def half_a_gigabyte_of_memory(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(_maps(512, room / "got"))))
    return Outcome(outcome.met, None if (room / "got").exists() else "it was refused", outcome.sibling)


_DUMPS = """\
import resource
os.chdir({room!r})
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
with open("allowed", "w") as file:
    file.write(str(hard))
"""


@attack("core_dump")
def core_dump(room: Path) -> Outcome:
    crash = _DUMPS.format(room=str(room)) + "os.kill(os.getpid(), signal.SIGSEGV)\n"
    outcome = judged(run_hostile(room, perfect_and(crash)))
    # Where the kernel puts a core is the machine's business; that a child may have one is ours.
    allowed = (room / "allowed").read_text(encoding="utf-8") != "0" or any(room.glob("core*"))
    return Outcome(outcome.met, "it may leave its memory behind" if allowed else None, outcome.sibling)


@twin("core_dump")
def crash_that_is_caught(room: Path) -> Outcome:
    outcome = judged(run_hostile(room, perfect_and(_DUMPS.format(room=str(room)))))
    return Outcome(outcome.met, None, outcome.sibling)


_COMPUTES = """\
import hashlib, threading, time
def compute(end):
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"without the lock of the interpreter", b"x", 20_000)
if case_id == "hostile":
    ends = time.monotonic() + 4
    for _ in range(THREADS):
        threading.Thread(target=compute, args=(ends,)).start()
while case_id == "victim" and time.process_time() < 1.3:
    pass
"""


def _beside_a_victim(room: Path, threads: int) -> Outcome:
    """Run a rubric with so many threads on one processor, beside a case that needs 1.3 s of its 2 s."""
    does = f"THREADS = {threads}\ncase_id = request['case']['case_id']\n{_COMPUTES}"
    victim = CaseFiles("victim", fields={"rubric_wall_clock_seconds": 2})
    with one_processor():
        report = run_cases(room, rubric_that(does + PERFECT), (HOSTILE, HONEST, victim), concurrency=3)
    met = what_it_met(dict(report.per_case)["victim"])
    harm = None if met == "passed" else f"the case beside it met {met}"
    return judged(report, lambda _report: harm)


@attack("time_of_a_sibling")
def time_of_a_sibling(room: Path) -> Outcome:
    return _beside_a_victim(room, 125)


@twin("time_of_a_sibling")
def time_of_ones_own(room: Path) -> Outcome:
    return _beside_a_victim(room, 0)


_NEEDS_A_WHILE = "import time\nwhile time.process_time() < 0.7: pass\n"


def _while_others_compute(room: Path, others: int) -> Outcome:
    case = CaseFiles(HOSTILE, fields={"rubric_wall_clock_seconds": 1})
    scored: list[str] = []

    def run() -> None:
        report = run_cases(room, rubric_that(_NEEDS_A_WHILE + PERFECT), (case,), concurrency=1)
        scored.append(what_it_met(dict(report.per_case)[HOSTILE]))

    with busy_machine(others):
        met = refused(run)
    harm = [f"it was scored, and met {each}" for each in scored if each != "passed"]
    return Outcome(scored[0] if scored else met, harm[0] if harm else None)


@attack("time_of_everybody")
def time_of_everybody(room: Path) -> Outcome:
    return _while_others_compute(room, 16)


@twin("time_of_everybody")
def time_enough(room: Path) -> Outcome:
    return _while_others_compute(room, 1)
