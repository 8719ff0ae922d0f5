"""Landlock: what cannot be opened, written or executed outside the room, by whoever is the only wall."""

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest

from codegenie.eval.errors import IsolationUnavailable
from codegenie.eval.isolation.confinement import visible_paths
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.system.processes import real_interpreter
from tests.support.confinement import (
    ATTEMPTS,
    a_launcher,
    attempts,
    each_class,
    each_way,
    run_by,
    run_confined,
    use_edited_guardian,
    waiting_copy,
)

OUTSIDE = (
    "/",
    "/etc",
    "/proc",
    "/proc/self",
    "/sys",
    "/tmp",
    "/dev",
    "/dev/shm",
    "/usr",
    "/usr/bin",
    "..",
    "/home",
)
FILES_OUTSIDE = (
    "/etc/passwd", "/proc/self/status", "/proc/self/mem", "/proc/1/status", "/proc/self/environ",
    "/proc/meminfo", "/usr/bin/env", __file__, "/dev/tty", "/dev/full", "/dev/random",
)  # fmt: skip


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_without_namespaces_nothing_outside_can_be_opened(spawn: Spawn) -> None:
    here = str(Path(__file__))
    deeds = {f"list {path}": f"os.listdir({path!r})" for path in OUTSIDE if os.path.isdir(path)}
    deeds |= {
        f"read {path}": f"os.open({path!r}, os.O_RDONLY)" for path in FILES_OUTSIDE if os.path.exists(path)
    }
    deeds |= {
        "make a directory above": "os.mkdir('../other')",
        "make a file above": "os.open('../other', os.O_CREAT | os.O_WRONLY)",
        "make a link above": "os.symlink('x', '../other')",
        "make a file in /tmp": "os.open('/tmp/codegenie-was-here', os.O_CREAT | os.O_WRONLY)",
        "make a file in /dev/shm": "os.open('/dev/shm/codegenie-was-here', os.O_CREAT | os.O_WRONLY)",
        "write to the library": "os.open(os.__file__, os.O_WRONLY)",
        "cut a file outside": f"os.truncate({here!r}, os.stat({here!r}).st_size)",
        "write to zero": "os.open('/dev/zero', os.O_WRONLY)",
        "remove a directory above": "os.rmdir('../root')",
        "execute a shell": "os.execv('/bin/sh', ['sh', '-c', 'exit 9'])",
        "execute env": "os.execv('/usr/bin/env', ['env'])",
        "make a device": "os.mknod('device', 0o20600, 0x0103)",
        "make a pipe": "os.mkfifo('pipe')",
    }
    found = attempts("landlock", deeds, spawn)
    assert {name: error for name, error in found.items() if error not in {"EACCES", "EPERM"}} == {}


def test_without_namespaces_the_room_of_another_case_is_closed() -> None:
    async def run() -> tuple[str, str]:
        async with a_launcher("landlock") as launcher, waiting_copy(launcher) as number:
            other = os.readlink(f"/proc/{number}/cwd")
            deeds = {
                "list": f"os.listdir({other!r})",
                "read": f"os.open({other!r} + '/rubric.py', os.O_RDONLY)",
                "write": f"os.open({other!r} + '/left', os.O_CREAT | os.O_WRONLY)",
                "move": f"os.rename('rubric.py', {other!r} + '/moved')",
                "link": f"os.link('rubric.py', {other!r} + '/linked')",
            }
            lines = "\n".join(f"attempt({name!r}, lambda: {deed})" for name, deed in deeds.items())
            ran = await run_by(launcher, ATTEMPTS.format(deeds=lines))
            return ran.stdout, ",".join(os.listdir(other))

    said, listed = asyncio.run(run())
    assert set(json.loads(said).values()) <= {"EACCES", "EXDEV"}
    assert listed == "rubric.py"


