"""What must be proved about an isolation class before a run may claim it (ADR-0021), and what was proved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import FailFast, SerializerFunctionWrapHandler, model_serializer

from codegenie.eval.models import Identifier, IsolationClass, Record, Text


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKED_IN_EVERY_CLASS = _names("""
    harness-environment harness-memory harness-descriptor process-vm-read ptrace signal-harness
    prlimit-harness pidfd-harness private-file sibling-directory system-file list-root
    write-run-directory write-shared-directory chmod-outside utime-outside truncate-outside
    tcp-connect udp-send unix-socket abstract-socket netlink-socket fork exec-shell large-allocation
    large-file memfd shared-memory keyring io-uring unshare-user setns descriptors new-privileges
    capabilities outside-seccomp outside-no-new-privileges outside-capabilities outside-descriptors
    outside-limits
""")


_BLOCKED_IN_NAMESPACES = _names("""
    stat-outside disk-total disk-inodes hostname outside-bounding-set outside-uid outside-mounts
    outside-user-namespace outside-pid-namespace outside-mount-namespace outside-network-namespace
    outside-ipc-namespace outside-uts-namespace
""")


_SINCE_THE_SECOND_LIST = _names("""
    absent-calls argument-clone argument-fcntl argument-futex argument-getsockopt argument-ioctl
    argument-madvise argument-mremap argument-prctl argument-prlimit argument-sendto argument-signals
    argument-socketpair deadline device-call environment exec-library exec-written huge-pages
    installed-packages list-programs newer-calls old-door open-room other-devices statfs sysinfo
    thread-number unlisted-calls x32 outside-bounding-set-of-root outside-core outside-environment
    outside-mask outside-session outside-signals outside-zygote outside-zygote-descriptors
""")


_SINCE_THE_SECOND_LIST_IN_NAMESPACES = _names("""
    stat-system outside-devices outside-gid outside-groups outside-mount-flags
    outside-mount-propagation outside-threads
""")


def _required(
    in_every_class: frozenset[str], in_namespaces: frozenset[str]
) -> Mapping[IsolationClass, frozenset[str]]:
    return MappingProxyType(
        {
            "subprocess": frozenset(),
            "landlock": in_every_class,
            "namespace": in_every_class | in_namespaces,
        }
    )


REQUIRED_BY_LIST: Mapping[int, Mapping[IsolationClass, frozenset[str]]] = MappingProxyType(
    {
        1: _required(_BLOCKED_IN_EVERY_CLASS, _BLOCKED_IN_NAMESPACES),
        2: _required(
            _BLOCKED_IN_EVERY_CLASS | _SINCE_THE_SECOND_LIST,
            _BLOCKED_IN_NAMESPACES | _SINCE_THE_SECOND_LIST_IN_NAMESPACES,
        ),
    }
)
"""The probes that must be blocked before a run may claim a class (ADR-0021), by the number of the list.

Never change a list under which records were written: older logs must still verify.
"""


PROBE_LIST: Final = 2
"""The list that a proof must satisfy today."""


REQUIRED_PROBES = REQUIRED_BY_LIST[PROBE_LIST]


class ProbeResult(Record):
    """The result of one probe of the isolation, at the start of a run."""

    name: Identifier
    blocked: bool


class IsolationProof(Record):
    """What was proved about the isolation before the run, and on which kernel."""

    isolation_class: IsolationClass
    kernel: Text
    landlock_abi: int | None = None
    # The list of required probes that it must satisfy. Records under the first list do not contain it.
    probe_list: Literal[1, 2] = 1
    probes: Annotated[tuple[ProbeResult, ...], FailFast()] = ()

    @model_serializer(mode="wrap")
    def _spelled(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out the number of the first list: a record is compared with its canonical bytes."""
        document: dict[str, object] = handler(self)
        if self.probe_list == 1:
            del document["probe_list"]
        return document

    @property
    def unproved(self) -> tuple[str, ...]:
        """Name the required probes that are missing or were not blocked, in order."""
        # If a probe is listed twice, one result "not blocked" is enough to count it as not blocked.
        through = {probe.name for probe in self.probes if not probe.blocked}
        blocked = {probe.name for probe in self.probes} - through
        return tuple(sorted(REQUIRED_BY_LIST[self.probe_list][self.isolation_class] - blocked))

    @property
    def holds(self) -> bool:
        """Whether everything that its class promises was proved; `subprocess` promises nothing."""
        return not self.unproved


