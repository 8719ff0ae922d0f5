"""What a box is asked for, what is executed in it, and how that ended: plain data, standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Network = Literal["none", "broker", "host"]


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """The caps of one box. In `landlock` those of the workspace are watched, and processes have none."""

    processes: int = 512
    # RLIMIT_DATA of each process. Programs reserve much more address space than they use.
    process_memory_bytes: int = 4 << 30
    # All processes and private files together, watched once a second.
    memory_total_bytes: int = 8 << 30
    # Beside what the case itself brings.
    workspace_bytes: int = 1 << 30
    workspace_entries: int = 200_000
    # RLIMIT_FSIZE.
    file_bytes: int = 2 << 30


@dataclass(frozen=True, slots=True)
class BoxView:
    """What can be seen from inside a box, beside the system's own programs."""

    # Absolute real paths of files and directories, shown read-only at their own path.
    readable: tuple[str, ...] = ()
    # Absolute real paths that must not be seen, also where a shown directory contains them. Directories that
    # exist: a cover on one file is lost when another program replaces the file.
    secrets: tuple[str, ...] = ()
    network: Network = "none"
    limits: BoxLimits = BoxLimits()


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """One box. The parcels are packed trees; the caller keeps and closes their descriptors."""

    view: BoxView
    workspace: int
    # Unpacked to a directory that the agent can read and not write.
    agent_files: int | None = None
    # Relative path and content; written into the private HOME with mode 0600.
    home: Mapping[str, bytes] = field(default_factory=dict)
    # Whether the workspace becomes a git repository with one commit, made inside the box.
    git: bool = False


@dataclass(frozen=True, slots=True)
class AgentStart:
    """One program to execute in an open box. Its streams become its descriptors 0, 1, 2 and so on."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    streams: tuple[int, ...]
    seconds: float
    grace_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class BoxEnd:
    """How a program in a box ended. Everything that it started has ended, too."""

    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    # How many processes it left, which were ended.
    left: int = 0
    wall_seconds: float = 0.0
    # The watched cap that it went over, for which it was ended.
    ended_over: Literal["memory", "workspace"] | None = None
    # The first process of the box, or a process above it, was lost: the attempt is void.
    lost: bool = False


@dataclass(frozen=True, slots=True)
class BoxPaths:
    """Where the private directories are, as seen from inside."""

    workspace: str
    home: str
    tmp: str
    agent: str
