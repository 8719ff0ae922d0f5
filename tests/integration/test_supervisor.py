"""The supervisor from its own side: what it answers, how it finds what was left, and how it leaves."""

import os
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.integration.forked import Change, forked_supervisor

LEAK = "import os, time\nif os.fork() == 0:\n    {}\n    time.sleep(30)\n"


def no_reaper(module: ModuleType) -> None:
    """Take away what only Linux has."""
    module.become_reaper = lambda: False  # type: ignore[attr-defined]


def no_list_of_children(module: ModuleType) -> None:
    """Take away the file that not every kernel has."""
    read = module._read  # noqa: SLF001 - a part of it is taken away

    def refuse(path: str) -> bytes:
        if path.endswith("/children"):
            raise FileNotFoundError(path)
        content: bytes = read(path)
        return content

    module._read = refuse  # type: ignore[attr-defined]  # noqa: SLF001 - likewise


def as_it_is(_module: ModuleType) -> None:
    """Take nothing away."""


WAYS = [as_it_is, no_reaper, no_list_of_children]


@pytest.mark.parametrize("change", WAYS)
def test_how_a_process_ended_is_told(tmp_path: Path, change: Change) -> None:
    with forked_supervisor({}, change) as supervisor:
        well = supervisor.ask("pass", tmp_path)
        badly = supervisor.ask("raise SystemExit(7)", tmp_path)
        killed = supervisor.ask("import os; os.kill(os.getpid(), 9)", tmp_path)
        late = supervisor.ask("import time; time.sleep(30)", tmp_path, seconds=0.2)

    assert (well["exit"], badly["exit"], killed["signal"]) == (0, 7, signal.SIGKILL)
    assert [answer["timed_out"] for answer in (well, badly, killed, late)] == [False, False, False, True]
    assert "exit" not in late
    assert [answer["leaked"] for answer in (well, badly, killed)] == [0, 0, 0]
    assert all(answer["fit"] for answer in (well, badly, killed, late))
    assert late["wall"] < 10


def test_a_supervisor_is_not_looked_into_by_what_it_starts(tmp_path: Path) -> None:
    # Without any capability, as the program of an ordinary user is; itself is the control.
    source = (
        "import ctypes, os\n"
        "ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())\n"
        "os.close(os.open(f'/proc/{os.getpid()}/mem', os.O_RDONLY))\n"
        "try:\n    os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)\n"
        "except PermissionError:\n    raise SystemExit(7)\n"
    )
    with forked_supervisor({}) as supervisor:
        assert supervisor.ask(source, tmp_path)["exit"] == 7


@pytest.mark.parametrize("change", WAYS)
def test_a_process_that_was_left_behind_is_found_and_ended(tmp_path: Path, change: Change) -> None:
    source = LEAK.format(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))")
    with forked_supervisor({}, change) as supervisor:
        answer = supervisor.ask(source + "while not os.path.exists('pid'): time.sleep(0.01)\n", tmp_path)
        again = supervisor.ask("pass", tmp_path)

    assert (answer["exit"], answer["leaked"]) == (0, 1)
    assert again["leaked"] == 0
    left = int((tmp_path / "pid").read_text())
    for _ in range(500):
        if not is_running(left):
            break
        time.sleep(0.01)
    assert not is_running(left)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("change", [as_it_is, no_list_of_children])
def test_a_reaper_finds_it_in_another_session_too(tmp_path: Path, change: Change) -> None:
    with forked_supervisor({}, change) as supervisor:
        assert supervisor.ask(LEAK.format("os.setsid()"), tmp_path)["leaked"] == 1


def test_who_ignores_every_signal_that_can_be_ignored_is_ended_all_the_same(tmp_path: Path) -> None:
    source = (
        "import os, signal, time\n"
        "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "os.fork()\n"
        "time.sleep(30)\n"
    )
    with forked_supervisor({}) as supervisor:
        answer = supervisor.ask(source, tmp_path, seconds=0.5)

    assert (answer["timed_out"], answer["fit"]) == (True, True)


def test_a_helper_that_ends_by_itself_is_no_leak(tmp_path: Path) -> None:
    with forked_supervisor({}) as supervisor:
        assert supervisor.ask("import os, time\nif os.fork() == 0: time.sleep(0.05)", tmp_path)["leaked"] == 0


