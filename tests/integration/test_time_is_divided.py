"""Time is divided: a rubric has that of one processor, and loses none that others take from it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.isolation.launchers import ConfinedLauncher
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, RunOptions, Spawn
from codegenie.eval.runner import Runner
from codegenie.eval.system import supervisor as supervisor_module
from codegenie.eval.system.processes import ProcessRequest, real_interpreter
from codegenie.eval.system.scheduling import Deadline, Processors, TimeShare, time_share
from codegenie.eval.system.supervisor import Supervisor
from codegenie.eval.system.supervisor_pool import start_program
from tests.support.benches import TASK_CLASS, CaseFiles, right_answer, write_bench
from tests.support.busy_machine import busy_machine, one_processor
from tests.support.confinement import (
    Ran,
    a_launcher,
    each_class,
    each_way,
    parent_of,
    run_by,
    run_confined,
    waiting_copy,
)
from tests.support.sampling import one_machine, sampled

# Each takes a whole processor, and two of them would take the same one.
pytestmark = one_machine

each_isolation_class = pytest.mark.parametrize(
    "isolation_class", sampled(["namespace", "landlock", "subprocess"], "namespace".__eq__)
)

# Five share the processor, so that it has at most 0.4 s of it within its deadline.
WORK = "import os, time\nwhile time.process_time() < 0.6: pass\nos.write(1, b'done')\n"
HALF_OF_THE_WORK = "import time\nwhile time.process_time() < 0.3: pass\n"
DEADLINE = 2.0


@each_isolation_class
def test_a_rubric_that_others_leave_no_time_is_given_it_later(isolation_class: IsolationClass) -> None:
    with busy_machine(others=4):
        ran = run_confined(isolation_class, WORK, seconds=DEADLINE)

    assert (ran.way, ran.stdout) == ((0, None), "done"), ran
    assert ran.end.wall_seconds > DEADLINE
    assert not ran.end.timed_out


# In every run `test_a_starved_case_is_not_scored` shows the same of a whole run.
@pytest.mark.all_ways
@each_isolation_class
def test_a_rubric_that_gets_no_time_at_all_is_said_to_starve(isolation_class: IsolationClass) -> None:
    with busy_machine(others=12):
        ran = run_confined(isolation_class, "while True: pass", seconds=1.0)

    assert ran.end.timed_out
    assert ran.end.starved is not None
    assert ran.end.starved.given < 1.0 < ran.end.starved.withheld


@each_isolation_class
def test_who_sleeps_on_a_busy_machine_is_late_by_its_own_fault(isolation_class: IsolationClass) -> None:
    with busy_machine(others=4):
        ran = run_confined(isolation_class, "import time; time.sleep(60)", seconds=1.0)

    assert (ran.end.timed_out, ran.end.starved) == (True, None)


@each_class
def test_an_end_that_is_noticed_late_counts_if_others_had_the_time(isolation_class: IsolationClass) -> None:
    async def run() -> Ran:
        stopped: list[int] = []

        def stop_the_zygote(copy: int) -> None:
            stopped.append(parent_of(copy))
            os.kill(stopped[0], signal.SIGSTOP)

        async with a_launcher(isolation_class) as launcher:
            running = asyncio.ensure_future(run_by(launcher, HALF_OF_THE_WORK, DEADLINE, stop_the_zygote))
            await asyncio.sleep(DEADLINE + 0.5)
            os.kill(stopped[0], signal.SIGCONT)
            return await running

    with busy_machine(others=4):
        ran = asyncio.run(run())
    assert ran.way == (0, None), ran


COMPUTE = """\
import _thread, hashlib, os, sys, time
ended = sys.argv[1] == "ended"
def compute(seconds):
    while time.process_time() < seconds:
        hashlib.pbkdf2_hmac("sha256", b"without the lock of the interpreter", b"x", 20_000)
for _ in range(8):
    _thread.start_new_thread(compute, (1.0 if ended else 60.0,))
