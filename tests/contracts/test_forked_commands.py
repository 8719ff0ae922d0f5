"""A command in a fork of the command server is the command that a new process would be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegenie.eval import decoding
from tests.support import command_server
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call_anew, environment, eval_argv, run_argv, write_agent
from tests.support.forked_commands import CommandServer, Servers, run_in_fork

COMMANDS = {
    "the version": [sys.executable, "-m", "codegenie", "--version"],
    "a help text": eval_argv("run", "--help"),
    "an unknown flag": eval_argv("list", "--no-such-flag"),
    "a refusal": eval_argv("run", "no-such-class", "--sut", "null"),
    "a refusal as JSON": eval_argv("digest", "no-such-class", "--json"),
    "a list": eval_argv("list", "--json"),
    "a digest": eval_argv("digest", TASK_CLASS, "--json"),
    "a policy": eval_argv("tiers"),
}
# A module in the place of the command: writes down what the process is given.
NOTICING = """\
import gc, json, os, resource, signal, sys, threading
STREAMS = (sys.stdin, sys.stdout, sys.stderr)
found = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "flags": list(sys.flags),
    "path": sys.path,
    "environment": dict(os.environ),
    "directory": os.getcwd(),
    "group": os.getpgid(0),
    "session": os.getsid(0),
    "signals": {int(one): str(signal.getsignal(one)).partition(" at ")[0] for one in signal.valid_signals()},
    "blocked": [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "descriptors": [one for one in range(3, 64) if os.path.lexists(f"/proc/self/fd/{one}")],
    "streams": [[one.name, one.mode, one.encoding, one.errors] for one in STREAMS],
    "buffering": [[one.line_buffering, one.write_through] for one in STREAMS],
    "buffers": [[one.buffer.name, one.buffer.mode, str(type(one.buffer)), one.seekable()] for one in STREAMS],
    "limits": [resource.getrlimit(one) for one in range(16)],
    "collects": [gc.isenabled(), *gc.get_threshold()],
    "threads": threading.active_count(),
    "umask": os.umask(0o77),
    "main": sorted(vars(sys.modules["__main__"])),
}
print(json.dumps({"parent": os.getppid(), **found}), flush=True)
os._exit(7)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[CommandServer]:
    started = CommandServer((), environment())
    yield started
    started.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_bench(tmp_path / "bench", cases=["one", "two"])
    write_agent(tmp_path)
    return tmp_path


def forked(
    server: CommandServer, argv: list[str], directory: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    return run_in_fork(server, argv, directory, environment(**more), 240)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fork_prints_and_exits_as_a_new_process_does(
    server: CommandServer, directory: Path, command: str
) -> None:
    argv = COMMANDS[command]
    in_fork, anew = forked(server, argv, directory), call_anew(argv, directory)

    assert vars(in_fork) == vars(anew)
    assert anew.stdout or anew.stderr


def test_a_run_in_a_fork_comes_to_the_report_of_a_new_process(server: CommandServer, directory: Path) -> None:
    def report(done: subprocess.CompletedProcess[str]) -> object:
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)["report"]
        scores = [(case, {**score, "wall_clock_ms": 0}) for case, score in found["per_case"]]
        return scores, found["isolation_class"], found["sut"]

    in_fork = report(forked(server, run_argv("--json", "--out", "one", "--no-cache"), directory))
    anew = report(call_anew(run_argv("--json", "--out", "two", "--no-cache"), directory))

    assert in_fork == anew
    verify = eval_argv("verify", "--out", "one")
    assert vars(forked(server, verify, directory)) == vars(call_anew(verify, directory))


