"""Runs of agents that are killed, stopped, lost and resumed: no finished call is repeated."""

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent_desk import FIXING, AgentDesk, agent_desk
from tests.support.benches import TASK_CLASS
from tests.support.commands import environment, user_argv
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

_SECONDS = 120.0


@pytest.fixture
def desk() -> Iterator[AgentDesk]:
    with agent_desk(("one", "two")) as made:
        yield made


def started(desk: AgentDesk, spec: str, *arguments: str) -> "subprocess.Popen[str]":
    argv = user_argv("run", TASK_CLASS, "--sut", spec, "--quiet", "--concurrency", "1", *arguments)
    return subprocess.Popen(
        argv,
        cwd=desk.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def wait_for_agent(run: "subprocess.Popen[str]", mark: str) -> None:
    """Wait until an agent sleeps; if it never does, say what its run has said."""
    deadline = time.monotonic() + _SECONDS
    while not processes_with(mark):
        if run.poll() is not None or time.monotonic() > deadline:
            run.send_signal(signal.SIGTERM)
            pytest.fail(f"no agent sleeps; its run ended with {run.poll()}: {run.communicate()[0]}")
        time.sleep(0.02)


def unique_seconds() -> str:
    """Return a long time that no other test on this machine sleeps for."""
    return f"{100_000 + secrets.randbelow(800_000)}.{secrets.randbelow(10**9):09}"


def processes_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def parent_of(number: int) -> int:
    status = Path(f"/proc/{number}/status").read_text(encoding="utf-8")
    return int(status.split("PPid:")[1].split()[0])


def is_below(number: int, ancestor: int) -> bool:
    """Say whether a process descends from another one; a process that is gone does not."""
    try:
        while number > 1 and number != ancestor:
            number = parent_of(number)
    except OSError:
        return False
    return number == ancestor


def journal(desk: AgentDesk) -> list[dict[str, object]]:
    (file,) = (desk.directory / ".codegenie/eval/runs/journal").iterdir()
    return [json.loads(line.partition(" ")[2]) for line in file.read_text(encoding="utf-8").splitlines()]


# The first case is mended at once. The second one sleeps, unless a file beside the agent says otherwise.
SLEEPER = """\
sed -i 's/a - b/a + b/' calc.py
[ "$CODEGENIE_CASE_ID" = one ] || sleep {mark}
"""


PYTHON_SLEEPER = """\
import subprocess


def solve(case):
    subprocess.run(["sed", "-i", "s/a - b/a + b/", "calc.py"])
    if case.case_id != "one":
        subprocess.run(["sleep", "{mark}"])
"""


@pytest.mark.parametrize("kind", ["command", "python"])
def test_a_killed_run_leaves_no_agent_and_repeats_no_finished_call(desk: AgentDesk, kind: str) -> None:
    mark = unique_seconds()
    spec = desk.script(SLEEPER.format(mark=mark)) if kind == "command" else "python:sleeper:solve"
    (desk.directory / "sleeper.py").write_text(PYTHON_SLEEPER.format(mark=mark), encoding="utf-8")
    run = started(desk, spec)
    wait_for_agent(run, mark)
    run.send_signal(signal.SIGKILL)
    run.communicate()

    wait_until(lambda: not processes_with(mark))
    asked = [line["case_id"] for line in journal(desk) if line.get("kind") == "asked"]
    assert asked == ["one", "two"]
    # The same command asks again for the second case alone. Its sleep is ended from outside, and it fails.
    again = started(desk, spec)
    wait_for_agent(again, mark)
    for number in processes_with(mark):
        os.kill(number, signal.SIGKILL)
    said, _ = again.communicate(timeout=_SECONDS)
    assert again.returncode == 0, said
    ((one,), (two,)) = desk.trials("one"), desk.trials("two")
    assert (one.get("interrupted", 0), two["interrupted"]) == (0, 1)
    assert [line["case_id"] for line in _kept_journal(desk) if line.get("kind") == "asked"] == [
        "one",
        "two",
        "two",
    ]


def _kept_journal(desk: AgentDesk) -> list[dict[str, object]]:
    record = max((desk.directory / ".codegenie/eval/runs").glob("0*.json"))
    digest = json.loads(record.read_text(encoding="utf-8"))["body"]["journal"]
    path = desk.directory / ".codegenie/eval/runs/artifacts" / digest[:2] / digest
    return [json.loads(line.partition(" ")[2]) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stopped_run_asks_its_agent_to_end_and_keeps_what_was_finished(
    desk: AgentDesk, number: signal.Signals
) -> None:
    mark = unique_seconds()
    spec = desk.script(SLEEPER.format(mark=mark))
    run = started(desk, spec)
    wait_for_agent(run, mark)
    began = time.monotonic()
    run.send_signal(number)
    said, _ = run.communicate(timeout=_SECONDS)

    assert run.returncode == 128 + number, said
    assert time.monotonic() - began < 60
    assert processes_with(mark) == []
    assert "passed           1 of 2 cases" in said
    assert "sut.cancelled" in said


def test_an_attempt_whose_box_is_lost_is_void_and_made_again(desk: AgentDesk) -> None:
    mark = unique_seconds()
    spec = desk.script(SLEEPER.format(mark=mark))
    run = started(desk, spec)
    wait_for_agent(run, mark)
    # As the machine might: the first process of the box is lost. It is the parent of the script.
    (sleeper,) = processes_with(mark)
    init = parent_of(parent_of(sleeper))
    assert b"box_server_program" in Path(f"/proc/{init}/cmdline").read_bytes()
    os.kill(init, signal.SIGKILL)
    wait_until(lambda: set(processes_with(mark)) - {sleeper})
    for number in processes_with(mark):
        os.kill(number, signal.SIGKILL)
    said, _ = run.communicate(timeout=_SECONDS)

    assert run.returncode == 0, said
    (trial,) = desk.trials("two")
    causes = [attempt["cause"] for attempt in trial["attempts"]]
    assert causes == ["the first process of the box was lost", None]
    assert "attempt_1_sut_stdout" not in trial["artifacts"]
    shown = desk.ask("show", "latest", "two", "--attempts").stdout
    assert "attempt 1        void: the first process of the box was lost" in shown


def test_an_agent_that_is_asked_to_end_has_its_grace(desk: AgentDesk) -> None:
    # What it writes after SIGTERM is its last word, and the run waits for it.
    spec = desk.script("trap 'echo farewell; exit 0' TERM\necho begun\nwhile :; do sleep 0.05; done\n")
    done = desk.run(spec, "--cases", "one", "--timeout", "1")
    (trial,) = desk.trials("one")

    assert done.returncode == 0, done.stderr
    assert trial["answer"]["failure_modes"][0]["code"] == "sut.timeout"
    assert desk.artifact(trial, "sut_stdout") == b"begun\nfarewell\n"


def test_a_second_run_of_the_same_agent_is_asked_again(desk: AgentDesk) -> None:
    spec = desk.script(FIXING)
    for _ in range(2):
        report = json.loads(desk.run(spec, "--json").stdout)["report"]
        assert report["passed_count"] == 2
    assert desk.trials("one")[0]["reused"] == "score"


def test_a_run_that_is_stopped_while_its_box_is_proved_says_so_and_records_nothing(desk: AgentDesk) -> None:
    run = started(desk, desk.script(FIXING))
    # Those of its own: other runs on this machine have box servers, too.
    wait_until(
        lambda: (
            run.poll() is not None
            or any(is_below(number, run.pid) for number in processes_with("box_server_program"))
        )
    )
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=_SECONDS)

    assert run.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
