"""A run reserves the processes that it may need, and no case takes those of others (ADR-0027)."""

import asyncio
import json
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval import runner
from codegenie.eval.boxes.headroom import boxes_at_once, check_box_headroom
from codegenie.eval.boxes.places import USER as BOX_USER
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.isolation.headroom import check_headroom, files_needed, make_room_for_files, most_tasks
from codegenie.eval.isolation.memory_share import memories
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, RunOptions
from codegenie.eval.runner import Runner
from codegenie.eval.suts.builtin import NullSut
from codegenie.eval.suts.spec import SutRequest, open_sut
from codegenie.eval.system.processes import ProcessEnd, ProcessRequest, real_interpreter
from codegenie.eval.system.supervisor import Supervisor
from codegenie.eval.system.supervisor_pool import start_program
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.commands import answered, call_anew, eval_argv
from tests.support.confinement import (
    a_launcher,
    each_class,
    look_at,
    parent_of,
    run_by,
    run_confined,
    use_edited_guardian,
)
from tests.support.ordinary_user import run_as_ordinary_user
from tests.support.sampling import one_machine, sampled

# They count the processes of a user.
pytestmark = one_machine

each_isolation_class = pytest.mark.parametrize(
    "isolation", sampled(["namespace", "landlock", "subprocess"], "namespace".__eq__)
)
FEW = 60
ENOUGH = 130


