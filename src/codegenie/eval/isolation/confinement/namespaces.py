"""The namespaces of a zygote: a read-only root with almost nothing in it, and a user without any rights.

Every step is fatal when it fails. The namespaces are compared with those of the host before anything is
changed in them: a mount or a host name that is meant for the new ones must never reach the host.
"""

import os

from codegenie.eval.isolation.confinement import syscalls, visible_paths
from codegenie.eval.isolation.confinement.user_map import map_user

# The uid that a process inside sees. If root started the harness it is also the real uid outside, so it must
# belong to no account: systemd-homed gives 60001 to 60513 to people, and 61001 lies in an unassigned range.
USER = 61001
# The host itself may have this name, and then the probe could not tell the two apart.
HOST_NAME = "confined" if os.uname().nodename != "confined" else "confined-rubric"
# The kernel's answer if no domain name was set.
DOMAIN_NAME = "(none)"
# Relative to the run directory, which is the working directory when the root is built. The path of the run
# directory is never known here: a copy could find it in its memory.
CAGE = "root"
KINDS = {
    "mnt": syscalls.CLONE_NEWNS,
    "uts": syscalls.CLONE_NEWUTS,
    "ipc": syscalls.CLONE_NEWIPC,
    "pid": syscalls.CLONE_NEWPID,
    "net": syscalls.CLONE_NEWNET,
    "user": syscalls.CLONE_NEWUSER,
}
_READ_ONLY = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
_DEVICE = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NOEXEC


class World:
    """Builds and enters a set of new namespaces, and remembers those of the host for comparison."""

    def __init__(self, interpreter: str) -> None:
        self._interpreter = interpreter
        self._ids = os.getuid(), os.getgid()
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._outside = {kind: self._namespace(kind) for kind in KINDS}
        # As root we build the mounts first and change to an unused uid afterwards. The interpreter may lie in
        # a home directory that only root can enter. Without root a user namespace gives the right to mount.
        self._privileged = os.geteuid() == 0

    @property
    def flags(self) -> int:
        """The namespaces to be made at the fork."""
        wanted = (flag for kind, flag in KINDS.items() if kind != "user" or not self._privileged)
        return sum(wanted)

    def enter(self) -> None:
        """Build the root and change the user, in the first process of the namespaces. This cannot be undone.

        The working directory must be the run directory. Afterwards it is `/` of the new root.
        """
        if not self._privileged:
            map_user(self._proc, USER, self._ids)
        self._check("mnt", "uts", "ipc", "pid", "net")
        syscalls.call("sethostname", HOST_NAME.encode(), len(HOST_NAME))
        syscalls.call("setdomainname", DOMAIN_NAME.encode(), len(DOMAIN_NAME))
        self._build_root()
        if self._privileged:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            self._ids = USER, USER
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            map_user(self._proc, USER, self._ids)
        self._check("user")
        os.close(self._proc)
        syscalls.drop_bounding_set()

    def _namespace(self, kind: str) -> int:
        return os.stat(f"self/ns/{kind}", dir_fd=self._proc).st_ino

    def _check(self, *kinds: str) -> None:
        shared = [kind for kind in kinds if self._namespace(kind) == self._outside[kind]]
        if shared:
            raise syscalls.Refused(1, f"the {shared[0]} namespace is not a new one")

    def _build_root(self) -> None:
        # The later user must be able to walk through the directories that are made here.
        private = os.umask(0o022)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", CAGE, "tmpfs", flags, "mode=0755,size=1m,nr_inodes=1024")
        for path in visible_paths.readable(self._interpreter):
            self._bind(path)
        for path, target in visible_paths.links().items():
            os.symlink(target, CAGE + path)
        for path in visible_paths.masked():
            syscalls.mount("tmpfs", CAGE + path, "tmpfs", flags, "mode=0555,size=4k,nr_inodes=1")
        for path in visible_paths.DEVICES:
            self._place(path, is_directory=False)
        os.makedirs(CAGE + visible_paths.ROOM)
        syscalls.restrict_mounts(CAGE, _READ_ONLY)
        for path in visible_paths.DEVICES:
            # After the other mounts: the flag that forbids devices would forbid these, too.
            self._bind(path)
            syscalls.restrict_mounts(CAGE + path, _DEVICE)
        syscalls.pivot_into(CAGE)
        os.umask(private)

    def _bind(self, path: str) -> None:
        self._place(path, is_directory=os.path.isdir(path))
        syscalls.mount(path, CAGE + path, None, syscalls.MS_BIND | syscalls.MS_REC)

    def _place(self, path: str, *, is_directory: bool) -> None:
        """Make a mount point, unless an earlier mount contains it already."""
        place = CAGE + path
        if os.path.lexists(place):
            return
        os.makedirs(place if is_directory else os.path.dirname(place), exist_ok=True)
        if not is_directory:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def mount_room(size: int, entries: int) -> None:
    """Mount the private directory and enter it. The caller must be in its own mount namespace."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", visible_paths.ROOM, "tmpfs", flags, f"mode=0700,size={size},nr_inodes={entries}")
    os.chdir(visible_paths.ROOM)
