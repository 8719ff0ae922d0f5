"""What can be seen of a confined child from outside, while it waits: its own word is not enough."""

import os
import re
from pathlib import Path

from codegenie.eval.isolation.policy import rubric_limits

_NAMESPACES = {"user": "user", "pid": "pid", "mount": "mnt", "network": "net", "ipc": "ipc", "uts": "uts"}
_STREAMS = {"0", "1", "2"}
_ROOM = "/box/case"
# 64 MiB and 4,096 entries beside the files of the case, which are few and small where the probe is the case.
_DISK_KIB = 65 * 1024
_ENTRIES = 4_160
_SECCOMP_FILTER = "2"
_LIMITS = {
    "RLIMIT_CPU": "Max cpu time",
    "RLIMIT_FSIZE": "Max file size",
    "RLIMIT_CORE": "Max core file size",
    "RLIMIT_NOFILE": "Max open files",
    "RLIMIT_AS": "Max address space",
}
# A core of one byte is none, and tells a collector of cores so. A hard limit on time is some seconds higher.
_LIMIT_SLACK = {"RLIMIT_CORE": 1, "RLIMIT_CPU": 5}


def seen_from_outside(pid: int) -> dict[str, bool]:
    """Return for each outside check whether it holds; what cannot be seen does not."""
    status = _status(pid)
    if not status:
        return {}
    held = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    mounts = _text(pid, "mountinfo")
    found = {
        # Seen here and not tried by the probe, which may not ask for the size of a disk.
        "disk-total": 0 < _size_of_room(mounts, "size") <= _DISK_KIB,
        "disk-inodes": 0 < _size_of_room(mounts, "nr_inodes") <= _ENTRIES,
        "outside-seccomp": status.get("Seccomp") == [_SECCOMP_FILTER]
        and _filters(pid) > _filters(os.getpid()),
        "outside-no-new-privileges": status.get("NoNewPrivs") == ["1"],
        "outside-capabilities": all(_is_empty(status, name) for name in held),
        "outside-bounding-set": _is_empty(status, "CapBnd"),
        "outside-uid": bool(status.get("Uid")) and "0" not in status["Uid"],
        "outside-descriptors": _has_only_streams(pid),
        "outside-limits": _is_limited(_text(pid, "limits")),
        "outside-mounts": _can_write_one_place(mounts),
    }
    return found | {
        f"outside-{name}-namespace": _is_in_another(pid, link) for name, link in _NAMESPACES.items()
    }


def _status(pid: int) -> dict[str, list[str]]:
    lines = (line.partition(":") for line in _text(pid, "status").splitlines())
    return {name: value.split() for name, _, value in lines}


def _filters(pid: int) -> int:
    """Count the filters of a process: in a container we have one ourselves, which is nobody's proof."""
    count = _status(pid).get("Seccomp_filters", [])
    return int(count[0]) if count and count[0].isdigit() else 0


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_empty(status: dict[str, list[str]], name: str) -> bool:
    value = status.get(name)
    return value is not None and len(value) == 1 and not value[0].strip("0")


def _is_limited(text: str) -> bool:
    """Say whether every limit of a rubric is in force, the hard one too."""
    found = {
        row[1]: (row[2], row[3]) for row in re.finditer(r"^(Max .+?) {2,}(\w+) +(\w+)", text, re.MULTILINE)
    }
    return all(
        value.isdigit() and int(value) <= most + _LIMIT_SLACK.get(name, 0)
        for name, most in rubric_limits().items()
        for value in found.get(_LIMITS[name], ("unlimited",))
    )


def _can_write_one_place(text: str) -> bool:
    """Say whether all that is mounted is read-only, but for devices and one private place, without /proc."""
    mounts = [line.split() for line in text.splitlines()]
    kinds = [fields[fields.index("-") + 1] for fields in mounts]
    # A device is written to, and nothing is kept there.
    writable = [
        kind
        for fields, kind in zip(mounts, kinds, strict=True)
        if "ro" not in fields[5].split(",") and not fields[4].startswith("/dev/")
    ]
    return writable == ["tmpfs"] and "proc" not in kinds


def _size_of_room(text: str, option: str) -> int:
    """Return what the private place may hold by this option of its mount, 0 where nothing is said."""
    for line in text.splitlines():
        fields = line.split()
        found = re.search(rf"(?:^|,){option}=(\d+)k?(?:,|$)", fields[-1])
        if fields[4] == _ROOM and found:
            return int(found[1])
    return 0


def _has_only_streams(pid: int) -> bool:
    try:
        return set(os.listdir(f"/proc/{pid}/fd")) <= _STREAMS
    except PermissionError:
        # A child that nobody of its user may look into. The probe has counted its descriptors itself.
        return True
    except OSError:
        return False


def _is_in_another(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return False