@each_way
def test_nothing_in_the_box_can_be_executed(isolation_class: IsolationClass, spawn: Spawn) -> None:
    source = (
        "import os, shutil, sys\nos.umask(0)\n"
        "os.close(os.open('program', os.O_CREAT | os.O_WRONLY, 0o755))\n"
        "shutil.copyfile(sys.executable, 'program') if os.path.getsize(sys.executable) < 30 << 20 else None\n"
        "os.close(os.open('script', os.O_CREAT | os.O_WRONLY, 0o755))\n"
        "with open('script', 'w') as file: file.write('#!' + sys.executable + '\\n')\n"
        "for name in ('program', 'script'):\n"
        "    assert os.stat(name).st_mode & 0o111\n"
        "    try: os.execv(os.path.abspath(name), [name, '-c', 'raise SystemExit(7)'])\n"
        "    except PermissionError: pass\n"
        "print('not executed')\n"
    )
    ran = run_confined(isolation_class, source, spawn)
    assert (ran.way, ran.stdout) == ((0, None), "not executed\n"), ran


@each_class
def test_a_library_is_read_and_not_executed(isolation_class: IsolationClass) -> None:
    folders = [path for path in visible_paths.readable(real_interpreter()) if os.path.isdir(path)]
    objects = [
        os.path.join(folder, name) for folder in folders for name in os.listdir(folder) if ".so" in name
    ]
    [library, *_] = [
        path for path in objects if os.path.basename(path).startswith("libc.so") and os.access(path, os.X_OK)
    ]
    found = attempts(
        isolation_class,
        {"read": f"os.open({library!r}, os.O_RDONLY)", "execute": f"os.execv({library!r}, ['libc'])"},
        "cold",
    )
    assert found == {"read": "done", "execute": "EACCES"}


@each_class
def test_a_copy_starts_no_other_program_not_even_its_own_interpreter(isolation_class: IsolationClass) -> None:
    deeds = {
        "itself": f"os.execv({real_interpreter()!r}, ['chosen'])",
        "a shell": "os.execv('/bin/sh', ['sh'])",
    }
    assert attempts(isolation_class, deeds) == {"itself": "EPERM", "a shell": "EPERM"}
    # The control: where a fresh interpreter is started, the call is free and Landlock decides.
    assert attempts(isolation_class, {"a shell": "os.execv('/bin/sh', ['sh'])"}, "cold") != {
        "a shell": "EPERM"
    }


# With the filter gone, what is left is Landlock: each row below is its alone.
WITHOUT_FILTER = ("lockdown.py", "        calls.load(os.getpid())\n", "")


def test_landlock_alone_forbids_connections_signals_and_abstract_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_edited_guardian(monkeypatch, tmp_path, WITHOUT_FILTER)
    name = f"\0codegenie-{os.urandom(8).hex()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        deeds = {
            "connect": f"__import__('socket').create_connection({server.getsockname()!r})",
            "bind": "__import__('socket').create_server(('127.0.0.1', 0))",
            "abstract": f"__import__('socket').socket(1).connect({name!r})",
            "signal": "os.kill(os.getppid(), 0)",
            "device": "__import__('fcntl').ioctl(os.open('/dev/urandom', os.O_RDONLY), 0x80045200, bytes(4))",
        }
        found = attempts("landlock", deeds)

    assert found == {
        "connect": "EACCES",
        "bind": "EACCES",
        "abstract": "EPERM",
        "signal": "EPERM",
        "device": "EACCES",
    }


@pytest.mark.parametrize(("isolation_class", "version", "least"), [("namespace", 0, 1), ("landlock", 2, 3)])
def test_a_landlock_that_is_too_old_is_refused(
    isolation_class: IsolationClass, version: int, least: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = '        return syscalls.call("landlock_create_ruleset", None, 0, _VERSION_FLAG)\n'
    use_edited_guardian(monkeypatch, tmp_path, ("landlock.py", asked, f"        return {version}\n"))

    with pytest.raises(IsolationUnavailable, match=f"landlock: version {version}, and {least} is needed"):
        run_confined(isolation_class, "")


def test_without_namespaces_what_was_merely_installed_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A package of the library itself, for not every interpreter has others below its library.
    names = ("visible_paths.py", '_NOT_OURS = ("site-packages", "dist-packages")', '_NOT_OURS = ("wsgiref",)')
    use_edited_guardian(monkeypatch, tmp_path, names)
    place = f"{os.path.dirname(os.path.realpath(os.__file__))}/wsgiref/__init__.py"
    beside = f"{os.path.dirname(os.path.realpath(os.__file__))}/json/__init__.py"
    deeds = {path: f"os.open({path!r}, os.O_RDONLY)" for path in (place, beside)}

    assert attempts("landlock", deeds) == {place: "EACCES", beside: "done"}