def crowded(tasks: int, isolation: str, *cases: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as room:
        done = run_as_ordinary_user(
            "tests.support.crowded_user", Path(room), tasks, isolation, "zygote", *cases
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@each_isolation_class
def test_a_run_that_may_not_fit_is_refused_before_its_first_case(isolation: str) -> None:
    found = crowded(FEW, isolation, "honest")["run"]

    assert (found["refusal"], found["asked"]) == ("HarnessFailure", 0)
    numbers = re.search(r"may need (\d+) .* can have (\d+) more", found["message"])
    assert numbers is not None, found
    assert int(numbers[1]) == 2 * (LIMITS.child_threads + 4) + 8
    assert int(numbers[2]) < int(numbers[1])
    assert "--concurrency" in found["message"]
    assert "ulimit -u" in found["message"]


@each_isolation_class
def test_a_run_that_fits_is_measured(isolation: str) -> None:
    assert crowded(ENOUGH, isolation, "honest", "other") == {"run": {"honest": "passed", "other": "passed"}}


def test_a_case_that_takes_every_thread_takes_none_of_others() -> None:
    found = crowded(ENOUGH, "namespace", "hostile", "honest", "other")

    assert found["run"] == {"hostile": "passed", "honest": "passed", "other": "passed"}
    assert found["another"] == {"honest": "passed"}


def test_who_counts_threads_for_a_user_alone_leaves_the_last_ones_to_others() -> None:
    # In class landlock the kernel counts the whole user, and a case may take threads that another needs;
    # the harness can still start processes, and the run comes to its end.
    found = crowded(ENOUGH, "landlock", "hostile", "honest", "other")

    assert found["run"].keys() == {"hostile", "honest", "other"}
    assert found["run"]["hostile"] == "passed"


@pytest.fixture
def most() -> Iterator[int]:
    """Lower the limit of this process, as a user would by `ulimit -u`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    lowered = 5_000 if hard == resource.RLIM_INFINITY else min(5_000, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (lowered, hard))
    yield lowered
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def test_what_is_kept_is_below_the_limit_of_this_user(most: int) -> None:
    assert most_tasks() == most - LIMITS.user_tasks_kept
    with pytest.raises(HarnessFailure, match="may need"):
        check_headroom("namespace", 10_000)
    if os.getuid() == 0:
        # The kernel does not count the processes of root.
        check_headroom("subprocess", 10_000)


def test_boxes_are_counted_as_those_of_their_user(most: int) -> None:
    check_box_headroom(2)
    with pytest.raises(HarnessFailure, match="may need 34008 processes and threads") as refused:
        check_box_headroom(1_000)

    whose = BOX_USER if os.getuid() == 0 else os.getuid()
    assert f"user {whose} can have" in str(refused.value)
    assert "1000 agents at once" in str(refused.value)
    assert f"the limit is {most}" in str(refused.value)


def test_as_many_boxes_as_are_said_to_fit_are_not_refused_and_one_more_is(most: int) -> None:
    fits = boxes_at_once()["by_processes"]

    assert fits is not None
    assert 0 < fits <= (most - LIMITS.user_tasks_kept) // 34
    # Another program of the user may have started or ended meanwhile.
    check_box_headroom(fits // 2)
    with pytest.raises(HarnessFailure):
        check_box_headroom(2 * fits + 1)


def test_boxes_by_files_and_by_memory_are_those_of_the_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = boxes_at_once()
    by_files, by_memory = found["by_open_files"], found["by_memory"]

    if by_files is None:
        assert hard == resource.RLIM_INFINITY
    else:
        assert files_needed(by_files) <= hard < files_needed(by_files + 1)
    assert by_memory is not None
    assert by_memory * (8 << 30) <= min(memories()) < (by_memory + 1) * (8 << 30)


def test_a_run_checks_the_room_for_its_boxes_before_it_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(slots: int) -> None:
        raise HarnessFailure(f"no room for {slots}")

    monkeypatch.setattr(runner, "check_box_headroom", full)
    request = SutRequest(spec="command:/bin/true")
    plan = Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=write_bench(tmp_path / "bench"),
        out_dir=tmp_path / "runs",
        options=RunOptions(isolation="subprocess", concurrency=7),
    )

    with pytest.raises(HarnessFailure, match="no room for 7"):
        asyncio.run(Runner().execute(plan, system_under_test=open_sut(request, plan)))
    assert not list((tmp_path / "runs").glob("*.json"))
    # An agent of the harness has no box.
    assert asyncio.run(Runner().execute(plan, system_under_test=NullSut())).complete


def measured_with(limit: str, room: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Measure a program as a user who has set a limit of open files; it waits, so that many work at once."""
    write_bench(room / "bench", cases=[CaseFiles(f"case-{number:02}") for number in range(24)])
    (room / "agent.sh").write_text("#!/bin/sh\nsleep 2\n", encoding="utf-8")
    (room / "agent.sh").chmod(0o755)
    argv = eval_argv("run", TASK_CLASS, "--sut", "command:./agent.sh", "--quiet", "--json", *flags)
    return call_anew(["/bin/sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *argv], room)


def test_a_run_that_may_open_too_many_files_is_refused_before_its_first_case(tmp_path: Path) -> None:
    done = measured_with("-n 300", tmp_path, "--concurrency", "24")
    error = answered(done)["error"]

    assert (done.returncode, error["type"]) == (4, "HarnessFailure")
    assert re.search(r"24 cases at once may need \d+ open files, and the limit is 300", error["message"])
    assert "--concurrency" in error["hint"]
    assert "ulimit -n" in error["hint"]
    assert not (tmp_path / ".codegenie" / "eval" / "runs" / "00000000.json").exists()


@pytest.fixture
def few_files() -> Iterator[int]:
    """Lower the limit of open files, as far as this process may raise it again; return the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_of_open_files_is_raised_as_far_as_a_run_needs_it_and_no_further(few_files: int) -> None:
    def after(slots: int) -> tuple[int, int]:
        make_room_for_files(slots)
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    assert [after(2), after(24), after(3)] == [
        (256, few_files),
        (files_needed(24), few_files),
        (files_needed(24), few_files),
    ]


def test_as_many_files_as_are_counted_are_enough(tmp_path: Path) -> None:
    done = measured_with(f"-S -n 120 && ulimit -H -n {files_needed(24)}", tmp_path, "--concurrency", "24")

    assert (done.returncode, answered(done)["usage"]["void_attempts"]) == (0, 0), done.stdout


def processes_limit(number: int) -> tuple[str, str]:
    text = Path(f"/proc/{number}/limits").read_text(encoding="ascii")
    found = re.search(r"^Max processes +(\w+) +(\w+)", text, re.MULTILINE)
    assert found is not None
    return found[1], found[2]


@each_class
def test_the_last_processes_of_a_user_are_out_of_reach_of_a_rubric(
    isolation_class: IsolationClass, most: int
) -> None:
    def look(copy: int) -> tuple[tuple[str, str], str]:
        guardian = parent_of(parent_of(copy))
        return processes_limit(copy), processes_limit(guardian)[0]

    of_the_copy, of_the_guardian = look_at(isolation_class, look)

    # A user namespace takes on the limit of whoever makes it, here the guardian.
    assert of_the_guardian == str(most - LIMITS.user_tasks_kept // 2)
    if isolation_class == "landlock":
        assert of_the_copy == (str(most - LIMITS.user_tasks_kept),) * 2


def test_nor_does_a_plain_child_reach_them(most: int) -> None:
    source = "import os, resource\nos.write(1, repr(resource.getrlimit(resource.RLIMIT_NPROC)).encode())"
    left = most - LIMITS.user_tasks_kept
    assert run_confined("subprocess", source).stdout == repr((left, left))


REFUSING = """\
                self.refused = getattr(self, "refused", 0) + 1
                if self.refused % {every}:
                    raise syscalls.Refused(11, "all are taken")
                copy = syscalls.fork_into("""


def refuse(monkeypatch: pytest.MonkeyPatch, directory: Path, every: int) -> None:
    edit = ("zygote.py", "                copy = syscalls.fork_into(", REFUSING.format(every=every))
    use_edited_guardian(monkeypatch, directory, edit)


@each_class
def test_a_copy_that_cannot_be_made_at_once_is_made_a_little_later(
    isolation_class: IsolationClass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, tmp_path, every=4)
    assert run_confined(isolation_class, "print('made')").stdout == "made\n"


def test_a_copy_that_can_never_be_made_is_no_fault_of_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, tmp_path, every=1_000_000)

    async def run() -> None:
        async with a_launcher("namespace") as launcher:
            await run_by(launcher, "pass")

    with pytest.raises(HarnessFailure, match="all are taken"):
        asyncio.run(run())


BUSY_SUPERVISOR = """\
import json, socket
control = socket.socket(fileno=0)
for turn in range(3):
    request, *_ = socket.recv_fds(control, 65536, 8)
    wall = {"wall": 0.1, "leaked": 0, "cancelled": False, "timed_out": False, "fit": True, "exit": 7}
    answer = {"error": "BlockingIOError", "passing": True} if turn < 2 else wall
    control.sendall(json.dumps(answer).encode() + b"\\n")
control.recv(1)
"""


def test_a_process_that_a_supervisor_cannot_start_at_once_is_started_a_little_later(tmp_path: Path) -> None:
    async def run() -> ProcessEnd:
        supervisor = Supervisor(*start_program([real_interpreter(), "-S", "-c", BUSY_SUPERVISOR], {}))
        try:
            return await supervisor.run(ProcessRequest(("/bin/true",), str(tmp_path), {}, (), 20.0))
        finally:
            supervisor.dismiss()
            supervisor.reap()

    assert asyncio.run(run()).exit_code == 7