@pytest.mark.parametrize("closed", [1, 2])
def test_a_reader_who_left_is_the_same_exit_code(server: CommandServer, directory: Path, closed: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = eval_argv("list") if closed == 1 else eval_argv("list", "--no-such-flag")
    streams = [subprocess.DEVNULL] * 3
    streams[closed] = writer
    with open(os.devnull, "rb+", 0) as nowhere:
        numbers = [writer if stream == writer else nowhere.fileno() for stream in streams]
        in_fork = server.start(argv, directory, environment(), numbers).wait()
    stdin, stdout, stderr = streams
    anew = subprocess.run(
        argv,
        cwd=directory,
        env=environment(),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        check=False,
        timeout=240,
    )
    os.close(writer)

    assert in_fork == anew.returncode != 0


def test_a_fork_notices_of_its_start_what_a_new_process_does(server: CommandServer, tmp_path: Path) -> None:
    (tmp_path / "noticing.py").write_text(NOTICING, encoding="utf-8")
    argv = [sys.executable, "-m", "noticing", "one", "--two"]

    def found(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
        assert (done.returncode, done.stderr) == (7, "")
        document: dict[str, object] = json.loads(done.stdout)
        return document

    anew = found(call_anew(argv, tmp_path))
    in_fork = found(forked(server, argv, tmp_path))

    assert anew.pop("parent") == os.getpid() != in_fork.pop("parent")
    assert in_fork == anew


def test_a_fork_is_waited_for_and_ended_as_a_process_is(server: CommandServer, directory: Path) -> None:
    (directory / "agent.py").write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    argv = run_argv("--isolation", "subprocess")
    with open(os.devnull, "rb+", 0) as nowhere:
        command = server.start(argv, directory, environment(), [nowhere.fileno()] * 3)

    assert command.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(0.01)
    command.send_signal(signal.SIGKILL)
    assert [command.wait(240), command.poll(), command.wait()] == [-9] * 3
    command.kill()  # nothing is there to be killed
    assert command.poll() == -9


def test_a_variable_that_may_differ_reaches_a_fork(server: CommandServer, directory: Path) -> None:
    (directory / "bench").rename(directory / "elsewhere")
    argv = eval_argv("digest", TASK_CLASS, "--json")
    here = forked(server, argv, directory)
    there = forked(server, argv, directory, CODEGENIE_EVAL_BENCH_ROOT="elsewhere")

    assert (here.returncode, there.returncode) == (2, 0)


def test_a_module_in_the_place_of_an_imported_one_is_imported_in_its_place(
    server: CommandServer, tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit(77)\n", encoding="utf-8")

    assert forked(server, eval_argv("list"), tmp_path).returncode == 77
    assert call_anew(eval_argv("list"), tmp_path).returncode == 77


@pytest.mark.parametrize(
    ("argv", "more"),
    [
        (["/bin/sh", "-c", "true"], {}),
        ([sys.executable, "-c", "pass"], {}),
        ([sys.executable, "-I", "-m", "codegenie", "--version"], {}),
        ([sys.executable, "-m", "codegenie_of_another"], {}),
        (eval_argv("list"), {"PYTHONPATH": "elsewhere"}),
        (eval_argv("list"), {"SERVICE_TOKEN": "sk-live-4f7a91c0"}),
        (eval_argv("list"), {"LC_ALL": "POSIX"}),
    ],
)
def test_what_a_fork_cannot_be_is_a_new_process(argv: list[str], more: dict[str, str]) -> None:
    servers = Servers()
    servers.allow(environment())

    assert servers.server_for(argv, environment(**more)) is None


def test_servers_are_kept_apart_by_flags_and_start_only_where_they_are_allowed(tmp_path: Path) -> None:
    program, *rest = eval_argv("list")
    servers = Servers()
    assert servers.server_for([program, *rest], environment()) is None
    servers.allow(environment())
    plain = servers.server_for([program, *rest], environment(TMPDIR=str(tmp_path)))
    safe = servers.server_for([program, "-P", *rest], environment())
    assert plain is not None
    assert safe is not None
    assert plain is not safe is servers.server_for([program, "-P", *rest], environment())
    (tmp_path / "click.py").write_text("raise SystemExit(77)\n", encoding="utf-8")
    codes = [
        forked(plain, [program, *rest], tmp_path).returncode,
        forked(safe, [program, "-P", *rest], tmp_path).returncode,
    ]
    servers.stop()

    assert codes == [77, 0]
    assert servers.server_for([program, *rest], environment()) is None


def test_a_command_that_takes_too_long_is_killed_and_said_to(server: CommandServer, directory: Path) -> None:
    write_agent(directory, seconds=60.0)
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_fork(server, run_argv(), directory, environment(), 0.5)
    assert forked(server, eval_argv("list"), directory).returncode == 0


def test_an_answer_that_is_remembered_before_the_first_command_is_named() -> None:
    for name in command_server.remembered():
        module, _, function = name.rpartition(".")
        getattr(sys.modules[module], function).cache_clear()
    assert command_server.remembered() == []
    decoding._date("2026-11-16")  # noqa: SLF001 - it remembers dates

    assert command_server.remembered() == ["codegenie.eval.decoding._date"]
