"""What a confined process finds of the file system, from inside and, through /proc, from outside."""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codegenie.eval.isolation.confinement import visible_paths
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.system.processes import real_interpreter
from tests.support.confinement import (
    a_launcher,
    attempts,
    each_way,
    look_at,
    run_by,
    run_confined,
    use_edited_guardian,
    waiting_copy,
)


@dataclass(frozen=True)
class Mount:
    """One line of a mountinfo."""

    place: str
    flags: frozenset[str]
    kind: str
    options: frozenset[str]


def mounts_of(number: int) -> list[Mount]:
    found = []
    for line in Path(f"/proc/{number}/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split(" ")
        kind, _, options = fields[fields.index("-") + 1 :]
        found.append(Mount(fields[4], frozenset(fields[5].split(",")), kind, frozenset(options.split(","))))
    return found


def leads_to(place: str, mounts: list[Mount]) -> bool:
    return any(mount.place == place or mount.place.startswith(f"{place}/") for mount in mounts)


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_everything_is_read_only_but_the_box(spawn: Spawn) -> None:
    mounts = look_at("namespace", mounts_of, spawn)
    places = [mount.place for mount in mounts]

    assert len(places) == len(set(places))
    assert {"/", "/box/case", *visible_paths.DEVICES} <= set(places)
    for mount in mounts:
        assert "nosuid" in mount.flags, mount
        assert ("nodev" in mount.flags) == (mount.place not in visible_paths.DEVICES), mount
        assert ("noexec" in mount.flags) == (mount.place in {"/box/case", *visible_paths.DEVICES}), mount
        assert ("ro" in mount.flags) == (mount.place != "/box/case"), mount


def test_nothing_of_the_hosts_mounts_is_left() -> None:
    mounts = look_at("namespace", mounts_of)
    places = {mount.place for mount in mounts}
    library = os.path.dirname(os.path.realpath(os.__file__))
    kinds = {mount.place: mount.kind for mount in mounts}

    assert (kinds["/"], kinds["/box/case"]) == ("tmpfs", "tmpfs")
    assert not places & {
        "/proc",
        "/sys",
        "/dev",
        "/tmp",
        "/etc",
        "/home",
        "/root",
        "/run",
        "/usr",
        "/var",
        "/opt",
    }
    assert leads_to(real_interpreter(), mounts)
    assert leads_to(library, mounts)
    # Nothing is mounted that is neither the interpreter, its library, shared objects or data, nor a device.
    for place in places - {"/", "/box/case", *visible_paths.DEVICES, real_interpreter()}:
        if os.path.isfile(place):
            assert ".so" in os.path.basename(place), place
            continue
        assert place.startswith(
            (library, "/lib", "/usr/lib", "/usr/share/zoneinfo", "/usr/local/lib")
        ) or any(".so" in name for name in os.listdir(place)), place


def entries_beside_mounts(root: str, mounts: list[Mount]) -> Iterator[str]:
    """Name what lies in the root itself: neither on a mount nor on the way to one."""
    device = os.stat(root).st_dev
    for folder, directories, files in os.walk(root):
        for name in [*directories, *files]:
            path = os.path.join(folder, name)
            inside = path.removeprefix(root)
            if os.lstat(path).st_dev == device and not leads_to(inside, mounts):
                yield inside
        directories[:] = [
            name for name in directories if os.lstat(os.path.join(folder, name)).st_dev == device
        ]


def test_the_root_holds_nothing_but_the_way_to_its_mounts() -> None:
    def look(number: int) -> set[str]:
        return set(entries_beside_mounts(f"/proc/{number}/root", mounts_of(number)))

    assert look_at("namespace", look) <= {"/lib", "/lib64"}  # links


def test_the_root_cannot_be_written_to_even_by_whoever_made_it() -> None:
    def look(number: int) -> str:
        try:
            os.close(os.open(f"/proc/{number}/root/new", os.O_CREAT | os.O_WRONLY))
        except OSError as error:
            return str(error.strerror)
        return "written"

    assert look_at("namespace", look) == "Read-only file system"


def test_the_box_has_the_room_of_the_case_and_of_what_is_allowed_beside_it() -> None:
    async def run() -> list[Mount]:
        async with a_launcher("namespace") as launcher:
            assert (await run_by(launcher, "")).way == (0, None)
            async with waiting_copy(launcher) as number:
                return [mount for mount in mounts_of(number) if mount.place == "/box/case"]

    # One mount, although this is the second case: that of the first went with it.
    [box] = asyncio.run(run())
    pages = LIMITS.scratch_bytes // 1024 + 4
    assert {f"size={pages}k", f"nr_inodes={LIMITS.scratch_entries + 2}", "mode=700"} <= box.options


FILL = """\
import errno, json, os
files = bytes_written = 0
try:
    while files < 10:  # some times more than there is room for, whoever has forgotten the cap
        with open(f"data-{files}", "wb") as file:
            files += 1
            for _ in range(16):
                bytes_written += file.write(bytes(1 << 20))
except OSError as error:
    assert error.errno == errno.ENOSPC, error
for number in range(files):
    os.unlink(f"data-{number}")
files = 0
try:
    while files < 20_000:
        os.close(os.open(f"empty-{files}", os.O_CREAT | os.O_WRONLY))
        files += 1
except OSError as error:
    assert error.errno == errno.ENOSPC, error
print(json.dumps([bytes_written, files]))
"""


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
def test_the_box_is_full_at_its_cap_of_bytes_and_of_entries(spawn: Spawn) -> None:
    ran = run_confined("namespace", FILL, spawn)
    assert ran.way == (0, None), ran
    written, files = json.loads(ran.stdout)

    assert LIMITS.scratch_bytes - (1 << 20) <= written <= LIMITS.scratch_bytes
    assert files == LIMITS.scratch_entries


def test_landlock_is_in_force_within_the_namespaces_too() -> None:
    deeds = {
        "list the root": "os.listdir('/')",
        "list the box's parent's devices": "os.listdir('/dev')",
        "write to zero": "os.open('/dev/zero', os.O_WRONLY)",
        "write to the box's parent": "os.mkdir('/box/other')",
        "write to the library": "os.open(os.__file__, os.O_WRONLY)",
    }
    allowed = {
        "list the library": "os.listdir(os.path.dirname(os.__file__))",
        "write to null": "os.write(os.open('/dev/null', os.O_WRONLY), b'x')",
        "read zero": "os.read(os.open('/dev/zero', os.O_RDONLY), 1)",
        "read urandom": "os.read(os.open('/dev/urandom', os.O_RDONLY), 1)",
    }
    # Where a fresh interpreter is started, only Landlock keeps other programs from being started.
    started = {"execute a library": "os.execv(os.__file__, ['x'])"}
    found = attempts("namespace", deeds | allowed) | attempts("namespace", started, "cold")
    deeds |= started

    assert {name: found[name] for name in allowed} == dict.fromkeys(allowed, "done")
    # A read-only mount says EROFS where Landlock would say EACCES.
    refused = {name: found[name].replace("EROFS", "EACCES") for name in deeds}
    assert refused == dict.fromkeys(deeds, "EACCES")


@each_way
def test_nothing_that_was_installed_can_be_imported(isolation_class: IsolationClass, spawn: Spawn) -> None:
    source = (
        "import importlib.util, os, sys\n"
        "names = 'pip', 'pytest', 'numpy', 'codegenie'\n"
        "print([name for name in names if importlib.util.find_spec(name)])\n"
    )
    assert run_confined(isolation_class, source, spawn).stdout == "[]\n"


def test_other_peoples_packages_are_covered() -> None:
    source = (
        "import os\nlibrary = os.path.dirname(os.__file__)\n"
        "for name in ('site-packages', 'dist-packages'):\n"
        "    path = os.path.join(library, name)\n"
        "    assert not os.path.exists(path) or os.listdir(path) == [], path\n"
    )
    library = os.path.dirname(os.path.realpath(os.__file__))
    assert run_confined("namespace", source).way == (0, None)
    assert sorted(visible_paths.masked()) == [
        path
        for path in (f"{library}/{name}" for name in ("dist-packages", "site-packages"))
        if os.path.isdir(path)
    ]  # fmt: skip


def test_whatever_is_to_be_covered_is_covered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A package of the library itself, for not every interpreter has others below its library.
    names = ("visible_paths.py", '_NOT_OURS = ("site-packages", "dist-packages")', '_NOT_OURS = ("wsgiref",)')
    use_edited_guardian(monkeypatch, tmp_path, names)
    source = "import os; print(os.listdir(os.path.join(os.path.dirname(os.__file__), 'wsgiref')))"
    assert run_confined("namespace", source).stdout == "[]\n"


def test_the_domain_of_the_host_is_not_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A new namespace takes the domain over from the host; that of this machine is mostly not set.
    named = '        syscalls.call("sethostname", HOST_NAME.encode(), len(HOST_NAME))\n'
    taken_over = f'{named}        syscalls.call("setdomainname", b"of-the-host", 11)\n'
    use_edited_guardian(monkeypatch, tmp_path, ("namespaces.py", named, taken_over))
    source = (
        "import ctypes\nnames = ctypes.create_string_buffer(6 * 65)\nctypes.CDLL(None).uname(names)\n"
        "print(names.raw[5 * 65:].split(b'\\0')[0].decode())\n"
    )
    assert run_confined("namespace", source).stdout == "(none)\n"


def test_of_the_host_there_is_no_trace() -> None:
    here = str(Path(__file__))
    places = [
        "/proc",
        "/sys",
        "/etc",
        "/home",
        "/tmp",
        "/run",
        "/var",
        "/dev/tty",
        "/dev/shm",
        "/dev/pts",
        here,
    ]
    found = attempts(
        "namespace", {place: f"os.stat({place!r})" for place in [*places, "/usr/bin/env", "/bin/sh"]}
    )
    assert set(found.values()) == {"ENOENT"}
