"""What a confined process is, looked at from outside while it waits: who, and with what rights."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegenie.eval.isolation.confinement.namespaces import HOST_NAME, KINDS, USER
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from tests.hostile.engine.stage import unmeasured
from tests.support.confinement import (
    PATIENCE_SECONDS,
    a_launcher,
    each_class,
    each_way,
    look_at,
    parent_of,
    run_by,
    run_confined,
    status,
    waiting_copy,
)

AS_ROOT = os.geteuid() == 0
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def same_as_ours(name: str) -> str:
    return status(os.getpid())[name]


@each_way
def test_it_is_nobody_where_it_has_namespaces_and_ourselves_where_not(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    seen = look_at(isolation_class, status, spawn)

    if isolation_class == "namespace" and AS_ROOT:
        assert (seen["Uid"], seen["Gid"]) == (" ".join([str(USER)] * 4),) * 2
        assert seen["Groups"] == ""
    else:
        assert {name: seen[name] for name in ("Uid", "Gid")} == {
            name: same_as_ours(name) for name in ("Uid", "Gid")
        }


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_in_a_world_of_its_own_it_sees_the_same_nobody_whoever_we_are(spawn: Spawn) -> None:
    source = (
        "import os; print(os.getresuid(), os.getresgid(), os.getpid(), os.getppid(), os.uname().nodename)"
    )
    expected = f"({USER}, {USER}, {USER}) ({USER}, {USER}, {USER}) 2 1 {HOST_NAME}\n"
    assert run_confined("namespace", source, spawn).stdout == expected


@each_way
def test_it_has_no_capability_and_can_gain_none(isolation_class: IsolationClass, spawn: Spawn) -> None:
    seen = look_at(isolation_class, status, spawn)
    found = {name: int(seen[name], 16) for name in CAPABILITIES}

    # Who is not root and has no user namespace has no right to shrink the bounding set, and no use for it.
    bounded = isolation_class == "namespace" or AS_ROOT
    expected = dict.fromkeys(CAPABILITIES, 0)
    assert found == (expected if bounded else {**expected, "CapBnd": int(same_as_ours("CapBnd"), 16)})
    assert (seen["NoNewPrivs"], seen["Seccomp"], seen["Seccomp_filters"]) == ("1", "2", "1")


@each_way
def test_three_descriptors_are_open_and_no_other(isolation_class: IsolationClass, spawn: Spawn) -> None:
    def look(number: int) -> dict[str, str]:
        place = f"/proc/{number}/fd"
        return {name: os.readlink(f"{place}/{name}") for name in os.listdir(place)}

    assert look_at(isolation_class, look, spawn) == dict.fromkeys("012", "/memfd:stream (deleted)")


@each_way
def test_it_leads_a_session_without_a_terminal(isolation_class: IsolationClass, spawn: Spawn) -> None:
    def look(number: int) -> tuple[bool, bool, int]:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return int(fields[2]) == number, int(fields[3]) == number, int(fields[4])

    assert look_at(isolation_class, look, spawn) == (True, True, 0)


@each_way
def test_its_environment_is_the_scrubbed_one(
    isolation_class: IsolationClass, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HARNESS", "canary-of-the-environment")
    source = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    environment, directory = json.loads(run_confined(isolation_class, source, spawn).stdout)
    seen = look_at(isolation_class, lambda number: Path(f"/proc/{number}/environ").read_bytes(), spawn)

    assert environment == {
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "TMPDIR": directory,
    }
    assert sorted(part.partition(b"=")[0] for part in seen.split(b"\0") if part) == sorted(
        map(str.encode, environment)
    )
    assert b"canary" not in seen
    assert directory == "/box/case" or isolation_class == "landlock"


@each_way
def test_it_works_in_its_room_with_a_private_mask(isolation_class: IsolationClass, spawn: Spawn) -> None:
    def look(number: int) -> tuple[str, str]:
        return os.readlink(f"/proc/{number}/cwd"), status(number)["Umask"]

    directory, mask = look_at(isolation_class, look, spawn)

    assert mask == "0077"
    assert re.fullmatch(r"/box/case|.*/codegenie-eval-\w+/room-[0-9a-f]{16}", directory)


@each_way
def test_its_limits_are_those_that_were_set_and_cannot_be_raised(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    def look(number: int) -> dict[str, tuple[str, str]]:
        lines = Path(f"/proc/{number}/limits").read_text().splitlines()[1:]
        rows = (re.split(r"\s{2,}", line) for line in lines)
        return {name.removeprefix("Max "): (soft, hard) for name, soft, hard, *_ in rows}

    found = look_at(isolation_class, look, spawn)
    seconds = int(PATIENCE_SECONDS) + LIMITS.child_cpu_spare_seconds
    expected = {
        "core file size": ("1", "1"),
        "address space": (str(LIMITS.child_address_space_bytes),) * 2,
        "file size": (str(LIMITS.child_file_bytes),) * 2,
        "open files": (str(LIMITS.child_open_files),) * 2,
        "cpu time": (str(seconds), str(seconds + 5)),
        "pending signals": (str(LIMITS.child_pending_signals),) * 2,
        "locked memory": ("0", "0"),
    }
    if isolation_class == "namespace":
        expected["processes"] = (str(LIMITS.child_threads + 2),) * 2
    assert {name: found[name] for name in expected} == expected


def namespaces(number: int) -> dict[str, str]:
    return {kind: os.readlink(f"/proc/{number}/ns/{kind}") for kind in KINDS}


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_every_namespace_is_its_own_and_the_mounts_are_its_own_once_more(spawn: Spawn) -> None:
    def look(number: int) -> tuple[dict[str, str], dict[str, str] | None]:
        try:
            return namespaces(number), namespaces(parent_of(number))
        except PermissionError:  # nobody but root may look at a zygote
            return namespaces(number), None

    ours = namespaces(os.getpid())
    copy, zygote = look_at("namespace", look, spawn)

    assert [kind for kind in KINDS if copy[kind] == ours[kind]] == []
    assert (zygote is not None) == AS_ROOT
    if zygote is not None:
        assert [kind for kind in KINDS if zygote[kind] == ours[kind]] == []
        assert [kind for kind in KINDS if copy[kind] != zygote[kind]] == ["mnt"]


def test_two_zygotes_share_no_namespace() -> None:
    async def run() -> list[dict[str, str]]:
        async with (
            a_launcher("namespace") as launcher,
            waiting_copy(launcher) as one,
            waiting_copy(launcher) as other,
        ):
            return [namespaces(one), namespaces(other)]

    one, other = asyncio.run(run())
    assert [kind for kind in KINDS if one[kind] == other[kind]] == []


def test_it_is_the_second_process_of_its_world() -> None:
    def look(number: int) -> list[str]:
        return [status(each)["NSpid"].split()[-1] for each in (number, parent_of(number))]

    assert look_at("namespace", look) == ["2", "1"]


TRACER = """\
import sys
from codegenie.eval.isolation.confinement import syscalls
syscalls.drop_capabilities()
try:
    open(f"/proc/{sys.argv[1]}/mem", "rb").close()
