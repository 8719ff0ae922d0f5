"""A run that dies is taken up by the same command, repeats no trial unsaid and comes to the same report."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.canonical import canonical_json
from tests.support.benches import write_bench
from tests.support.commands import (
    Started,
    answered,
    asked,
    call,
    environment,
    eval_argv,
    processes_told,
    run_argv,
    start,
    write_agent,
)
from tests.support.logs import Journaled, journaled, read_records, verified
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

CASES = [f"case-{number:02d}" for number in range(8)]
KILLS = (5, 25)
CONCURRENCY = 2

SLOW_RUBRIC = """\
import json, sys, time
request = json.load(sys.stdin)
time.sleep(0.03)
with open("expected/answer.txt", encoding="utf-8") as file:
    right = request["harness_output"].get("answer") == file.read()
json.dump({"passed": right, "score": 0.5 + right / 4, "breakdown": {}, "failure_modes": []}, sys.stdout)
"""


@dataclass(frozen=True)
class Workplace:
    """A bench and an agent, and how long the undisturbed command takes and what it reports."""

    directory: Path
    calls: Path
    seconds: float
    report: bytes


def stripped(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Remove what two runs may differ in: run id, times and durations."""
    if isinstance(value, dict):
        gone = {"run_id", "started_at", "ended_at", "wall_clock_ms"}
        return {key: stripped(inner) for key, inner in value.items() if key not in gone}
    return [stripped(inner) for inner in value] if isinstance(value, list) else value


def comparable(done: subprocess.CompletedProcess[str]) -> bytes:
    assert done.returncode == 0, done.stdout + done.stderr
    return canonical_json(stripped(answered(done)["report"]))


def command(name: str, *more: str) -> list[str]:
    """Return the command of one experiment, with a log and a store of its own."""
    return run_argv("--out", f"{name}/runs", "--cache", f"{name}/cache", "--json", *more)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    directory = tmp_path_factory.mktemp("resume")
    write_bench(directory / "bench", SLOW_RUBRIC, CASES)
    (directory / "tmp").mkdir()
    calls = write_agent(directory)
    seconds: list[float] = []
    report = b""
    for name in ("first", "second"):
        began = time.monotonic()
        report = comparable(call(command(name), directory))
        seconds.append(time.monotonic() - began)
    return Workplace(directory, calls, sum(seconds) / len(seconds), report)


def begin(place: Workplace, argv: list[str]) -> Started:
    # Who is killed leaves its private copies behind; not in everybody's directory.
    return start(argv, place.directory, environment(TMPDIR=str(place.directory / "tmp")))


def wait_for_the_dead(place: Workplace, *, agents_were_asked: bool) -> None:
    """Wait until nothing of a killed run is left: its agents end a moment later, and may still note a call.

    Its supervisors remove its directory last. A run that dies before it has any leaves the directory there.
    """
    private = place.directory / "tmp"
    deadline = time.monotonic() + 60
    while processes_told(str(private)) or (agents_were_asked and any(private.iterdir())):
        assert time.monotonic() < deadline, "something of the killed run is still there"
        time.sleep(0.005)
    for left in private.iterdir():
        shutil.rmtree(left, ignore_errors=True)


def kinds(log: Path) -> list[str]:
    return [record["kind"] for record in read_records(log)] if log.is_dir() else []


def phase(log: Path) -> str:
    """Say how far a killed run had come."""
    if "run.finished" in kinds(log):
        return "after the finish"
    if "run.started" not in kinds(log):
        return "before the start"
    done = len(journaled(log).measured)
    return f"{done * 4 // len(CASES)}/4 of the trials" if done < len(CASES) else "all trials, no finish"