def test_a_word_of_the_harness_ends_the_tree_at_once(tmp_path: Path) -> None:
    with forked_supervisor({}) as supervisor:
        started = time.monotonic()
        supervisor.send(["/bin/sleep", "300"], tmp_path, 300.0)
        supervisor.socket.send(b'{"cancel": true}\n')
        answer = supervisor.answer()
        # One that crosses the answer is of no consequence.
        supervisor.socket.send(b'{"cancel": true}\n')
        assert supervisor.ask("pass", tmp_path)["exit"] == 0

    assert time.monotonic() - started < 60
    assert (answer["cancelled"], answer["timed_out"]) == (True, False)


def test_a_program_that_is_not_there_is_an_error_and_no_end(tmp_path: Path) -> None:
    with forked_supervisor({}) as supervisor:
        supervisor.send(["/nowhere"], tmp_path)
        assert supervisor.answer()["error"].startswith("FileNotFoundError")
        supervisor.send(["/bin/true"], tmp_path / "nowhere")
        assert supervisor.answer()["error"].startswith("FileNotFoundError")


def test_streams_arrive_in_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("in", "out", "err", "more")]
    paths[0].write_text("question")
    descriptors = [os.open(path, os.O_RDWR | os.O_CREAT) for path in paths]
    source = "import os; [os.write(n, str(n).encode()) for n in (1, 2, 3)]; os.write(1, os.read(0, 99))"
    with forked_supervisor({}) as supervisor:
        assert supervisor.ask(source, tmp_path, streams=descriptors)["exit"] == 0
    for descriptor in descriptors:
        os.close(descriptor)

    assert [path.read_text() for path in paths[1:]] == ["1question", "2", "3"]


def test_limits_are_inherited_and_privileges_renounced(tmp_path: Path) -> None:
    source = (
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_CPU)\n"
        "assert (soft, hard) == (7, 12), (soft, hard)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (99, 99)\n"
        "assert 'NoNewPrivs:\\t1' in open('/proc/self/status').read()\n"
    )
    limits = {"RLIMIT_CPU": 7, "RLIMIT_NOFILE": 99}
    with forked_supervisor({"limits": limits, "renounce_privileges": True}) as supervisor:
        assert supervisor.ask(source, tmp_path)["exit"] == 0


def test_a_limit_that_is_lower_already_is_not_raised(tmp_path: Path) -> None:
    def lowered(module: ModuleType) -> None:
        module.resource.setrlimit(module.resource.RLIMIT_NOFILE, (50, 50))

    source = "import resource; assert resource.getrlimit(resource.RLIMIT_NOFILE) == (50, 50)"
    with forked_supervisor({"limits": {"RLIMIT_NOFILE": 99}}, lowered) as supervisor:
        assert supervisor.ask(source, tmp_path)["exit"] == 0


def test_a_supervisor_whose_limits_were_changed_says_that_it_is_no_longer_fit(tmp_path: Path) -> None:
    # One that nothing here needs: with files of one byte the fork could not even save its coverage.
    source = "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_SIGPENDING, (1, 1))"
    with forked_supervisor({}) as supervisor:
        assert supervisor.ask("pass", tmp_path)["fit"]
        assert not supervisor.ask(source, tmp_path)["fit"]


def a_directory_to_remove(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    deep = directory
    for _ in range(30):
        deep /= "deep"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (directory / "precious").symlink_to(tmp_path / "precious")
    for level in (deep, deep.parent, directory / "deep"):
        level.chmod(0)
    (tmp_path / "precious").mkdir(exist_ok=True)
    (tmp_path / "precious" / "kept").write_text("x")
    return directory


@pytest.mark.parametrize("busy", [False, True])
def test_without_a_harness_it_ends_its_tree_and_removes_the_directory(tmp_path: Path, busy: bool) -> None:
    directory = a_directory_to_remove(tmp_path)
    with forked_supervisor({"directory": str(directory)}) as supervisor:
        if busy:
            supervisor.send(["/bin/sleep", "300"], tmp_path, 300.0)
            time.sleep(0.1)
        started = time.monotonic()

    assert time.monotonic() - started < 60
    assert not directory.exists()
    assert (tmp_path / "precious" / "kept").exists()


def test_a_link_where_the_directory_was_leads_nowhere(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "kept").write_text("x")

    def at_once(module: ModuleType) -> None:
        module._REMOVAL_SECONDS = 0.1  # type: ignore[attr-defined]  # noqa: SLF001 - not to wait for it

    with forked_supervisor({"directory": str(directory)}, at_once):
        directory.symlink_to(tmp_path / "precious")

    assert (tmp_path / "precious" / "kept").exists()


def test_a_supervisor_that_is_dismissed_removes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with forked_supervisor({"directory": str(directory)}) as supervisor:
        supervisor.socket.send(b'{"leave": true}\n')
        assert supervisor.socket.recv(1) == b""

    assert directory.exists()
