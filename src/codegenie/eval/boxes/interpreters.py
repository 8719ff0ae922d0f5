"""Which Python a program of ours has in a box, and what has to be shown for it."""

import os
import sys

from codegenie.eval.boxes.users import can_be_entered
from codegenie.eval.errors import IsolationNotProved
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.processes import real_interpreter

_OF_THE_SYSTEM = "/usr/bin/python3"
_SHOWN_ANYWAY = ("/usr", "/usr/local", "/opt")


def interpreter_in(isolation_class: IsolationClass) -> tuple[str, tuple[str, ...]]:
    """Return an interpreter that a box of this class can execute, and what has to be readable for it.

    Raises IsolationNotProved if there is none: in `landlock` root's boxes belong to another user, who cannot
    enter the home directory of root.
    """
    ours = real_interpreter()
    prefix = os.path.realpath(sys.base_prefix)
    if isolation_class != "landlock" or os.geteuid() != 0 or _is_open_to_all(ours):
        return ours, () if prefix in _SHOWN_ANYWAY else (prefix,)
    if os.path.exists(_OF_THE_SYSTEM):
        return _OF_THE_SYSTEM, ()
    raise IsolationNotProved(
        f"the user of the boxes cannot reach {ours}",
        hint="install Python where every user can execute it, or use class 'namespace'",
    )


def _is_open_to_all(path: str) -> bool:
    while path != "/":
        path = os.path.dirname(path)
        if not can_be_entered(path):
            return False
    return True
