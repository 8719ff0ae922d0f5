"""Checks of the program in a box from outside, while it waits: what it says of itself is not enough.

Every value is written here a second time and not imported: what the walls forget would be forgotten here.
"""

import os
from pathlib import Path

_NAMESPACES = {
    "user": "user",
    "mount": "mnt",
    "pid": "pid",
    "ipc": "ipc",
    "uts": "uts",
    "cgroup": "cgroup",
    "network": "net",
}
_FILTERED = "2"
_AGENT = "61002"


def seen_from_outside(first_process: int, namespaces: frozenset[str]) -> dict[str, bool]:
    """Return for each check whether it holds for the program in a box; nothing if there is none.

    `namespaces` names the checks of namespaces that its class promises.
    """
    numbers = _text(first_process, f"task/{first_process}/children").split()
    status = _status(int(numbers[0])) if numbers else {}
    if not status:
        return {}
    number = int(numbers[0])
    ours = _status(os.getpid())
    held = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    users = set(status.get("Uid", ["0"])) | set(status.get("Gid", ["0"]))
    return {
        "outside-seccomp": status.get("Seccomp") == [_FILTERED] and _filters(status) > _filters(ours),
        "outside-no-new-privileges": status.get("NoNewPrivs") == ["1"],
        "outside-capabilities": all(status.get(name, ["1"])[0].strip("0") == "" for name in held),
        # Without root a process stays that of its user.
        "outside-user": users == {_AGENT} and not status.get("Groups")
        if os.geteuid() == 0
        else "0" not in users,
        **{
            f"outside-{name}-namespace": _is_in_another(number, link)
            for name, link in _NAMESPACES.items()
            if f"outside-{name}-namespace" in namespaces
        },
    }


def _text(number: int, name: str) -> str:
    try:
        return Path(f"/proc/{number}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _status(number: int) -> dict[str, list[str]]:
    lines = (line.partition(":") for line in _text(number, "status").splitlines())
    return {name: value.split() for name, _, value in lines}


def _filters(status: dict[str, list[str]]) -> int:
    """Count the filters of a process. In a container the harness has one, too, which proves nothing."""
    count = status.get("Seccomp_filters", [])
    return int(count[0]) if count and count[0].isdigit() else 0


def _is_in_another(number: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{number}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return False