@pytest.mark.parametrize("kills", sampled(KILLS, min(KILLS).__eq__))
def test_a_run_killed_at_any_moment_resumes_to_the_same_report(
    place: Workplace, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20261115)  # noqa: S311 - moments, not secrets
    phases: Counter[str] = Counter()
    for number in range(kills):
        # By how far it has come and not by the clock alone: a busy machine would die in its start every time.
        calls = number * (len(CASES) + 1) // kills
        moment = chance.uniform(0, place.seconds / (len(CASES) if calls else 2))
        phases[killed_and_resumed(place, f"kill-{number}-of-{kills}", calls, moment)] += 1
    with capsys.disabled():
        print(f"\n{kills} kills over {place.seconds:.2f} s:")  # noqa: T201 - the figure is the point
        for name, count in sorted(phases.items()):
            print(f"  {name:22} {'#' * count} {count}")  # noqa: T201
    assert phases.total() == kills
    assert len(phases) > 2, "the kills hit different phases"


def kill_after(running: Started, place: Workplace, count: int, moment: float) -> None:
    """Kill a run so many seconds after its agent was called so often, unless it ends before."""
    while running.poll() is None and len(asked(place.calls)) < count:
        time.sleep(0.002)
    try:
        running.wait(moment)
    except subprocess.TimeoutExpired:
        running.kill()
    running.wait(60)
    wait_for_the_dead(place, agents_were_asked=False)


def killed_and_resumed(place: Workplace, name: str, calls: int, moment: float) -> str:
    log = place.directory / name / "runs"
    place.calls.unlink(missing_ok=True)
    running = begin(place, command(name))
    kill_after(running, place, calls, moment)
    hit = phase(log)
    if log.is_dir():
        verified(log)
    left = journaled(log) if "trials" in hit else Journaled()
    before = len(asked(place.calls))
    done = call(command(name), place.directory)
    assert comparable(done) == place.report, hit
    verified(log)
    check_log(log, hit)
    again = asked(place.calls)[before:]
    assert not left.measured & set(again), "nothing finished is repeated"
    if hit != "after the finish":
        assert not left.produced & set(again), "nothing that the agent had produced is asked for again"
        assert sorted({*left.measured, *left.produced, *again}) == CASES
        assert len(asked(place.calls)) <= len(CASES) + CONCURRENCY
    assert interruptions(log) == dict.fromkeys(left.pending, 1), "what was asked for again is on the record"
    assert len(left.pending) <= CONCURRENCY
    return hit


def interruptions(log: Path) -> dict[str, int]:
    """Return how often each case of the newest run was asked for in vain; verify spells it in one way."""
    trials = read_records(log)[-1]["body"]["trials"]
    return {trial["case_id"]: trial["interrupted"] for trial in trials if "interrupted" in trial}


def check_log(log: Path, hit: str) -> None:
    if hit == "before the start":
        expected = ["run.started", "run.finished"]
    elif hit == "after the finish":
        expected = ["run.started", "run.finished"] * 2
    else:
        expected = ["run.started", "run.resumed", "run.finished"]
    records = read_records(log)
    assert [record["kind"] for record in records] == expected
    if "run.resumed" in expected:
        assert len({record["run_id"] for record in records}) == 1
    assert list((log / "journal").glob("*")) == [] or hit in {"before the start", "after the finish"}


def interrupted(place: Workplace, name: str, signal_number: int, after: int = 3) -> int:
    """Send a running command a signal once the agent was asked so often; returns its exit code."""
    place.calls.unlink(missing_ok=True)
    running = begin(place, command(name))
    deadline = time.monotonic() + 60
    while len(asked(place.calls)) < after:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    running.send_signal(signal_number)
    code = running.wait(120)
    wait_for_the_dead(place, agents_were_asked=True)
    return code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_run_that_the_same_command_resumes(
    place: Workplace, number: int, code: int
) -> None:
    name = f"signal-{number}"
    assert interrupted(place, name, number) == code
    log = place.directory / name / "runs"
    assert kinds(log) == ["run.started"]
    left = journaled(log)
    before = len(asked(place.calls))
    assert comparable(call(command(name), place.directory)) == place.report
    assert kinds(log) == ["run.started", "run.resumed", "run.finished"]
    resumed = read_records(log)[1]["body"]
    assert resumed["finished_trials"] == len(left.measured)
    assert resumed.get("interrupted_trials", 0) == len(left.pending)
    assert not left.measured & set(asked(place.calls)[before:])
    assert interruptions(log) == dict.fromkeys(left.pending, 1)
    verified(log)


