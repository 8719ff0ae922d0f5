"""Whoever starts the harness may ignore or block signals, and no rubric learns of it."""

import signal
import sys
from pathlib import Path

import pytest

from tests.bench_builder import TASK_CLASS, write_bench
from tests.command_line import answered, call, eval_argv

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


@pytest.mark.parametrize("isolation", ["namespace", "landlock", "subprocess"])
def test_what_the_harness_ignores_or_blocks_reaches_no_rubric(isolation: str, tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", RUBRIC)
    run = eval_argv("run", TASK_CLASS, "--sut", "null", "--isolation", isolation, "--quiet", "--json")
    done = call([sys.executable, "-c", ODDLY, *run], tmp_path)
    report = answered(done)["report"]

    assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert [score["failure_modes"] for _, score in report["per_case"]] == [[]], done.stderr
    assert report["passed_count"] == 1