except PermissionError:
    print("refused")
else:
    print("opened")
"""


def tracing(number: int) -> str:
    """Say whether a process of our user, without any capability, may look into the memory of another."""
    done = subprocess.run(
        [sys.executable, "-c", TRACER, str(number)],
        env=unmeasured(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_nobody_can_look_into_a_zygote_whose_user_is_everybodys() -> None:
    # The copy is the control: it can be looked at, or else nothing could be proved of it.
    seen = look_at("landlock", lambda number: (tracing(number), tracing(parent_of(number))))
    assert seen == ("opened", "refused")


@each_class
def test_a_guardian_is_not_looked_into_by_programs_of_its_user(isolation_class: IsolationClass) -> None:
    assert look_at(isolation_class, lambda number: tracing(parent_of(parent_of(number)))) == "refused"


@each_class
def test_only_the_probe_of_a_proof_is_looked_into(isolation_class: IsolationClass) -> None:
    assert look_at(isolation_class, tracing, seen=False) == "refused"
    assert look_at(isolation_class, lambda number: os.stat(f"/proc/{number}/environ").st_uid, seen=False) == 0


@each_way
def test_no_kind_of_its_memory_goes_into_a_core(isolation_class: IsolationClass, spawn: Spawn) -> None:
    def look(number: int) -> int:
        return int(Path(f"/proc/{number}/coredump_filter").read_text(encoding="ascii"), 16)

    assert look_at(isolation_class, look, spawn) == 0


@each_class
def test_a_copy_remembers_no_number_but_its_own(isolation_class: IsolationClass) -> None:
    # What the interpreter and the C library remember of the thread: the latter in the first words of a
    # description that `get_ident` names, where exactly one word is the number of the thread.
    source = (
        "import ctypes, json, os, threading\n"
        "words = (ctypes.c_int32 * 256).from_address(threading.get_ident())\n"
        "print(json.dumps([os.getpid(), threading.main_thread().native_id, os.getpid() in words]))\n"
    )
    number, remembered, known = json.loads(run_confined(isolation_class, source).stdout)
    assert (remembered, known) == (number, True)


@each_class
def test_a_zygote_holds_no_way_to_the_directory_of_the_run(isolation_class: IsolationClass) -> None:
    def look(number: int) -> list[str]:
        place = f"/proc/{parent_of(number)}/fd"
        try:
            return [os.readlink(f"{place}/{name}") for name in os.listdir(place)]
        except PermissionError:  # only root may look at a zygote
            return []

    found = look_at(isolation_class, look)
    assert bool(found) == AS_ROOT
    assert [path for path in found if re.search(r"/codegenie-eval-\w+$", path)] == []


@each_class
def test_the_files_that_describe_a_zygote_are_not_its_users(isolation_class: IsolationClass) -> None:
    zygote = look_at(isolation_class, lambda number: os.stat(f"/proc/{parent_of(number)}/environ").st_uid)
    assert zygote == 0


@each_way
def test_nothing_of_an_earlier_program_is_left_for_the_next(
    isolation_class: IsolationClass, spawn: Spawn
) -> None:
    first = (
        "import builtins, json, os, sys\nbuiltins.open = None\njson.loads = None\nsys.modules['re'] = None\n"
        "os.umask(0)\nos.environ['LEFT'] = 'x'\nsys.path.append('/x')\n"
        "os.close(2); os.mkdir('left'); os.chdir('left')\n"
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
    )
    second = (
        "import json, os, re, resource, sys\n"
        "print(json.dumps([open.__name__, json.loads('1'), os.umask(0), os.environ.get('LEFT'),"
        " '/x' in sys.path,"
        " os.listdir('.'), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))\n"
    )

    async def run() -> str:
        async with a_launcher(isolation_class, spawn) as launcher:
            assert (await run_by(launcher, first)).way == (0, None)
            return (await run_by(launcher, second)).stdout

    expected = ["open", 1, 0o77, None, False, ["rubric.py"], LIMITS.child_open_files]
    assert json.loads(asyncio.run(run())) == expected


@each_class
def test_a_zygote_holds_no_way_to_the_processes_of_the_host(isolation_class: IsolationClass) -> None:
    def look(number: int) -> list[str]:
        place = f"/proc/{parent_of(number)}/fd"
        try:
            return [os.readlink(f"{place}/{name}") for name in os.listdir(place)]
        except PermissionError:  # nobody but root may look at a zygote
            return []

    found = look_at(isolation_class, look)
    assert (len(found) > 4) == AS_ROOT
    assert [path for path in found if path.startswith("/proc")] == []
