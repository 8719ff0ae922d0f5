"""What others or a shell can bring about sends no run to weaker walls: it is told, or nothing happens."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from codegenie.eval.errors import IsolationNotProved
from codegenie.eval.isolation.canaries import Canaries, planted
from codegenie.eval.models import IsolationClass
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import answered, call, eval_argv
from tests.support.proofs import CALLS, CLASSES, Saying, proved_with

RUN = eval_argv("run", TASK_CLASS, "--sut", "null", "--quiet", "--json")
# Who is not root gains the rights that these need in a user namespace, and stays who it is.
OWN = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"])]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("isolation_class", CLASSES)
def test_a_stranger_who_calls_a_listener_is_not_taken_for_the_probe(
    isolation_class: IsolationClass, name: str, tmp_path: Path
) -> None:
    def strangers(want: dict[str, object]) -> None:
        # What others can see: nothing, noise, and the name in /proc/net/unix.
        for word in ("", "x", "reached", str(want["abstract_socket"]), "0" * 32, "x" * 4_000):
            CALLS[name](want, word)

    assert asyncio.run(proved_with(Saying(isolation_class, deed=strangers), tmp_path)).holds


def test_a_probe_among_strangers_is_still_heard(tmp_path: Path) -> None:
    def deed(want: dict[str, dict[str, str]]) -> None:
        for word in ("x", want["words"]["tcp-connect"], "y"):
            CALLS["tcp-connect"](want, word)

    with pytest.raises(IsolationNotProved, match="'tcp-connect' was not blocked"):
        asyncio.run(proved_with(Saying("landlock", deed=deed), tmp_path))


@contextmanager
def crowded(directory: Path) -> Iterator[Canaries]:
    """Plant as usual, and fill the queue of the TCP listener until it takes nobody."""
    with planted(directory) as canaries, ExitStack() as held:
        address = canaries.listeners["tcp-connect"].getsockname()
        for _ in range(400):
            line = held.enter_context(socket.socket())
            line.setblocking(False)  # noqa: FBT003 - the standard library's signature
            line.connect_ex(address)
        yield canaries


def test_strangers_who_keep_the_control_from_its_canary_disturb_the_proof(tmp_path: Path) -> None:
    with pytest.raises(IsolationNotProved, match=r"control failed: .*'tcp-connect'") as refused:
        asyncio.run(proved_with(Saying("namespace"), tmp_path, plant=crowded))
    assert "that no program floods it" in (refused.value.hint or "")


def ran(directory: Path, prelude: str, *own: str) -> tuple[int, dict[str, object]]:
    """Run a bench in a shell that was prepared so, with these namespaces of its own."""
    write_bench(directory / "bench")
    done = call([*OWN, *own, "sh", "-c", f'{prelude} && exec "$@"', "sh", *RUN], directory)
    assert done.stdout, done.stderr
    return done.returncode, answered(done)


STOPPED = {
    "memory": ("ulimit -v 1500000", [], "'large-allocation'", "ulimit -v"),
    "files of 20 MB": ("ulimit -f 20000", [], "'large-file'", "ulimit -f"),
    "files of 8 KB": ("ulimit -f 8", [], "File too large", ""),
    "no loopback": ("true", ["--net"], "", "ip link set lo up"),
    "no /proc": ("mount -t tmpfs tmpfs /proc", ["--mount"], "/proc is not mounted", "mount -t proc"),
    "ten entries": (
        "mount -t tmpfs -o nr_inodes=11 tmpfs tmp && export TMPDIR=$PWD/tmp",
        ["--mount"],
        "No space left",
        "TMPDIR",
    ),
}


@pytest.mark.parametrize("what", STOPPED)
def test_what_a_shell_or_a_machine_is_short_of_stops_the_run_and_lowers_nothing(
    what: str, tmp_path: Path
) -> None:
    prelude, own, reason, remedy = STOPPED[what]
    (tmp_path / "tmp").mkdir()
    code, said = ran(tmp_path, prelude, *own)

    assert code == 4, said
    error = said["error"]
    assert isinstance(error, dict)
    assert error["type"] in {"IsolationNotProved", "HarnessFailure"}
    assert reason in error["message"]
    assert remedy in error["hint"]


CALLED_CONFINED = f"{sys.executable} -c 'import socket; socket.sethostname(\"confined\")'"
UNTOUCHED = {
    "no /etc": ("mount -t tmpfs tmpfs /etc", ["--mount"]),
    "a host named confined": (CALLED_CONFINED, ["--uts"]),
}


@pytest.mark.parametrize("what", UNTOUCHED)
def test_what_has_nothing_to_do_with_the_walls_changes_nothing(what: str, tmp_path: Path) -> None:
    prelude, own = UNTOUCHED[what]
    code, said = ran(tmp_path, prelude, *own)

    assert code == 0, said
    report = said["report"]
    assert isinstance(report, dict)
    assert report["isolation_class"] == "namespace"


STRANGER = """
import fcntl, json, socket, struct, subprocess, sys, threading
with socket.socket() as line:
    fcntl.ioctl(line, 0x8914, struct.pack("16sh", b"lo", 0x49))
done = threading.Event()

def ports(kind):
    with open(f"/proc/net/{kind}") as file:
        return {int(row.split()[1].split(":")[1], 16) for row in list(file)[1:]}

def disturb():
    while not done.is_set():
        for kind, how in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            for port in ports(kind):
                with socket.socket(socket.AF_INET, how) as line:
                    line.settimeout(1)
                    if line.connect_ex(("127.0.0.1", port)) == 0:
                        seen.add(kind)
                        try:
                            line.send(b"stranger")
                        except OSError:
                            pass

seen = set()
thread = threading.Thread(target=disturb)
thread.start()
said = subprocess.run(sys.argv[1:], capture_output=True, text=True)
done.set()
thread.join()
print(json.dumps([sorted(seen), said.returncode, json.loads(said.stdout)]))
"""


def test_a_stranger_on_the_loopback_while_a_run_starts_changes_nothing(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    (tmp_path / "stranger.py").write_text(STRANGER, encoding="utf-8")
    done = call([*OWN, "--net", sys.executable, "stranger.py", *RUN], tmp_path)
    seen, code, said = json.loads(done.stdout)

    # A stranger that came too late has disturbed nothing, and says so.
    assert (seen, code) == (["tcp", "udp"], 0), said
    assert said["report"]["isolation_class"] == "namespace"


REFUSED = """
import errno, sys
from codegenie.eval.isolation.zygote_client import _refusal
if sys.argv[1:]:
    with open("/proc/sys/user/max_net_namespaces", "w") as setting:
        setting.write(sys.argv[1])
print(type(_refusal("namespace", {"error": "clone: No space left", "errno": errno.ENOSPC})).__name__)
"""


@pytest.mark.parametrize(
    ("most", "meaning"), [("0", "IsolationUnavailable"), ("1", "HarnessFailure"), (None, "HarnessFailure")]
)
def test_no_room_for_a_namespace_is_what_the_kernel_lacks_only_where_there_is_to_be_none(
    most: str | None, meaning: str, tmp_path: Path
) -> None:
    # The setting is that of a user namespace of its own.
    own = ["unshare", "--user", "--map-root-user", sys.executable, "-c", REFUSED]
    done = call([*own, *([] if most is None else [most])], tmp_path)

    assert done.stdout.split() == [meaning], done.stderr
