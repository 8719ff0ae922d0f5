"""Full and read-only disks and broken logs: what was written before is not lost, and no agent is asked."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.log.chain import MOST_RECORDS, Link, record_hash, record_name
from codegenie.eval.log.disk import HEAD, AuditLog
from codegenie.eval.log.records import ExamFinished
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import answered, asked, call, eval_argv, in_private_mounts, run_argv, write_agent
from tests.support.logs import read_records, record_files, record_run, verified
from tests.support.sampling import sampled

EXAM = ExamFinished(task_class=TASK_CLASS, case_set_digest="0" * 64, rubric_digest="1" * 64, passed=True)

ONE_RECORD = """\
import sys
from pathlib import Path
from codegenie.eval.log.disk import AuditLog
from codegenie.eval.log.records import ExamFinished
from codegenie.eval.system.clock import SystemClock

exam = ExamFinished(task_class="c", case_set_digest="0" * 64, rubric_digest="1" * 64, passed=True)
AuditLog(Path(sys.argv[1]), SystemClock()).append(exam, "exam-2")
"""


def append(log: Path) -> None:
    AuditLog(log, SystemClock()).append(EXAM, "exam-1")


# --- disks -----------------------------------------------------------------------------------------

FULL_DISK = """\
import json, os, shutil, subprocess, sys
from pathlib import Path
import codegenie.eval.cli.run_command
from codegenie.__main__ import main
from codegenie.eval.errors import EvalError
from codegenie.eval.inspection import verify_log
from codegenie.eval.system.clock import SystemClock

command, steps, disk = *map(json.loads, sys.argv[1:]), Path("disk")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "disk"], check=True)
log = disk / "runs"


def contents():
    return {path.name: path.read_bytes() for path in sorted(log.glob("*.json"))}


def run():
    # In a fork, which need not import it again.
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.argv[1:] = command
        main()
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def attempt(pages_free):
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    # All of it has to be written again, so that each of the writes meets the full disk once.
    shutil.rmtree(disk / "cache", ignore_errors=True)
    shutil.rmtree(log / "artifacts", ignore_errors=True)
    if pages_free is not None:
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(b"x" * (free - pages_free * 4096))
    before = contents()
    code, said = run()
    after = contents()
    try:
        verify_log(log, SystemClock())
        holds = True
    except EvalError as error:
        holds = str(error)
    intact = all(after.get(name) == raw for name, raw in before.items())
    print(json.dumps({"free": pages_free, "exit": code, "holds": holds, "intact": intact,
                      "records": [len(before), len(after)], "said": said}), flush=True)


attempt(None)
for pages in range(0, 18, steps):
    attempt(pages)
attempt(None)
"""


@pytest.mark.parametrize("pages", sampled((2, 1), in_every_run=lambda pages: pages == 2))
def test_a_full_disk_leaves_everything_before_it_intact_and_exits_with_4(tmp_path: Path, pages: int) -> None:
    """The disk has room for nothing, for a journal, for a start, … until it has room for a run."""
    write_bench(tmp_path / "bench", cases=["one", "two"])
    (tmp_path / "disk").mkdir()
    program = tmp_path / "full_disk.py"
    program.write_text(FULL_DISK, encoding="utf-8")
    command = (
        *("eval", "run", TASK_CLASS, "--sut", "null", "--no-cache", "--json", "--quiet"),
        *("--out", "disk/runs", "--cache", "disk/cache"),
    )
    done = in_private_mounts(program, json.dumps(command), str(pages))
    assert done.returncode == 0, done.stderr
    attempts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in attempts if one["holds"] is not True or not one["intact"]] == []
    assert attempts[0]["exit"] == attempts[-1]["exit"] == 0
    exits = [one["exit"] for one in attempts[1:-1]]
    assert exits[0] == 4
    assert set(exits) == {0, 4}
    for one in attempts[1:-1]:
        assert one["exit"] == 0 or "No space left" in json.loads(one["said"])["error"]["message"]
    said = " ".join(one["said"] for one in attempts)
    for what in ("the journal", "the audit log", "an artefact", "the outcome store"):
        assert f"{what}: No space left" in said


def test_a_file_that_may_not_grow_is_a_typed_failure(tmp_path: Path) -> None:
    """The same without a mount: the kernel refuses the write in the middle of a record."""
    append(tmp_path / "runs")
    before = (tmp_path / "runs" / record_name(0)).read_bytes()
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh"]
    program = [sys.executable, "-c", ONE_RECORD, str(tmp_path / "runs")]
    done = call([*limited, *program], tmp_path)
    assert done.returncode == 1
    assert "HarnessFailure: cannot write the audit log: File too large" in done.stderr
    assert (tmp_path / "runs" / record_name(0)).read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        ".lock",
        record_name(0),
        HEAD,
    ]
    append(tmp_path / "runs")
    verified(tmp_path / "runs")


READ_ONLY = """\
import json, subprocess, sys
for number, directory in enumerate(("runs", "cache")):
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", directory], check=True)
for command in json.loads(sys.argv[1]):
    done = subprocess.run(command, capture_output=True, text=True)
    print(json.dumps({"exit": done.returncode, "said": done.stdout}))
