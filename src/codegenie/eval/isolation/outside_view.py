"""Checks of a confined child from outside, while it waits: its own answer is not enough.

Every value is written here a second time and not imported from the confinement: what the confinement forgets
would otherwise be forgotten here, too.
"""

import os
import re
import resource
from pathlib import Path

_NAMESPACES = {"user": "user", "pid": "pid", "mount": "mnt", "network": "net", "ipc": "ipc", "uts": "uts"}
_STREAMS = {"0", "1", "2"}
_SECCOMP_FILTER = "2"
_MIB = 1024 * 1024
# The highest soft and hard limits of a rubric. The deadline of the probe is 30 s, so its soft limit of
# processor time is 32 s and its hard limit is 37 s.
_LIMITS = {
    "Max cpu time": (32, 37),
    "Max file size": (32 * _MIB, 32 * _MIB),
    "Max core file size": (1, 1),
    "Max open files": (128, 128),
    "Max address space": (2048 * _MIB, 2048 * _MIB),
    "Max pending signals": (64, 64),
    "Max locked memory": (0, 0),
}
# 16 threads, the main thread and the zygote. Only in a user namespace are no other processes counted.
_LIMITS_OF_A_USER = {"Max processes": (18, 18)}
_VARIABLES = {b"PYTHONHASHSEED", b"LC_ALL", b"PATH", b"TMPDIR"}
_MASK = "0077"
_NO_SIGNAL = 0
# The signals that the interpreter itself ignores: SIGPIPE and SIGXFSZ.
_IGNORED_SIGNALS = 1 << 12 | 1 << 24
_CAP_SETPCAP = 1 << 8

_ROOM = "/box/case"
# 64 MiB and 4,096 entries, and some more for the files of the case; the probe has few and small files.
_DISK_KIB = 65 * 1024
_ENTRIES = 4_160
_DEVICES = {"/dev/null", "/dev/zero", "/dev/urandom"}
_FLAGS = {"ro", "nosuid", "nodev"}
_FLAGS_OF_DEVICES = {"ro", "nosuid", "noexec"}
_FLAGS_OF_THE_ROOM = {"rw", "nosuid", "nodev", "noexec"}

Status = dict[str, list[str]]


def seen_from_outside(pid: int) -> dict[str, bool]:
    """Return for each outside check whether it holds. A check whose facts cannot be read does not hold."""
    status = _status(pid)
    if not status:
        return {}
    return (
        _of_rights(pid, status)
        | _of_state(pid, status)
        | _of_mounts(_text(pid, "mountinfo"))
        | _of_the_zygote(status)
        | {f"outside-{name}-namespace": _is_in_another(pid, link) for name, link in _NAMESPACES.items()}
    )


def _of_rights(pid: int, status: Status) -> dict[str, bool]:
    held = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    bounded = _is_empty(status, "CapBnd")
    ours = _status(os.getpid())
    may_bound = bool(_bits(ours, "CapEff") & _CAP_SETPCAP)
    # A process without root keeps its groups, because only root may drop them.
    superuser = os.geteuid() == 0
    return {
        "outside-seccomp": status.get("Seccomp") == [_SECCOMP_FILTER] and _filters(status) > _filters(ours),
        "outside-no-new-privileges": status.get("NoNewPrivs") == ["1"],
        "outside-capabilities": all(_is_empty(status, name) for name in held),
        "outside-bounding-set": bounded,
        "outside-bounding-set-of-root": bounded or not may_bound,
        "outside-uid": bool(status.get("Uid")) and "0" not in status["Uid"],
        "outside-gid": bool(status.get("Gid")) and not (superuser and "0" in status["Gid"]),
        "outside-groups": not superuser or status.get("Groups") == [],
        "outside-descriptors": _has_only_streams(pid),
    }


def _of_state(pid: int, status: Status) -> dict[str, bool]:
    limits = _text(pid, "limits")
    return {
        "outside-limits": _is_limited(limits, _LIMITS),
        "outside-threads": _is_limited(limits, _LIMITS_OF_A_USER),
        "outside-environment": _variables(pid) <= _VARIABLES,
        "outside-session": _leads_a_session(pid),
        "outside-core": _has_no_memory_in_its_core(pid),
        "outside-mask": status.get("Umask") == [_MASK],
        "outside-signals": _bits(status, "SigBlk") == _NO_SIGNAL
        and _bits(status, "SigIgn") & ~_IGNORED_SIGNALS == _NO_SIGNAL,
    }


def _of_mounts(text: str) -> dict[str, bool]:
    mounts = [line.split() for line in text.splitlines()]
    devices = {fields[4] for fields in mounts if fields[4].startswith("/dev/")}
    return {
        # Read here and not tried by the probe, because the filter denies it `statfs`.
        "disk-total": 0 < _size_of_room(mounts, "size") <= _DISK_KIB,
        "disk-inodes": 0 < _size_of_room(mounts, "nr_inodes") <= _ENTRIES,
        "outside-mounts": _can_write_one_place(mounts),
        "outside-mount-flags": bool(mounts) and all(map(_has_its_flags, mounts)),
        "outside-mount-propagation": bool(mounts) and all(fields[6] == "-" for fields in mounts),
        "outside-devices": devices == _DEVICES,
    }


