"""What hostile programs in a box reach: each tries something, and the harness looks whether it came about.

Every one of them runs in a box. The same programs without walls are the control of the proof, in a box with a
pid namespace and another user: see `test_boxes_proof.py`.
"""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import BoxEnd, BoxLimits
from codegenie.eval.models import IsolationClass
from tests.support.boxed import Stage, living_below, stage
from tests.support.confinement import CONFINED
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

TRIES = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
def attempt(name, deed):
    try:
        found[name] = deed()
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, type(error).__name__)
    except Exception as error:
        found[name] = type(error).__name__
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"
"""
SAYS = "\nprint(json.dumps(found))\n"


@pytest.fixture(scope="module", params=sampled(CONFINED, CONFINED[0].__eq__))
def boxes(request: pytest.FixtureRequest) -> Iterator[Stage]:
    isolation_class: IsolationClass = request.param
    with stage(isolation_class) as opened:
        yield opened


@pytest.fixture(scope="module")
def namespace() -> Iterator[Stage]:
    with stage("namespace") as opened:
        yield opened


@pytest.fixture(scope="module")
def landlock() -> Iterator[Stage]:
    with stage("landlock") as opened:
        yield opened


def tried(boxes: Stage, deeds: str, *arguments: str, **request: object) -> dict[str, object]:
    played = boxes.play(TRIES + deeds + SAYS, *arguments, **request)  # type: ignore[arg-type]  # of any kind
    found: dict[str, object] = json.loads(played.stdout)
    return found


# Processes.


def test_signals_reach_no_process_outside_the_box(boxes: Stage) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    source = """
import os, signal, sys
for number in map(int, sys.argv[1:]):
    try:
        os.kill(number, signal.SIGUSR1)
    except OSError:
        pass
"""
    # To all processes only where a pid namespace holds no other ones: a broken wall must not end the machine.
    numbers = [-1, *range(1, 5000)] if boxes.isolation_class == "namespace" else []
    try:
        end = boxes.play(source, *map(str, (*numbers, os.getpid()))).end
        after = boxes.play("print('alive')").stdout
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert heard == []
    assert (end.lost, after) == (False, "alive\n")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]
)
def test_a_program_cannot_void_its_attempt_by_ending_the_first_process(boxes: Stage, number: int) -> None:
    source = f"""
import os
for target in {{1, os.getppid()}}:
    try:
        os.kill(target, {int(number)})
    except OSError:
        pass
raise SystemExit(5)
"""
    end = boxes.play(source).end

    assert (end.lost, end.exit_code) == (False, 5)


def test_a_program_looks_into_no_process_but_its_own(boxes: Stage) -> None:
    found = tried(
        boxes,
        """
for number in sorted({1, os.getppid(), int(sys.argv[1])}):
    for name in ("environ", "mem", "maps", "fd/3"):
        attempt(f"{number} {name}", lambda: open(f"/proc/{number}/{name}", "rb").read(1) and "done")
    for name in ("root", "cwd"):
        attempt(f"{number} {name}", lambda: os.listdir(f"/proc/{number}/{name}") and "done")
    ptrace = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
    attempt(f"{number} ptrace", lambda: call(ptrace, 16, number, 0, 0))
""",
        str(os.getpid()),
    )

    assert len(found) > 13
    assert "done" not in found.values()


def test_a_program_has_no_rights_and_gains_none(boxes: Stage) -> None:
    found = tried(
        boxes,
        """
