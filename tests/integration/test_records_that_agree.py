"""What the writer and `verify` agree on: where an agent ran and when, how much is said, where it is kept."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from codegenie.eval.errors import ChainTamperDetected, EvalError, SettingsInvalid, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.chain import decode_record
from codegenie.eval.models import RunPlan, SutBoundary, SutIdentity
from codegenie.eval.runner import Runner
from codegenie.eval.suts.builtin import NullSut
from codegenie.eval.suts.identity import boundary_problem
from codegenie.eval.suts.spec import SutRequest, open_sut
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import environment, eval_argv, start
from tests.support.logs import forge, read_records, record_run, stopped_run, verified


@pytest.mark.parametrize(
    ("spec", "boundary", "agrees"),
    [
        ("null", "harness", True),
        ("oracle", "harness", True),
        ("replay:somewhere", "harness", True),
        ("python:agent:solve", "process", True),
        ("command:agent", "process", True),
        ("in-process:tests.agent", "in-process", True),
        ("an embedder's own", "process", True),
        ("an embedder's own", "in-process", True),
        ("an embedder's own", "harness", False),
        ("null", "process", False),
        ("python:agent:solve", "harness", False),
        ("python:agent:solve", "in-process", False),
        ("in-process:tests.agent", "process", False),
    ],
)
def test_a_spec_implies_where_a_system_runs(spec: str, boundary: SutBoundary, agrees: bool) -> None:
    assert (boundary_problem(SutIdentity(spec=spec), boundary) is None) is agrees


class Impostor(NullSut):
    """An embedder's agent that claims to be the harness's own."""

    identity = SutIdentity(spec="my-agent")


def test_a_system_that_contradicts_itself_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    with pytest.raises(SutSpecInvalid, match="'harness', which is not that of 'my-agent'"):
        record_run(root, tmp_path / "runs", Impostor())
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_resumed_started_when_it_started(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", cases=["one", "two"])
    stopped_run(root, tmp_path / "runs", 1, cache_dir=tmp_path / "cache")
    # A clock that was days ahead when the run began: what is resumed by a right one still agrees with itself.
    forge(tmp_path / "runs", 0, lambda record: record.update(recorded_at="2999-01-01T00:00:00Z"))
    report = record_run(root, tmp_path / "runs", cache_dir=tmp_path / "cache").report

    assert [record["kind"] for record in read_records(tmp_path / "runs")][1:] == [
        "run.resumed",
        "run.finished",
    ]
    assert report.started_at.isoformat() == "2999-01-01T00:00:00+00:00"
    assert verified(tmp_path / "runs").link is not None


@pytest.mark.parametrize("time_of_start", ["yesterday", "2026-01-01T00:00:00"])
def test_a_start_without_a_time_is_not_resumed(tmp_path: Path, time_of_start: str) -> None:
    root = write_bench(tmp_path / "bench", cases=["one", "two"])
    stopped_run(root, tmp_path / "runs", 1, cache_dir=tmp_path / "cache")
    forge(tmp_path / "runs", 0, lambda record: record.update(recorded_at=time_of_start))

    with pytest.raises(ChainTamperDetected):
        record_run(root, tmp_path / "runs", cache_dir=tmp_path / "cache")


@dataclass(frozen=True)
class Places:
    """Where a run keeps what it keeps."""

    out: str
    cache: str


@pytest.mark.parametrize(
    "places", [Places(f"bench/{TASK_CLASS}/cases/x", "cache"), Places("runs", f"link/{TASK_CLASS}")]
)
def test_nothing_is_kept_in_a_task_class(tmp_path: Path, places: Places) -> None:
    root = write_bench(tmp_path / "bench")
    (tmp_path / "link").symlink_to(root)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SettingsInvalid, match="lies inside the task class"):
        record_run(root, tmp_path / places.out, cache_dir=tmp_path / places.cache)
    assert sorted(tmp_path.rglob("*")) == before


def plan(tmp_path: Path) -> RunPlan:
    root = write_bench(tmp_path / "bench")
    return Runner().plan(task_class_name=TASK_CLASS, bench_root=root, out_dir=tmp_path / "runs")


@pytest.mark.parametrize(
    "request_",
    [
        SutRequest("python:" + "a" * LIMITS.text_characters + ":b"),
        SutRequest("python:json:loads", "v" * LIMITS.text_characters),
        SutRequest("python:json:loads", None, ("N" * LIMITS.text_characters,)),
    ],
)
def test_what_no_record_takes_is_no_system_under_test(tmp_path: Path, request_: SutRequest) -> None:
    with pytest.raises(SutSpecInvalid, match="a record of the log holds at most 1000"):
        open_sut(request_, plan(tmp_path))


def test_a_message_quotes_some_hundred_characters() -> None:
    error = EvalError("x" * 10**6)

    assert len(error.message) == len(str(error)) == 600
    assert error.message.endswith("x…")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("run.resumed", "5100 bytes are more than such a record may have"),
        ("run.nothing", "fails verification: : Input tag 'run.nothing'"),
        ("run.finished", " values"),
    ],
)
def test_a_record_is_refused_by_its_kind_its_size_and_its_values(kind: str, says: str) -> None:
    tail = (
        f'],"index":0,"kind":"{kind}","previous":"{"0" * 64}","recorded_at":"0","run_id":"0","schema":"a"}}'
    )
    value = "[]," * (1_000 if kind != "run.finished" else 3_000)
    raw = (f'{{"body":[{value}""'.ljust(5_100 - len(tail)) + tail).encode()
    with pytest.raises(ChainTamperDetected) as caught:
        decode_record("00000000.json", raw)
    assert says in caught.value.message


def test_an_interrupt_while_the_program_loads_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "codegenie", "--help"],
        env=environment(PYTHONPATH=os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "")


def test_a_run_killed_while_its_agent_is_imported_leaves_nothing(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    started = tmp_path / "started"
    agent = f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(60)\n"
    (tmp_path / "agent.py").write_text(agent, encoding="utf-8")
    places = tmp_path / "tmp"
    places.mkdir()
    argv = eval_argv("run", TASK_CLASS, "--sut", "python:agent:solve", "-q")
    process = start(argv, tmp_path, environment(TMPDIR=str(places)))
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    before = os.listdir(places)
    process.kill()
    process.wait()
    while os.listdir(places) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (len(before) > 0, os.listdir(places)) == (True, [])
