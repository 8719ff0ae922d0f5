"""What hostile rubrics do as processes, for the attacks of several surfaces.

What a rubric leaves alive ends by itself after some seconds, for the plays in which nobody ends it.
"""

import os
import signal
import time
from pathlib import Path

from tests.hostile.attackers.hostile_bench import HONEST, HOSTILE, judged, rubric_that, run_hostile, written
from tests.hostile.engine.stage import Outcome
from tests.support.benches import CaseFiles

PERFECT = f"""\
import os, signal, time
sys.stdout.write({written().decode()!r})
sys.stdout.flush()
"""
"""Says that all is well; what follows in a rubric happens after a whole, perfect answer."""


def perfect_and(does: str) -> str:
    """Return a rubric that answers the hostile case perfectly and then does this."""
    return rubric_that(PERFECT + does)


def in_one_second(does: str) -> tuple[str, tuple[CaseFiles, str]]:
    """Return such a rubric, and the cases of a bench that gives the hostile one a second."""
    return perfect_and(does), (CaseFiles(HOSTILE, fields={"rubric_wall_clock_seconds": 1}), HONEST)


def perfect(room: Path) -> Outcome:
    """Play a rubric that answers and ends: the twin of whoever answers and does not."""
    outcome = judged(run_hostile(room, perfect_and("")))
    return Outcome(outcome.met, None, outcome.sibling)


_DAEMON = """\
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
end = time.monotonic() + 30
with open({beats!r}, "ab", buffering=0) as file:
    file.write(b"%d\\n" % os.getpid())
    while time.monotonic() < end:
        file.write(b".")
        time.sleep(0.01)
os._exit(0)
"""


def daemon(beats: Path) -> str:
    """Return a deed: leave the session and every parent, and leave a sign of life every ten milliseconds."""
    return _DAEMON.format(beats=str(beats))


def still_beats(beats: Path) -> str | None:
    """Say whether somebody still writes, and end who does."""
    if not beats.exists():
        return None
    pid = int(beats.read_bytes().split()[0])
    before, deadline = beats.stat().st_size, time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        if beats.stat().st_size > before:
            os.kill(pid, signal.SIGKILL)
            return "a daemon outlived the run"
    return None