attempt("root", lambda: os.setuid(0) or "done")
attempt("group", lambda: os.setgid(0) or "done")
attempt("chroot", lambda: os.chroot("/") or "done")
attempt("mknod", lambda: os.mknod("disk", 0o60666, os.makedev(8, 0)) or "done")
attempt("unshare", lambda: call({"x86_64": 272, "aarch64": 97}[os.uname().machine], 0x10000000))
attempt("keyring", lambda: call({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -4, 1))
attempt("io_uring", lambda: call(425, 1, 0))
attempt("vsock", lambda: socket.socket(40, 1) and "done")
attempt("packet", lambda: socket.socket(17, 3) and "done")
found["uids"] = list(os.getresuid())
""",
    )

    uids = found.pop("uids")
    if os.geteuid() == 0 or boxes.isolation_class == "namespace":
        assert uids == [61002] * 3
    assert found.pop("io_uring") == "ENOSYS"
    assert found.pop("vsock") == found.pop("packet") == "EAFNOSUPPORT"
    assert set(found.values()) <= {"EPERM", "EACCES", "EINVAL"}


def test_a_program_of_root_can_be_set_to_run_as_root_by_no_file(boxes: Stage) -> None:
    found = tried(
        boxes,
        """
import subprocess
for name in ("su", "sudo", "mount", "ping", "newgrp"):
    attempt(name, lambda: subprocess.run([name, "--version"], capture_output=True, timeout=20) and "ran")
with open("/proc/self/status") as status:
    found["privileges"] = [line.split()[1] for line in status if line.startswith("NoNewPrivs")]
""",
    )

    assert found["privileges"] == ["1"]


def test_a_fork_bomb_stays_in_its_number_and_leaves_nothing(namespace: Stage) -> None:
    source = """
import os, time
made = 0
# Bounded, so that the machine survives a box that does not count.
for _ in range(200):
    try:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
    except OSError:
        break
print(made)
"""

    async def bomb(box: Box) -> tuple[BoxEnd, str, list[int]]:
        end, said = await namespace.run(box, (namespace.interpreter, "-I", "-S", "-c", source))
        return end, said, living_below(box.first_process)

    end, said, alive = namespace.in_box(bomb, view=namespace.view(limits=BoxLimits(processes=60)))

    assert (int(said), end.left, alive) == (59, 59, [])


# Files.


def test_a_program_writes_into_its_own_directories_and_nowhere_else(boxes: Stage) -> None:
    shared = boxes.directory / "shared"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    (shared / "file").write_text("ours")
    (shared / "file").chmod(0o666)
    found = tried(
        boxes,
        """
for place in ("/", "/usr", "/etc", "/root", "/var/tmp", "/run", "/sys", "/proc/sys/kernel", sys.argv[1]):
    attempt(place, lambda: open(place + "/new", "w") and "done")
attempt("append", lambda: open(sys.argv[1] + "/file", "a").write("x") and "done")
attempt("truncate", lambda: os.truncate(sys.argv[1] + "/file", 0) or "done")
attempt("unlink", lambda: os.unlink(sys.argv[1] + "/file") or "done")
for place in (".", os.environ["HOME"], os.environ["TMPDIR"]):
    attempt("own " + place, lambda: open(place + "/new", "w") and "done")
""",
        str(shared),
    )

    own = [value for name, value in found.items() if name.startswith("own ")]
    others = {value for name, value in found.items() if not name.startswith("own ")}
    assert own == ["done"] * 3
    assert others <= {"EROFS", "EACCES", "ENOENT", "EPERM"}
    assert [(entry.name, entry.read_text()) for entry in shared.iterdir()] == [("file", "ours")]


def test_a_secret_in_a_shown_directory_is_not_read_by_any_name(boxes: Stage) -> None:
    project = boxes.directory / "project"
    (project / "bench" / "case").mkdir(parents=True, exist_ok=True)
    for path in (project / "bench" / "case" / "expected", project / "key", project / "shown"):
        path.write_text(f"token of {path.name}")
        path.chmod(0o644)
    for directory in (project, project / "bench", project / "bench" / "case"):
        directory.chmod(0o755)
    view = boxes.view(readable=(str(project),), secrets=(str(project / "bench"), str(project / "key")))
    found = tried(
        boxes,
        """
for name in ("shown", "key", "bench/case/expected", "../project/bench/case/expected", "bench/../key"):
    attempt(name, lambda: open(sys.argv[1] + "/" + name).read())
os.symlink(sys.argv[1] + "/key", "link")
attempt("link", lambda: open("link").read())
attempt("hard", lambda: os.link(sys.argv[1] + "/key", "hard") or open("hard").read())
attempt("own root", lambda: open("/proc/self/root" + sys.argv[1] + "/key").read())
attempt("rename", lambda: os.rename(sys.argv[1] + "/bench", "mine") or "done")
""",
        str(project),
        view=view,
    )

    assert found.pop("shown") == "token of shown"
    assert not [name for name, value in found.items() if "token" in str(value) or value == "done"]


def test_a_full_workspace_is_an_error_of_the_program_and_of_no_other(namespace: Stage) -> None:
    view = namespace.view(limits=BoxLimits(workspace_bytes=8 << 20, workspace_entries=200))
    found = tried(
        namespace,
        """
def fill():
    with open("large", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
def many():
    for number in range(100000):
        open(str(number), "w").close()
attempt("bytes", fill)
os.truncate("large", 0)
attempt("entries", many)
found["made"] = len(os.listdir("."))
""",
        view=view,
    )

    assert (found["bytes"], found["entries"]) == ("ENOSPC", "ENOSPC")
    assert 150 <= int(str(found["made"])) <= 200


def test_a_workspace_on_disk_that_grows_too_large_is_ended(landlock: Stage) -> None:
    view = landlock.view(limits=BoxLimits(workspace_bytes=4 << 20))
    source = """
import os, time
for number in range(300):
    os.makedirs(f"{number}/inner")
    with open(f"{number}/inner/file", "wb") as file:
        file.write(bytes(1 << 16))
time.sleep(600)
"""

    assert landlock.play(source, view=view, seconds=25.0).end.ended_over == "workspace"


# What one program could leave for the next.


def test_nothing_of_one_box_is_found_in_the_next(boxes: Stage) -> None:
    leaves = """
places = [os.environ["TMPDIR"], os.environ["HOME"], "/tmp", "/dev/shm", "."]
for place in places:
    attempt(place, lambda: open(place + "/left-word", "w") and "done")
attempt("segment", lambda: libc.shmget(7331, 4096, 0o1666))
"""
    looks = """
places = [os.environ["TMPDIR"], os.environ["HOME"], "/tmp", "/dev/shm", "."]
for place in places:
    attempt(place, lambda: open(place + "/left-word") and "found")
found["segment"] = libc.shmget(7331, 4096, 0o666)
"""
    tried(boxes, leaves)
    found = tried(boxes, looks)

    assert found.pop("segment") == -1
    assert "found" not in found.values()
    assert not Path("/tmp/left-word").exists()
    assert not Path("/dev/shm/left-word").exists()


# The network.


def test_without_a_network_a_box_has_its_own_loopback_in_a_namespace(namespace: Stage) -> None:
    found = tried(
        namespace,
        """
with socket.create_server(("127.0.0.1", 0)) as server:
    attempt("own", lambda: socket.create_connection(server.getsockname(), 5) and "done")
attempt("outside", lambda: socket.create_connection(("192.0.2.1", 9), 5) and "done")
attempt("name", lambda: socket.gethostbyname("example.com"))
""",
    )

    assert found["own"] == "done"
    assert found["outside"] == "ENETUNREACH"
    assert found["name"] == "gaierror"


def test_beside_the_door_to_the_broker_no_port_of_the_host_is_reached(boxes: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)  # noqa: FBT003 - the signature of the standard library
        port = server.getsockname()[1]
        found = tried(
            boxes,
            """
where = ("127.0.0.1", int(sys.argv[1]))
attempt("connect", lambda: socket.create_connection(where, 5) and "done")
def open_by_sending():
    with socket.socket() as line:
        line.settimeout(5)
        return line.sendto(b"x", 0x20000000, where) and "done"
attempt("fast open", open_by_sending)
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)) and "listens")
""",
            str(port),
            view=boxes.view(network="broker"),
        )
        with pytest.raises(BlockingIOError):
            server.accept()

    assert "done" not in found.values()
    assert found["listen"] == ("listens" if boxes.isolation_class == "namespace" else "EACCES")


def test_limits_and_order_of_the_harness_stay_as_they_are(landlock: Stage) -> None:
    found = tried(
        landlock,
        """
import resource
number = int(sys.argv[1])
attempt("prlimit", lambda: resource.prlimit(number, resource.RLIMIT_NOFILE, (50, 50)) and "done")
attempt("read", lambda: resource.prlimit(number, resource.RLIMIT_NOFILE) and "done")
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, number, 19) or "done")
attempt("user", lambda: os.setpriority(os.PRIO_USER, 0, 19) or "done")
attempt("affinity", lambda: os.sched_setaffinity(number, {0}) or "done")
attempt("own", lambda: resource.prlimit(0, resource.RLIMIT_NOFILE) and "done")
""",
        str(os.getpid()),
    )

    assert found.pop("own") == "done"
    assert set(found.values()) == {"EPERM"}
