"""The namespaces of one box: its root, its private directories, its user and its network.

It runs in the first process of the new namespaces, before any foreign code. Every step is fatal when it
fails. All mount points are made before the first path of the host is bound, so that none is ever made on the
host.
"""

import fcntl
import os
import socket
import struct
from typing import Any

from codegenie.eval.boxes.places import HOST_NAME, IN_A_NAMESPACE, SHARED_MEMORY, USER
from codegenie.eval.boxes.users import become_agent
from codegenie.eval.isolation.confinement import syscalls
from codegenie.eval.isolation.confinement.namespaces import CAGE, KINDS
from codegenie.eval.isolation.confinement.user_map import map_user

_CLONE_NEWCGROUP = 0x02000000
_READ_ONLY = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
_PRIVATE = syscalls.MS_NOSUID | syscalls.MS_NODEV
_DEVICE = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NOEXEC
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_ROOT_OPTIONS = "mode=0755,size=4m,nr_inodes=4096"
_SET_INTERFACE_FLAGS, _UP = 0x8914, 1
_WRITABLE = (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.home, IN_A_NAMESPACE.tmp, SHARED_MEMORY)


class World:
    """Builds and enters the namespaces of boxes, and remembers those of the host for comparison."""

    def __init__(self) -> None:
        # Asked before the clone: in a new user namespace without a map it is 65534.
        self._ids = os.getuid(), os.getgid()
        self.is_privileged = os.geteuid() == 0
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._outside = {kind: self._namespace(kind) for kind in (*KINDS, "cgroup")}

    def flags(self, network: str) -> int:
        """Return the namespaces to be made at the fork."""
        unwanted = ({"user"} if self.is_privileged else set()) | ({"net"} if network == "host" else set())
        return sum(flag for kind, flag in KINDS.items() if kind not in unwanted) | _CLONE_NEWCGROUP

    def enter(self, wanted: dict[str, Any]) -> None:
        """Build the root and go into it, as root of the namespaces.

        The working directory must be the run directory, in which the mount point is.
        """
        if not self.is_privileged:
            self.map_user()
        kinds = {"mnt", "uts", "ipc", "pid", "cgroup"} | ({"net"} if wanted["network"] != "host" else set())
        self.check(kinds)
        syscalls.call("sethostname", HOST_NAME.encode(), len(HOST_NAME))
        syscalls.call("setdomainname", b"(none)", len("(none)"))
        if wanted["network"] != "host":
            _raise_loopback()
        # The agent must be able to walk through the directories that are made here.
        private = os.umask(0o022)
        self._build(wanted)
        os.umask(private)

    def take_on_user(self) -> None:
        """Take on the user of the box for good, in a user namespace of its own."""
        if self.is_privileged:
            become_agent()
            self._ids = USER, USER
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            self.map_user()
        self.check({"user"})
        os.close(self._proc)
        syscalls.drop_bounding_set()

    def _namespace(self, kind: str) -> int:
        return os.stat(f"self/ns/{kind}", dir_fd=self._proc).st_ino

    def check(self, kinds: set[str]) -> None:
        """Refuse to go on if one of these namespaces is that of the host."""
        shared = [kind for kind in sorted(kinds) if self._namespace(kind) == self._outside[kind]]
        if shared:
            raise syscalls.Refused(1, f"the {shared[0]} namespace is not a new one")

    def map_user(self) -> None:
        """Map the user of the host to that of the box."""
        map_user(self._proc, USER, self._ids)

    def _build(self, wanted: dict[str, Any]) -> None:
        layout = wanted["layout"]
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        syscalls.mount("tmpfs", CAGE, "tmpfs", _PRIVATE, _ROOT_OPTIONS)
        self._make_places(layout)
        for path in layout["shown"]:
            syscalls.mount(path, CAGE + path, None, syscalls.MS_BIND | syscalls.MS_REC)
        syscalls.restrict_mounts(CAGE, _READ_ONLY)
        for name in _DEVICES:
            # After the flag that forbids devices, which would forbid these, too.
            syscalls.mount(f"/dev/{name}", f"{CAGE}/dev/{name}", None, syscalls.MS_BIND)
            syscalls.restrict_mounts(f"{CAGE}/dev/{name}", _DEVICE)
        self._mount_private(wanted["sizes"])
        for path in layout["shown_in_private"]:
            _make_place(path)
            _give_away(path)
            syscalls.mount(path, CAGE + path, None, syscalls.MS_BIND | syscalls.MS_REC)
            syscalls.restrict_mounts(CAGE + path, _READ_ONLY)
        for path, target in layout["links_in_private"].items():
            os.makedirs(os.path.dirname(CAGE + path), exist_ok=True)
            os.symlink(target, CAGE + path)
            _give_away(path)
        for path in layout["hidden"]:
            _hide(path)
        syscalls.pivot_into(CAGE)

    def _make_places(self, layout: dict[str, Any]) -> None:
        for name in _DEVICES:
            _make_file(f"/dev/{name}", "")
        for path in (*_WRITABLE, IN_A_NAMESPACE.agent, "/dev/pts", "/proc"):
            os.makedirs(CAGE + path, exist_ok=True)
        for path, text in layout["files"].items():
            _make_file(path, text)
        for path in layout["shown"]:
            _make_place(path)
        for path, target in layout["links"].items():
            os.makedirs(os.path.dirname(CAGE + path), exist_ok=True)
            os.symlink(target, CAGE + path)
        for name, target in _DEVICE_LINKS.items():
            os.symlink(target, f"{CAGE}/dev/{name}")

    def _mount_private(self, sizes: dict[str, list[int]]) -> None:
        owner = f"uid={USER},gid={USER}"
        for path, (size, entries) in sizes.items():
            options = f"mode=0700,size={size},nr_inodes={entries},{owner}"
            syscalls.mount("tmpfs", CAGE + path, "tmpfs", _PRIVATE, options)
        flags = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
        syscalls.mount("devpts", f"{CAGE}/dev/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=0620")
        # As an ordinary user the kernel refuses this where something is mounted below the host's /proc.
        syscalls.mount("proc", f"{CAGE}/proc", "proc", flags | syscalls.MS_NODEV)


def freeze_agent_files() -> None:
    """Make the agent's own files read-only, after they were unpacked."""
    syscalls.restrict_mounts(IN_A_NAMESPACE.agent, _READ_ONLY)


def _make_place(path: str) -> None:
    if os.path.isdir(path):
        os.makedirs(CAGE + path, exist_ok=True)
    elif not os.path.lexists(CAGE + path):
        _make_file(path, "")


def _give_away(path: str) -> None:
    """Give the directories that were made on the way to a path to the agent: they lie in its own."""
    private = next(each for each in _WRITABLE if path.startswith(f"{each}/"))
    while (path := os.path.dirname(path)) != private:
        if os.geteuid() == 0:
            os.chown(CAGE + path, USER, USER)


def _make_file(path: str, text: str) -> None:
    place = CAGE + path
    os.makedirs(os.path.dirname(place), exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _hide(path: str) -> None:
    if os.path.isdir(CAGE + path):
        flags = _PRIVATE | syscalls.MS_RDONLY
        syscalls.mount("tmpfs", CAGE + path, "tmpfs", flags, "mode=0555,size=4k,nr_inodes=1")
    else:
        syscalls.mount(f"{CAGE}/dev/null", CAGE + path, None, syscalls.MS_BIND)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, struct.pack("16sH14x", b"lo", _UP))