def _of_the_zygote(status: Status) -> dict[str, bool]:
    """Check the parent of the copy, as far as it can be inspected."""
    number = int(status["PPid"][0])
    return {
        "outside-zygote": _hides(number),
        "outside-zygote-descriptors": not any(
            path == "/proc" or path.startswith("/proc/") for path in _open_paths(number)
        ),
    }


def _status(pid: int) -> Status:
    lines = (line.partition(":") for line in _text(pid, "status").splitlines())
    return {name: value.split() for name, _, value in lines}


def _filters(status: Status) -> int:
    """Count the filters of a process. In a container the harness has one, too, which proves nothing."""
    count = status.get("Seccomp_filters", [])
    return int(count[0]) if count and count[0].isdigit() else 0


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _bits(status: Status, name: str) -> int:
    """Return a set of bits; all bits if the field is missing."""
    value = status.get(name, [])
    return int(value[0], 16) if len(value) == 1 else -1


def _is_empty(status: Status, name: str) -> bool:
    return _bits(status, name) == 0


def _is_limited(text: str, limits: dict[str, tuple[int, int]]) -> bool:
    """Return whether these limits are in force: the soft ones, and the hard ones, which cannot be raised."""
    found = {
        row[1]: (row[2], row[3]) for row in re.finditer(r"^(Max .+?) {2,}(\w+) +(\w+)", text, re.MULTILINE)
    }
    in_force = all(
        value.isdigit() and int(value) <= most
        for name, both in limits.items()
        for value, most in zip(found.get(name, ("unlimited", "unlimited")), both, strict=True)
    )
    # No core fits into one byte. A core collector obeys a limit of one byte, and ignores a limit of 0.
    no_collector = (
        found.get("Max core file size") == ("1", "1") or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0
    )
    return in_force and no_collector


def _variables(pid: int) -> set[bytes]:
    """Return the names of the variables that a process was started with."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        # The child is hidden from other processes of its user. The probe has checked its variables itself.
        return set()
    except OSError:
        return {b"?"}
    return {entry.partition(b"=")[0] for entry in raw.split(b"\0") if entry}


def _has_no_memory_in_its_core(pid: int) -> bool:
    """Return whether a core contains no memory: a core collector on a socket ignores the limit of size."""
    kinds = _text(pid, "coredump_filter").strip()
    return bool(kinds) and not kinds.strip("0")


def _leads_a_session(pid: int) -> bool:
    fields = _text(pid, "stat").rpartition(")")[2].split()
    # The fields after the name: state, parent, group, session, terminal.
    return fields[3:5] == [str(pid), "0"]


def _has_its_flags(fields: list[str]) -> bool:
    if fields[4] == _ROOM:
        wanted = _FLAGS_OF_THE_ROOM
    else:
        wanted = _FLAGS_OF_DEVICES if fields[4].startswith("/dev/") else _FLAGS
    return wanted <= set(fields[5].split(","))


def _can_write_one_place(mounts: list[list[str]]) -> bool:
    """Return whether all mounts are read-only except devices and one private directory, and none is /proc."""
    kinds = [fields[fields.index("-") + 1] for fields in mounts]
    # A write to one of these devices stores nothing.
    writable = [
        kind
        for fields, kind in zip(mounts, kinds, strict=True)
        if "ro" not in fields[5].split(",") and not fields[4].startswith("/dev/")
    ]
    return writable == ["tmpfs"] and "proc" not in kinds


def _size_of_room(mounts: list[list[str]], option: str) -> int:
    """Return how much the private directory may hold by this option of its mount, 0 if it is not set."""
    for fields in mounts:
        found = re.search(rf"(?:^|,){option}=(\d+)k?(?:,|$)", fields[-1])
        if fields[4] == _ROOM and found:
            return int(found[1])
    return 0


def _has_only_streams(pid: int) -> bool:
    try:
        return set(os.listdir(f"/proc/{pid}/fd")) <= _STREAMS
    except PermissionError:
        # The child is hidden from other processes of its user. The probe has counted its descriptors itself.
        return True
    except OSError:
        return False


def _hides(pid: int) -> bool:
    """Return whether the /proc files of a process belong to root, so that its user cannot inspect it."""
    uids = _status(pid).get("Uid", [])
    try:
        owner = os.stat(f"/proc/{pid}/environ").st_uid
    except OSError:
        return True
    return "0" in uids or str(owner) not in uids


def _open_paths(pid: int) -> list[str]:
    """Return the paths behind the descriptors of a process; none if it cannot be inspected."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _is_in_another(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return False
