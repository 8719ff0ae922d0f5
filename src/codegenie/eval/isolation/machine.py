"""What this machine offers for confinement, and what to do where it offers too little."""

import ctypes
import errno
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.models import IsolationClass

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1
_ARCHITECTURES = ("x86_64", "aarch64")
_CONTAINER_MARKS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
# Where Landlock is the only defense, version 3 is needed: older ones do not control truncation of files.
LEAST_LANDLOCK_ABI: dict[IsolationClass, int] = {"landlock": 3, "namespace": 1}
_OLDEST_KERNEL: dict[IsolationClass, str] = {"landlock": "6.2", "namespace": "5.14"}
_CAP_SYS_PTRACE = 1 << 19
_LARGEST_SCOPE_FOR_TRACERS = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """The settings that decide which classes exist here; None if the kernel has no such setting."""

    system: str
    kernel: str
    architecture: str
    superuser: bool = False
    # CAP_SYS_PTRACE, which root in a container does not have.
    traces_anybody: bool = False
    landlock_abi: int | None = None
    # "absent" if the kernel was built without it, "disabled" if it was not enabled at boot.
    landlock_problem: str | None = None
    seccomp: bool = False
    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restrict_unprivileged_userns: int | None = None
    yama_ptrace_scope: int | None = None
    container: str | None = None

    @property
    def hides_memory(self) -> bool:
        """Whether the kernel hides the memory of a process even from the process's own children."""
        scope = self.yama_ptrace_scope or 0
        return scope > (_LARGEST_SCOPE_FOR_TRACERS if self.traces_anybody else 0)


def this_machine() -> Machine:
    """Describe the machine that we run on."""
    uname = os.uname()
    abi, problem = _landlock()
    status = _text("/proc/self/status")
    return Machine(
        system=uname.sysname,
        kernel=uname.release,
        architecture=uname.machine,
        superuser=os.geteuid() == 0,
        traces_anybody=bool(_effective_capabilities(status) & _CAP_SYS_PTRACE),
        landlock_abi=abi,
        landlock_problem=problem,
        seccomp=bool(_text("/proc/sys/kernel/seccomp/actions_avail")),
        max_user_namespaces=_number("user/max_user_namespaces"),
        unprivileged_userns_clone=_number("kernel/unprivileged_userns_clone"),
        apparmor_restrict_unprivileged_userns=_number("kernel/apparmor_restrict_unprivileged_userns"),
        yama_ptrace_scope=_number("kernel/yama/ptrace_scope"),
        container=next((name for mark, name in _CONTAINER_MARKS.items() if os.path.exists(mark)), None),
    )


def namespaces_are_switched_off() -> bool:
    """Return whether a kind of namespace has a maximum of 0: the kernel then answers ENOSPC."""
    kinds = ("user", "pid", "mnt", "net", "ipc", "uts")
    return any(_number(f"user/max_{kind}_namespaces") == 0 for kind in kinds)


def proc_is_mounted() -> bool:
    """Return whether processes can be inspected, which both set-up and proof do."""
    return os.path.exists("/proc/self/status")


def lacks(machine: Machine) -> str | None:
    """Return why no class above `subprocess` can exist here; None if one may exist."""
    if machine.system != "Linux":
        return f"{machine.system} has neither namespaces nor Landlock"
    if machine.architecture not in _ARCHITECTURES:
        return f"codegenie does not know the system calls of {machine.architecture}"
    return None


def _landlock() -> tuple[int | None, str | None]:
    if sys.platform != "linux":
        return None, "absent"
    libc = ctypes.CDLL(None, use_errno=True)
    number, flag = ctypes.c_long(_LANDLOCK_CREATE_RULESET), ctypes.c_uint32(_LANDLOCK_VERSION_FLAG)
    abi = libc.syscall(number, None, ctypes.c_size_t(0), flag)
    if abi > 0:
        return abi, None
    return None, "disabled" if ctypes.get_errno() == errno.EOPNOTSUPP else "absent"


def _effective_capabilities(status: str) -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number(setting: str) -> int | None:
    text = _text(f"/proc/sys/{setting}").strip()
    return int(text) if text.isdigit() else None


def remedies(machine: Machine, isolation_class: IsolationClass) -> tuple[str, ...]:
    """Return what has to change here before a class can be proved, each with the command to type."""
    if isolation_class == "subprocess":
        return ()
    if machine.system != "Linux":
        virtual = "run codegenie in a Linux virtual machine, for example `limactl start template://debian`"
        return (f"{machine.system} has neither namespaces nor Landlock: {virtual}",)
    found = [
        *_of_every_class(machine, isolation_class),
        *(_of_namespaces(machine) if isolation_class == "namespace" else ()),
    ]
    if not found and machine.container:
        found.append(
            f"this is a {machine.container} container, whose filter may deny it: start it with"
            f" `{machine.container} run --security-opt seccomp=unconfined …`"
        )
    return tuple(found) or (
        "no known cause was found here: run `codegenie eval doctor --json` and report its output",
    )


def _of_every_class(machine: Machine, isolation_class: IsolationClass) -> list[str]:
    found = []
    least_landlock_abi, oldest = LEAST_LANDLOCK_ABI[isolation_class], _OLDEST_KERNEL[isolation_class]
    if machine.architecture not in _ARCHITECTURES:
        found.append(
            f"codegenie does not know the system calls of {machine.architecture}: use a machine where"
            f" `uname -m` says {' or '.join(_ARCHITECTURES)}"
        )
    if not machine.seccomp:
        found.append(
            "this kernel has no seccomp filters: use one in which"
            " `grep CONFIG_SECCOMP_FILTER /boot/config-$(uname -r)` says y"
        )
    if machine.landlock_problem == "disabled":
        found.append(
            "this kernel has Landlock, but was started without it: use a machine where"
            " `cat /sys/kernel/security/lsm` names landlock"
        )
    elif machine.landlock_abi is None and machine.container:
        found.append(
            f"Landlock is absent from kernel {machine.kernel}, or denied by the filter of this container:"
            f" `{machine.container} run --security-opt seccomp=unconfined …`"
        )
    elif (machine.landlock_abi or 0) < least_landlock_abi:
        found.append(
            f"Landlock of kernel {machine.kernel} is too old or absent: use a machine where `uname -r` says"
            f" {oldest} or later"
        )
    return found


def _of_namespaces(machine: Machine) -> list[str]:
    found = []
    if machine.max_user_namespaces == 0:
        found.append(
            "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=15000`, and for good"
            " `echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-userns.conf`"
        )
    if machine.unprivileged_userns_clone == 0 and not machine.superuser:
        found.append(
            "ordinary users may not make user namespaces: `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
        )
    if machine.apparmor_restrict_unprivileged_userns == 1 and not machine.superuser:
        found.append(
            "AppArmor removes all rights from the user namespaces of ordinary users:"
            " `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
        )
    if machine.container:
        found.append(
            f"a {machine.container} container denies namespaces by default: `{machine.container} run"
            " --security-opt seccomp=unconfined --security-opt apparmor=unconfined …`; class `landlock` needs"
            " neither"
        )
    return found
