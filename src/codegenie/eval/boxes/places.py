"""Where things are in a box, and who works in it; standard library only."""

from codegenie.eval.boxes.request import BoxPaths

IN_A_NAMESPACE = BoxPaths(workspace="/workspace", home="/home/agent", tmp="/tmp", agent="/agent")  # noqa: S108 - its own
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - likewise
HOST_NAME = "agent-box"
USER = 61002
"""The uid in a box. Rubrics have 61001, and no account has either: see `confinement.namespaces.USER`."""

OUTER = "outer"
"""What the box server is told instead of a class: the box of a control, which confines nothing."""

WORK, HOME, TEMPORARY, AGENT = "work", "home", "tmp", "agent"
"""The directories of a box on disk, which it has without a mount namespace."""