"""


def test_a_read_only_directory_is_a_typed_refusal_and_can_still_be_verified(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    calls = write_agent(tmp_path)
    places = ("--out", "runs", "--cache", "cache", "--json")
    assert call(run_argv(*places), tmp_path).returncode == 0
    assert asked(calls) == ["one"]
    program = tmp_path / "read_only.py"
    program.write_text(READ_ONLY, encoding="utf-8")
    commands = [run_argv(*places), eval_argv("verify", "--out", "runs", "--json")]
    done = in_private_mounts(program, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    ran, checked = (json.loads(line) for line in done.stdout.splitlines())
    assert ran["exit"] == 4
    assert json.loads(ran["said"])["error"]["type"] == "HarnessFailure"
    assert "Read-only" in json.loads(ran["said"])["error"]["message"]
    assert checked["exit"] == 0
    assert json.loads(checked["said"])["records"] == 2
    assert asked(calls) == ["one"], "no agent is asked for what cannot be written down"


@pytest.mark.parametrize("kind", ["file", "below a file", "link to nowhere"])
def test_an_out_directory_that_is_none_is_a_typed_refusal(tmp_path: Path, kind: str) -> None:
    root = write_bench(tmp_path / "bench")
    out = tmp_path / "runs"
    if kind == "link to nowhere":
        out.symlink_to(tmp_path / "nowhere" / "there")
    else:
        out.write_text("not a directory")
    with pytest.raises(HarnessFailure) as caught:
        record_run(root, out / "inner" if kind == "below a file" else out, right_answer)
    assert caught.value.exit_code == 4


def test_a_log_with_the_last_number_takes_no_more_records(tmp_path: Path) -> None:
    last = tmp_path / record_name(MOST_RECORDS - 1)
    append(tmp_path)
    (tmp_path / record_name(0)).rename(last)
    (tmp_path / HEAD).write_bytes(Link(MOST_RECORDS, record_hash(last.read_bytes())).encode())
    assert len(last.name) == len(record_name(0))
    with pytest.raises(HarnessFailure, match="has reached its largest size"):
        append(tmp_path)
    assert record_files(tmp_path) == [last]


def test_a_record_that_nobody_would_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    (first,) = record_files(tmp_path)
    monkeypatch.setattr("codegenie.eval.log.disk.RECORD_BYTES", len(first.read_bytes()))
    with pytest.raises(HarnessFailure, match="has reached its largest size"):
        AuditLog(tmp_path, SystemClock()).append(
            ExamFinished(
                task_class=TASK_CLASS,
                case_set_digest="0" * 64,
                rubric_digest="1" * 64,
                passed=True,
                findings=("x" * 500,),
            ),
            "too-large",
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    verified(tmp_path)


# --- a broken log ----------------------------------------------------------------------------------


def damage(log: Path, how: str) -> None:
    if how == "a flipped bit":
        path = log / record_name(0)
        raw = path.read_bytes()
        path.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    elif how == "a dropped record":
        (log / record_name(0)).unlink()
    elif how == "a cut tail":
        (log / record_name(1)).unlink()
    elif how == "no HEAD":
        (log / HEAD).unlink()
    elif how == "a record twice":
        shutil.copyfile(log / record_name(0), log / record_name(2))
    elif how == "records swapped":
        first, second = (log / record_name(index) for index in (0, 1))
        raw = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(raw)
    elif how == "a torn record":
        path = log / record_name(1)
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "a HEAD that is a directory":
        (log / HEAD).unlink()
        (log / HEAD).mkdir()
    else:
        (log / "stray.json").write_text("{}")


DAMAGES = [
    "a flipped bit",
    "a dropped record",
    "a cut tail",
    "a record twice",
    "records swapped",
    "a torn record",
    "no HEAD",
    "a HEAD that is a directory",
    "a stray file",
]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_broken_log_stops_the_next_run_before_the_agent_is_asked(tmp_path: Path, how: str) -> None:
    root = write_bench(tmp_path / "bench")
    log = tmp_path / "runs"
    questions: list[str] = []

    async def agent(case: Any) -> dict[str, Any]:  # noqa: ANN401 - a SutCase
        questions.append(case.case_id)
        return await right_answer(case)

    record_run(root, log, agent)
    damage(log, how)
    before = {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()}
    with pytest.raises(ChainTamperDetected):
        record_run(root, log, agent)
    assert questions == ["one"]
    assert {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()} == before


def test_a_broken_log_stops_the_command_with_3_and_names_the_file(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    calls = write_agent(tmp_path)
    assert call(run_argv(), tmp_path).returncode == 0
    damage(tmp_path / ".codegenie/eval/runs", "a flipped bit")
    done = call(run_argv("--json"), tmp_path)
    assert done.returncode == 3
    assert answered(done)["error"]["type"] == "ChainTamperDetected"
    assert answered(done)["error"]["where"].endswith(record_name(0))
    assert asked(calls) == ["one"]


def test_a_log_that_breaks_during_a_run_takes_no_finish(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench")
    log = tmp_path / "runs"

    async def agent(case: Any) -> dict[str, Any]:  # noqa: ANN401 - a SutCase
        shutil.copyfile(log / record_name(0), log / record_name(1))
        return await right_answer(case)

    with pytest.raises(ChainTamperDetected):
        record_run(root, log, agent)
    assert len(record_files(log)) == 2
    (log / record_name(1)).unlink()
    assert [record["kind"] for record in read_records(log)] == ["run.started"]
    verified(log)