def test_a_run_can_die_more_than_once(place: Workplace) -> None:
    for asked_about in (2, 3):
        assert interrupted(place, "twice", signal.SIGKILL, asked_about) == -signal.SIGKILL
    assert comparable(call(command("twice"), place.directory)) == place.report
    log = place.directory / "twice" / "runs"
    assert kinds(log) == ["run.started", "run.resumed", "run.resumed", "run.finished"]
    verified(log)


def test_of_two_resumers_one_gets_the_run_and_the_other_starts_its_own(place: Workplace) -> None:
    assert interrupted(place, "two", signal.SIGKILL) == -signal.SIGKILL
    resumers = [
        subprocess.Popen(
            command("two"), cwd=place.directory, env=environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [resumer.communicate(timeout=240)[0] for resumer in resumers]
    assert [resumer.returncode for resumer in resumers] == [0, 0]
    reports = [json.loads(output)["report"] for output in outputs]
    assert [canonical_json(stripped(report)) for report in reports] == [place.report] * 2
    log = place.directory / "two" / "runs"
    counts = Counter(kinds(log))
    assert counts == {"run.started": 2, "run.resumed": 1, "run.finished": 2}
    assert len({report["run_id"] for report in reports}) == 2
    verified(log)


def test_a_new_measurement_never_resumes_and_the_dead_run_is_listed_as_unfinished(place: Workplace) -> None:
    assert interrupted(place, "fresh", signal.SIGKILL) == -signal.SIGKILL
    log = place.directory / "fresh" / "runs"
    dead = read_records(log)[0]["run_id"]
    place.calls.unlink()
    assert comparable(call(command("fresh", "--no-cache"), place.directory)) == place.report
    assert kinds(log) == ["run.started", "run.started", "run.finished"]
    assert sorted(asked(place.calls)) == CASES
    done = call(eval_argv("verify", "--out", str(log), "--json"), place.directory)
    assert done.returncode == 0
    assert dead in json.dumps(answered(done)["unfinished_runs"])
    assert [run.run_id for run in verified(log).history.runs.values() if run.finished_index is None] == [dead]


def edit_journal(log: Path, edit: str) -> None:
    path = next((log / "journal").iterdir())
    raw = path.read_bytes()
    if edit == "torn":
        path.write_bytes(raw + b"0123456789abcdef {" + raw[20:60])
    else:
        lines = raw.splitlines(keepends=True)
        number = next(number for number, line in enumerate(lines) if b'"score":0.75' in line)
        lines[number] = lines[number].replace(b'"score":0.75', b'"score":0.95')
        path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("edit", ["torn", "damaged"])
def test_a_torn_end_costs_nothing_and_a_damaged_middle_the_run(place: Workplace, edit: str) -> None:
    assert interrupted(place, edit, signal.SIGKILL, 6) == -signal.SIGKILL
    log = place.directory / edit / "runs"
    known = journaled(log).measured
    assert len(known) >= 2
    edit_journal(log, edit)
    before = len(asked(place.calls))
    done = call(command(edit), place.directory)
    assert comparable(done) == place.report
    again = asked(place.calls)[before:]
    if edit == "torn":
        assert read_records(log)[1]["body"]["finished_trials"] == len(known)
        assert not known & set(again)
    else:
        assert kinds(log) == ["run.started", "run.started", "run.finished"]
        assert sorted(again) == CASES
        assert "counts as failed" in answered(done)["notes"][0]
    verified(log)
