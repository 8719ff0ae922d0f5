"""The filter of a box, run for both machines as the kernel would: what is denied, absent and checked."""

import errno

import pytest

from codegenie.eval.boxes import filter as box_filter
from codegenie.eval.boxes.request import Network
from codegenie.eval.isolation.confinement.syscall_numbers import LAST_KNOWN, numbers
from tests.support.call_filters import ALLOW, ARCHITECTURES, ERROR, answer
from tests.support.system_calls import REFUSED, WELL_KNOWN

TABLES = (
    box_filter.DENIED,
    box_filter.ABSENT,
    box_filter.OF_THE_HOST,
    box_filter.CHECKED,
    box_filter.ON_ONESELF,
    box_filter.SENDING,
)
PERM, NOSYS, NOFAMILY = (ERROR | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
UNIX, INET, INET6, NETLINK, PACKET, VSOCK, ALG = 1, 2, 10, 16, 17, 40, 38
STREAM, DATAGRAM, SEQPACKET, RAW, CLOSE_ON_EXEC = 1, 2, 5, 3, 0o2000000
NAMES = {
    name: {machine: number for machine in ARCHITECTURES for number in [numbers(table, machine).get(name)]}
    for table in (*TABLES, REFUSED, WELL_KNOWN)
    for name in numbers(table, "x86_64")
}

each_machine = pytest.mark.parametrize("machine", ARCHITECTURES)
NETWORKS: tuple[Network, ...] = ("none", "broker", "host")
each_box = pytest.mark.parametrize(
    ("namespaces", "network"), [(each, network) for each in (True, False) for network in NETWORKS]
)


def said(machine: str, name: str, *arguments: int, namespaces: bool = True, network: Network = "none") -> int:
    """Return the answer of a box's filter to one call."""
    code = box_filter.program(machine, namespaces=namespaces, network=network)
    number = NAMES[name][machine]
    assert number is not None
    return answer(code, number, ARCHITECTURES[machine], arguments)


def test_numbers_are_those_of_a_second_list() -> None:
    second = {*REFUSED.split(), *WELL_KNOWN.split()}
    ours = {entry for table in TABLES for entry in table.split()}

    assert {
        entry for entry in ours if entry.partition(":")[0] in {each.partition(":")[0] for each in second}
    } <= second
    for machine in ARCHITECTURES:
        found = [number for table in TABLES for number in numbers(table, machine).values()]
        assert len(found) == len(set(found))


@each_machine
@each_box
def test_exactly_the_intended_calls_are_denied_or_absent(
    machine: str, namespaces: bool, network: Network
) -> None:
    code = box_filter.program(machine, namespaces=namespaces, network=network)
    checked = box_filter.CHECKED + ("" if namespaces else box_filter.ON_ONESELF + box_filter.SENDING)
    denied = box_filter.DENIED + ("" if namespaces else box_filter.OF_THE_HOST)
    others = set(range(600)) - set(numbers(checked, machine).values())
    found = {number: answer(code, number, ARCHITECTURES[machine]) for number in others}

    assert {number for number, each in found.items() if each == PERM} == set(
        numbers(denied, machine).values()
    )
    absent = {*numbers(box_filter.ABSENT, machine).values(), *range(LAST_KNOWN + 1, 600)}
    assert {number for number, each in found.items() if each == NOSYS} == absent
    assert set(found.values()) == {ALLOW, PERM, NOSYS}


@each_machine
@pytest.mark.parametrize(
    "name",
    [
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "setns",
        "keyctl",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "kexec_load",
        "open_by_handle_at",
        "memfd_secret",
        "fanotify_init",
        "vmsplice",
        "move_pages",
        "mbind",
        "syslog",
        "quotactl",
        "swapon",
        "reboot",
        "init_module",
    ],
)
def test_what_the_contract_names_is_denied(machine: str, name: str) -> None:
    assert said(machine, name) == PERM


@each_machine
def test_tools_of_programmers_stay_free(machine: str) -> None:
    for name in (
        "ptrace",
        "process_vm_readv",
        "memfd_create",
        "execveat",
        "inotify_init1",
        "flock",
        "seccomp",
    ):
        assert said(machine, name) == ALLOW


@each_machine
def test_a_foreign_architecture_and_newer_calls_do_not_exist(machine: str) -> None:
    code = box_filter.program(machine, namespaces=True, network="none")

    assert answer(code, 1, 0x40000003) == NOSYS
    assert answer(code, LAST_KNOWN + 1, ARCHITECTURES[machine]) == NOSYS
    if machine == "x86_64":
        assert answer(code, 0x40000000, ARCHITECTURES[machine]) == NOSYS


@each_machine
@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_no_new_namespace_is_made_whatever_flags_stand_beside_it(machine: str, flag: int) -> None:
    assert said(machine, "clone", flag | 17) == said(machine, "unshare", flag | 0x400) == PERM
    assert (
        said(machine, "clone", 0x3D0F00)
        == said(machine, "clone", 17)
        == said(machine, "unshare", 0x400)
        == ALLOW
    )
    assert said(machine, "unshare", 0x80) == PERM
    assert said(machine, "clone", 0x80 | 17) == ALLOW


@each_machine
def test_no_input_of_a_terminal_is_faked(machine: str) -> None:
    assert [said(machine, "ioctl", 0, request) for request in (0x5412, 0x541C, 0x5401)] == [PERM, PERM, ALLOW]


@each_machine
def test_families_of_sockets_are_an_allow_list_in_a_namespace(machine: str) -> None:
    for network in NETWORKS:
        for family in (UNIX, INET, INET6):
            assert said(machine, "socket", family, DATAGRAM, 0, network=network) == ALLOW
        assert said(machine, "socket", NETLINK, RAW, 0, network=network) == ALLOW
        assert said(machine, "socket", NETLINK, RAW, 16, network=network) == NOFAMILY
        for family in (PACKET, VSOCK, ALG, 0, 45):
            assert said(machine, "socket", family, STREAM, 0, network=network) == NOFAMILY


@each_machine
@pytest.mark.parametrize(
    ("network", "arguments", "free"),
    [
        ("none", (INET, STREAM, 0), False),
        ("none", (INET6, DATAGRAM, 0), False),
        ("none", (NETLINK, RAW, 0), False),
        ("broker", (INET, STREAM, 0), True),
        ("broker", (INET6, STREAM | CLOSE_ON_EXEC, 6), True),
        ("broker", (INET, DATAGRAM, 0), False),
        ("broker", (INET, RAW, 0), False),
        ("broker", (INET, STREAM, 132), False),
        ("broker", (INET, STREAM, 262), False),
        ("broker", (NETLINK, RAW, 0), False),
        ("host", (INET, DATAGRAM, 0), True),
        ("host", (NETLINK, RAW, 0), True),
        ("host", (VSOCK, STREAM, 0), False),
        *((network, (UNIX, STREAM, 0), False) for network in NETWORKS),
    ],
)
def test_without_a_namespace_sockets_are_those_of_the_network(
    machine: str, network: Network, arguments: tuple[int, ...], free: bool
) -> None:
    found = said(machine, "socket", *arguments, namespaces=False, network=network)

    assert found == (ALLOW if free else NOFAMILY)


@each_machine
def test_without_a_namespace_no_pair_can_send_to_a_named_socket(machine: str) -> None:
    kinds = (STREAM, SEQPACKET, STREAM | CLOSE_ON_EXEC, DATAGRAM)
    found = [said(machine, "socketpair", UNIX, kind, namespaces=False) for kind in kinds]

    assert found == [ALLOW, ALLOW, ALLOW, NOFAMILY]
    assert said(machine, "socketpair", UNIX, DATAGRAM) == ALLOW
    assert said(machine, "socketpair", VSOCK, STREAM) == NOFAMILY


@each_machine
@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setscheduler"])
def test_without_a_namespace_a_process_changes_limits_and_order_of_itself_alone(
    machine: str, name: str
) -> None:
    assert [said(machine, name, number, namespaces=False) for number in (0, 4242)] == [ALLOW, PERM]


@each_machine
@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setscheduler"])
def test_in_a_namespace_limits_and_order_of_the_first_process_alone_are_out_of_reach(
    machine: str, name: str
) -> None:
    assert [said(machine, name, number) for number in (0, 1, 2, 4242)] == [ALLOW, PERM, ALLOW, ALLOW]


@each_machine
def test_in_a_namespace_priorities_are_not_set_for_the_first_process_nor_for_a_user(machine: str) -> None:
    for name, process, user in (("setpriority", 0, 2), ("ioprio_set", 1, 3)):
        found = [said(machine, name, *each) for each in ((process, 0), (process, 7), (process, 1), (user, 0))]
        assert found == [ALLOW, ALLOW, PERM, PERM]


@each_machine
def test_without_a_namespace_priorities_are_set_for_oneself_alone(machine: str) -> None:
    for name, process, group in (("setpriority", 0, 1), ("ioprio_set", 1, 2)):
        found = [
            said(machine, name, *each, namespaces=False) for each in ((process, 0), (process, 7), (group, 0))
        ]
        assert found == [ALLOW, PERM, PERM]


@each_machine
@pytest.mark.parametrize(("name", "index"), [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)])
def test_without_a_namespace_no_connection_is_opened_by_sending(machine: str, name: str, index: int) -> None:
    for flags, expected in ((0x20000000, PERM), (0x20004000, PERM), (0x4000, ALLOW)):
        arguments = [0] * 6
        arguments[index] = flags
        assert said(machine, name, *arguments, namespaces=False, network="broker") == expected


@each_machine
@each_box
def test_the_filter_fits_the_kernel(machine: str, namespaces: bool, network: Network) -> None:
    code = box_filter.program(machine, namespaces=namespaces, network=network)

    assert len(code) < 4096
    assert all(0 <= true < 256 and 0 <= false < 256 for _, true, false, _ in code)