compute(1.0)
while ended and len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.01)
print("computed", flush=True)
compute(60.0)
"""


@pytest.mark.parametrize("they_have", ["ended", "living"])
def test_what_its_own_threads_took_was_not_withheld(they_have: str) -> None:
    with one_processor():
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-S", "-c", COMPUTE, they_have], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        share, elapsed = time_share([process.pid]), time.monotonic() - began
        process.kill()
        process.communicate()

    # On one processor there is no more time than that, whoever has it.
    assert share.given + share.withheld <= elapsed + 0.2
    # A tenth is for two clocks of the kernel that count in ticks: one run was given 0.99 of its 1.0.
    assert share.given >= 0.9


def test_a_process_that_is_gone_had_nothing() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert time_share([process.pid]) == TimeShare(0.0, 0.0)


def test_a_deadline_is_put_off_by_what_was_withheld_and_not_without_end() -> None:
    deadline = Deadline(10.0)
    assert deadline.more(TimeShare(2.0, 8.0)) == 8.0
    assert deadline.more(TimeShare(4.0, 8.04)) == 0.0
    assert deadline.more(TimeShare(4.0, 29.0)) == 21.0
    assert deadline.more(TimeShare(5.0, 99.0)) == pytest.approx(1.0)
    before = deadline.starved
    assert deadline.more(TimeShare(6.0, 99.0)) == 0.0
    assert (before, deadline.starved) == (None, TimeShare(6.0, 99.0))
    assert LIMITS.deadline_stretch == 4


def test_a_supervisor_that_has_no_time_to_answer_is_no_fault_of_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It takes a processor for as long as the harness waits.
    monkeypatch.setattr(supervisor_module, "LIMITS", replace(LIMITS, teardown_seconds=1.0))

    async def run() -> None:
        # It computes and says nothing, as one does that waits for its turn.
        supervisor = Supervisor(*start_program([real_interpreter(), "-S", "-c", "while True: pass"], {}))
        await supervisor.run(ProcessRequest(("/bin/true",), str(tmp_path), {}, (), 0.1))

    with pytest.raises(HarnessFailure, match="did not get the time to answer"):
        asyncio.run(run())


def test_a_starved_case_is_not_scored_and_the_same_command_takes_the_run_up(tmp_path: Path) -> None:
    rubric = (
        "import json, sys, time\nrequest = json.load(sys.stdin)\n"
        "while request['case']['case_id'] == 'slow' and time.process_time() < 0.7: pass\n"
        "json.dump({'passed': True, 'score': 1.0, 'breakdown': {}, 'failure_modes': []}, sys.stdout)\n"
    )
    slow = CaseFiles("slow", fields={"rubric_wall_clock_seconds": 1})
    write_bench(tmp_path / "bench", rubric, ["fast", slow])
    options = RunOptions(isolation="namespace", concurrency=1, cache_dir=tmp_path / "cache")
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS, bench_root=tmp_path / "bench", out_dir=tmp_path / "runs", options=options
    )

    with (
        busy_machine(others=12),
        pytest.raises(HarnessFailure, match=r"gave a rubric 0\.\d s of a processor in \d+ s") as refusal,
    ):
        asyncio.run(runner.execute(plan, system_under_test=right_answer))
    recorded = asyncio.run(runner.record(plan, system_under_test=right_answer))

    assert refusal.value.where == "cases/slow"
    assert recorded.report.passed_count == 2
    assert (tmp_path / "runs" / "00000001.json").read_text().count("run.resumed") == 1


def test_processors_are_divided_evenly_and_all_of_them_are_used() -> None:
    available = os.sched_getaffinity(0)
    for slots in range(1, 2 * len(available) + 2):
        processors = Processors(slots)
        with ExitStack() as held:
            shares = [held.enter_context(processors.share()) for _ in range(slots)]
        assert frozenset().union(*shares) == available
        users = sorted(sum(one in share for share in shares) for one in available)
        assert users[-1] - users[0] <= 1


@each_way
def test_rubrics_that_run_at_once_have_processors_of_their_own(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    async def run() -> list[set[int]]:
        async with a_launcher(isolation_class, spawn) as launcher:
            assert isinstance(launcher, ConfinedLauncher)
            launcher.divide(len(os.sched_getaffinity(0)))
            async with waiting_copy(launcher) as one, waiting_copy(launcher) as other:
                return [os.sched_getaffinity(one), os.sched_getaffinity(other)]

    one, other = asyncio.run(run())
    assert len(one) == len(other) == 1
    # Only a machine with one processor has to share it.
    assert (one != other) == (len(os.sched_getaffinity(0)) > 1)


@each_class
def test_a_run_tells_how_many_rubrics_will_share_the_processors(
    isolation_class: IsolationClass, tmp_path: Path
) -> None:
    processors = sorted(os.sched_getaffinity(0))
    rubric = (
        "import json, os, sys\n"
        "alone = len(os.sched_getaffinity(0)) == 1\n"
        "answer = {'passed': alone, 'score': float(alone), 'breakdown': {}, 'failure_modes': []}\n"
        "json.dump(answer, sys.stdout)\n"
    )
    write_bench(tmp_path / "bench", rubric, ["one", "other"])
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=tmp_path / "bench",
        out_dir=tmp_path / "runs",
        options=RunOptions(isolation=isolation_class, concurrency=len(processors)),
    )
    assert asyncio.run(runner.execute(plan, system_under_test=right_answer)).passed_count == 2


@each_isolation_class
def test_threads_do_not_get_more_than_the_time_of_one_processor(isolation_class: IsolationClass) -> None:
    # As many seconds of processors as a second has on this machine, and some more.
    source = (
        "import resource, os\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_CPU)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))\n"
        "os.write(1, f'{soft} {hard}'.encode())\n"
    )
    ran = run_confined(isolation_class, source, seconds=6.5)
    assert ran.stdout == f"{7 + LIMITS.child_cpu_spare_seconds} {12 + LIMITS.child_cpu_spare_seconds}", ran
