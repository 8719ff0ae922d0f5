"""Whoever starts the harness may ignore or block signals, and no rubric learns of it."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import answered, call, eval_argv
from tests.support.sampling import sampled

ODDLY = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1])
os.execv(sys.argv[1], sys.argv[1:])
"""
RUBRIC = """\
import json, signal, sys
ignored = [int(n) for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
blocked = [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
right = not blocked and set(ignored) <= {signal.SIGPIPE, signal.SIGXFSZ}
modes = [] if right else [{"code": "answer.wrong", "detail": f"{ignored} {blocked}"}]
json.dump({"passed": right, "score": float(right), "breakdown": {}, "failure_modes": modes}, sys.stdout)
"""


@pytest.mark.parametrize("isolation", sampled(["namespace", "landlock", "subprocess"], "namespace".__eq__))
def test_what_the_harness_ignores_or_blocks_reaches_no_rubric(isolation: str, tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", RUBRIC)
    run = eval_argv("run", TASK_CLASS, "--sut", "null", "--isolation", isolation, "--quiet", "--json")
    done = call([sys.executable, "-c", ODDLY, *run], tmp_path)
    report = answered(done)["report"]

    assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert [score["failure_modes"] for _, score in report["per_case"]] == [[]], done.stderr
    assert report["passed_count"] == 1


# The C library keeps two signals for itself, and its functions refuse to name them: hence the bare call. What
# posix_spawn starts has both ignored, and make starts everything so.
BARE_CALL = """
import ctypes, platform
libc = ctypes.CDLL(None)
number = {"x86_64": 13, "aarch64": 134}[platform.machine()]
"""
SPAWNED = f"""{BARE_CALL}
import os, sys
for each in (32, 33):
    assert libc.syscall(number, each, (ctypes.c_ulong * 4)(1), None, 8) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
ASKING_RUBRIC = f"""{BARE_CALL}
import json, sys
ignored = []
for each in (32, 33):
    found = (ctypes.c_ulong * 4)()
    assert libc.syscall(number, each, None, found, 8) == 0
    ignored += [each] if found[0] == 1 else []
modes = [{{"code": "answer.wrong", "detail": str(ignored)}}] if ignored else []
right = not ignored
json.dump({{"passed": right, "score": float(right), "breakdown": {{}}, "failure_modes": modes}}, sys.stdout)
"""


@pytest.mark.parametrize("isolation", sampled(["namespace", "landlock"], "namespace".__eq__))
def test_a_harness_that_make_has_started_proves_its_class_and_hands_nothing_on(
    isolation: str, tmp_path: Path
) -> None:
    write_bench(tmp_path / "bench", ASKING_RUBRIC)
    run = eval_argv("run", TASK_CLASS, "--sut", "null", "--isolation", isolation, "--quiet", "--json")
    done = call([sys.executable, "-c", SPAWNED, *run], tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [score["failure_modes"] for _, score in answered(done)["report"]["per_case"]] == [[]]
