"""What is missing on a machine is told with what to type, and only what is missing."""

from dataclasses import replace

import pytest

from codegenie.eval.isolation.machine import Machine, remedies, this_machine
from codegenie.eval.models import IsolationClass

WHOLE = Machine(
    system="Linux",
    kernel="6.12.0",
    architecture="x86_64",
    landlock_abi=6,
    seccomp=True,
    max_user_namespaces=15_000,
)
Row = tuple[dict[str, object], str]
NOTHING_KNOWN = "`codegenie eval doctor --json`"
IN_BOTH: dict[str, Row] = {
    "another system": ({"system": "Darwin"}, "`limactl start"),
    "another architecture": ({"architecture": "riscv64"}, "`uname -m`"),
    "no seccomp": ({"seccomp": False}, "CONFIG_SECCOMP_FILTER"),
    "Landlock was not started": (
        {"landlock_abi": None, "landlock_problem": "disabled"},
        "`cat /sys/kernel/security/lsm`",
    ),
    "an old kernel": ({"landlock_abi": None, "landlock_problem": "absent"}, "`uname -r` says"),
    "a container without Landlock": (
        {"landlock_abi": None, "landlock_problem": "absent", "container": "podman"},
        "`podman run --security-opt seccomp=unconfined",
    ),
}
IN_NAMESPACE: dict[str, Row] = {
    "no user namespaces": ({"max_user_namespaces": 0}, "`sudo sysctl -w user.max_user_namespaces="),
    "none for ordinary users": (
        {"unprivileged_userns_clone": 0},
        "`sudo sysctl -w kernel.unprivileged_userns_clone=1`",
    ),
    "AppArmor": (
        {"apparmor_restrict_unprivileged_userns": 1},
        "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    "a container": ({"container": "docker"}, "`docker run --security-opt seccomp=unconfined --security-opt"),
}


def machine(changes: dict[str, object]) -> Machine:
    return replace(WHOLE, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", IN_BOTH)
@pytest.mark.parametrize("isolation_class", ["namespace", "landlock"])
def test_what_both_classes_lack_is_told_for_both(isolation_class: IsolationClass, name: str) -> None:
    changes, typed = IN_BOTH[name]

    assert typed in remedies(machine(changes), isolation_class)[0]


def test_a_landlock_that_is_too_old_to_stand_alone_is_enough_beside_namespaces() -> None:
    old = machine({"landlock_abi": 2})

    assert "`uname -r` says 6.2 or later" in remedies(old, "landlock")[0]
    assert NOTHING_KNOWN in remedies(old, "namespace")[0]


@pytest.mark.parametrize("name", IN_NAMESPACE)
def test_what_namespaces_lack_is_told_for_them_alone(name: str) -> None:
    changes, typed = IN_NAMESPACE[name]
    (remedy,) = remedies(machine(changes), "namespace")

    assert typed in remedy
    assert typed not in " ".join(remedies(machine(changes), "landlock"))


@pytest.mark.parametrize("name", ["none for ordinary users", "AppArmor"])
def test_what_ordinary_users_are_denied_does_not_concern_root(name: str) -> None:
    (remedy,) = remedies(machine({**IN_NAMESPACE[name][0], "superuser": True}), "namespace")

    assert NOTHING_KNOWN in remedy


@pytest.mark.parametrize("name", [*IN_BOTH, *IN_NAMESPACE])
@pytest.mark.parametrize("isolation_class", ["namespace", "landlock"])
def test_nobody_is_told_to_change_how_the_machine_starts(isolation_class: IsolationClass, name: str) -> None:
    told = " ".join(remedies(machine({**IN_BOTH, **IN_NAMESPACE}[name][0]), isolation_class)).lower()

    assert [
        word for word in ("grub", "cmdline", "/boot/loader", "apt ", "reboot", "start again") if word in told
    ] == []


@pytest.mark.parametrize("isolation_class", ["namespace", "landlock"])
def test_where_nothing_is_missing_that_is_said(isolation_class: IsolationClass) -> None:
    (remedy,) = remedies(WHOLE, isolation_class)

    assert NOTHING_KNOWN in remedy


def test_the_class_that_needs_no_proof_needs_no_remedy() -> None:
    assert remedies(machine({"system": "Darwin"}), "subprocess") == ()


@pytest.mark.parametrize(
    ("scope", "traces_anybody", "hidden"),
    [
        (None, False, False),
        (0, False, False),
        (1, False, True),
        (1, True, False),
        (2, True, False),
        (3, True, True),
    ],
)
def test_memory_is_hidden_from_everybody_where_the_kernel_says_so(
    scope: int | None, traces_anybody: bool, hidden: bool
) -> None:
    assert machine({"yama_ptrace_scope": scope, "traces_anybody": traces_anybody}).hides_memory is hidden


def test_this_machine_is_the_one_that_we_run_on() -> None:
    found = this_machine()

    assert found.system
    assert found.kernel
    assert found.landlock_abi is None or found.landlock_abi > 0
    assert (found.landlock_abi is None) == (found.landlock_problem is not None)