BoxNetwork = Literal["none", "broker", "host"]
_OF_EVERY_BOX = _names("""
    secret-file git-history private-file walked-file victim-environment victim-descriptor unix-socket
    unix-mailbox abstract-socket tmp-file shared-memory-file system-v-memory edited-file outside-seccomp
    outside-no-new-privileges outside-capabilities outside-user
""")
_OF_BOXES_WITHOUT_THE_NETWORK_OF_THE_HOST = _names("tcp-connect udp-send")
_OF_BOXES_IN_NAMESPACES = _names("""
    outside-user-namespace outside-mount-namespace outside-pid-namespace outside-ipc-namespace
    outside-uts-namespace outside-cgroup-namespace
""")
_OF_THE_NETWORK_OF_A_BOX = _names("outside-network-namespace")


def required_of_box(isolation_class: IsolationClass, network: BoxNetwork) -> frozenset[str]:
    """Return what must be blocked before a run may claim a class for the boxes of its agent (ADR-0031)."""
    if isolation_class == "subprocess":
        return frozenset()
    own_network = network != "host"
    required = _OF_EVERY_BOX | (_OF_BOXES_WITHOUT_THE_NETWORK_OF_THE_HOST if own_network else frozenset())
    if isolation_class == "namespace":
        required |= _OF_BOXES_IN_NAMESPACES | (_OF_THE_NETWORK_OF_A_BOX if own_network else frozenset())
    return required


class BoxProof(Record):
    """What was proved about the boxes of an agent before the run: the thief found nothing."""

    isolation_class: IsolationClass
    network: BoxNetwork
    kernel: Text
    landlock_abi: int | None = None
    # The list of required probes that it must satisfy.
    probe_list: Literal[1] = 1
    probes: Annotated[tuple[ProbeResult, ...], FailFast()] = ()

    @property
    def unproved(self) -> tuple[str, ...]:
        """Name the required probes that are missing or were not blocked, in order."""
        through = {probe.name for probe in self.probes if not probe.blocked}
        blocked = {probe.name for probe in self.probes} - through
        return tuple(sorted(required_of_box(self.isolation_class, self.network) - blocked))

    @property
    def holds(self) -> bool:
        """Whether everything that its class promises was proved; `subprocess` promises nothing."""
        return not self.unproved


@dataclass(frozen=True, slots=True)
class ClassFinding:
    """Whether one class was proved on this machine; if not, why, and what would have to change."""

    isolation_class: IsolationClass
    proof: IsolationProof | None = None
    why_not: str | None = None
    remedies: tuple[str, ...] = ()
    # The kernel lacks what the class needs. Only then does `auto` try the next class.
    lacking: bool = False
    # `auto` does not choose it; the user must ask for it by name.
    by_name_only: bool = False


@dataclass(frozen=True, slots=True)
class BoxFinding:
    """Whether boxes of one class were proved on this machine; if not, why, and what would have to change."""

    isolation_class: IsolationClass
    proof: BoxProof | None = None
    why_not: str | None = None
    remedies: tuple[str, ...] = ()


def strongest(findings: Sequence[ClassFinding]) -> IsolationClass | None:
    """Return the class that `auto` takes, or None. The findings must be ordered, strongest class first."""
    first = next((found for found in findings if not found.lacking), None)
    if first is None or first.proof is None or first.by_name_only:
        return None
    return first.isolation_class


OPEN_PROBES = frozenset(
    {
        "working-directory",
        "socket-pair",
        "random",
        "own-source",
        "system-calls",
        "thread-of-its-own",
        "free-calls",
        "released",
    }
)
"""What every class leaves open, because rubrics need it; the probe needs it too."""


CONTROLLED_PROBES = frozenset(
    {
        "harness-environment",
        "harness-memory",
        "harness-descriptor",
        "process-vm-read",
        "signal-harness",
        "prlimit-harness",
        "private-file",
        "sibling-directory",
        "system-file",
        "list-root",
        "stat-outside",
        "write-run-directory",
        "write-shared-directory",
        "chmod-outside",
        "utime-outside",
        "truncate-outside",
        "tcp-connect",
        "udp-send",
        "unix-socket",
        "abstract-socket",
        "fork",
        "large-allocation",
        "large-file",
        "hostname",
    }
)
"""The canaries: a probe without confinement must reach each of them.

The other probes are calls and states that many machines, above all containers, deny to every process:
io_uring, keys, namespaces, a shell. What the machine denies to every process, it denies to a rubric too.
"""
