"""A world of one's own: namespaces, a read-only root with next to nothing in it, and a user that is nobody.

Every step is fatal when it fails, and the namespaces are looked at before anything is changed in them: a
mount or a name that was meant for ours must never reach the host's.
"""

import os

from codegenie.eval.isolation.confinement import syscalls, visible_paths

# What the process inside sees, whoever started the harness, and nobody's number outside if that was root:
# systemd-homed gives 60001 to 60513 to people, and 61001 lies in a range that has no purpose.
USER = 61001
# A host may have the name itself, and the probe could not tell the two apart.
HOST_NAME = "confined" if os.uname().nodename != "confined" else "confined-rubric"
# What the kernel says where no domain was set.
DOMAIN_NAME = "(none)"
# Below the directory of the run, which is the working directory when a world is made. Its path is never known
# here: a copy could find it in its memory.
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
    """The place from which a new world is entered: who we are there, and which namespaces are its own."""

    def __init__(self, interpreter: str) -> None:
        self._interpreter = interpreter
        self._ids = os.getuid(), os.getgid()
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._outside = {kind: self._namespace(kind) for kind in KINDS}
        # Root has the right to build first and becomes nobody later; whoever has not gains it by a user
        # namespace. Only root can make a root of what lies in a home directory that nobody else may enter.
        self._privileged = os.geteuid() == 0

    @property
    def flags(self) -> int:
        """The namespaces to be made at the fork."""
        wanted = (flag for kind, flag in KINDS.items() if kind != "user" or not self._privileged)
        return sum(wanted)

    def enter(self) -> None:
        """Make the world, in the first process of its namespaces. There is no way back.

        The working directory is that of the run, and `/` of the new world afterwards.
        """
        if not self._privileged:
            self._become_nobody()
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
            self._become_nobody()
        self._check("user")
        os.close(self._proc)
        syscalls.drop_bounding_set()

    def _namespace(self, kind: str) -> int:
        return os.stat(f"self/ns/{kind}", dir_fd=self._proc).st_ino

    def _check(self, *kinds: str) -> None:
        shared = [kind for kind in kinds if self._namespace(kind) == self._outside[kind]]
        if shared:
            raise syscalls.Refused(1, f"the {shared[0]} namespace is not a new one")

    def _become_nobody(self) -> None:
        """Say who we are outside. No group may be dropped from here on: that could give rights."""
        user, group = self._ids
        # The files of /proc/self are root's while nobody may look into us, and the maps could not be written.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        self._write("setgroups", "deny")
        self._write("gid_map", f"{USER} {group} 1")
        self._write("uid_map", f"{USER} {user} 1")
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)

    def _write(self, name: str, text: str) -> None:
        descriptor = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def _build_root(self) -> None:
        # Whoever we become has to walk through the directories that are made here.
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
            # After the others: what forbids devices would forbid these, too.
            self._bind(path)
            syscalls.restrict_mounts(CAGE + path, _DEVICE)
        syscalls.pivot_into(CAGE)
        os.umask(private)

    def _bind(self, path: str) -> None:
        self._place(path, is_directory=os.path.isdir(path))
        syscalls.mount(path, CAGE + path, None, syscalls.MS_BIND | syscalls.MS_REC)

    def _place(self, path: str, *, is_directory: bool) -> None:
        """Make what something can be mounted on, unless an earlier mount has brought it."""
        place = CAGE + path
        if os.path.lexists(place):
            return
        os.makedirs(place if is_directory else os.path.dirname(place), exist_ok=True)
        if not is_directory:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def mount_room(size: int, entries: int) -> None:
    """Mount the private directory, in a mount namespace of one's own, and go there."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", visible_paths.ROOM, "tmpfs", flags, f"mode=0700,size={size},nr_inodes={entries}")
    os.chdir(visible_paths.ROOM)
