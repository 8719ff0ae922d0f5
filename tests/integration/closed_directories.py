"""A program: closes directories to their own user, and prints whether the watch of a box sees into them.

It is run as an ordinary user, because no mode keeps root from reading.
"""

import json
import os
import stat
import sys
from pathlib import Path

from codegenie.eval.boxes.watching import is_larger

_SIZE = 1 << 20
# All that a program needs to write on, but for the last one, is left to it.
_MODES = {"listed": 0o400, "searched": 0o100, "written": 0o300, "closed": 0}


def main(room: Path) -> None:
    """Look at one directory of each mode, and at one whose top is closed."""
    found: dict[str, list[bool]] = {}
    for name, mode in _MODES.items():
        for closed in ("inner", "."):
            work = room / f"{name}-{len(found)}"
            (work / "inner/below").mkdir(parents=True)
            (work / "inner/below/large").write_bytes(bytes(2 * _SIZE))
            descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            (work / closed).chmod(mode)
            seen = is_larger(descriptor, _SIZE, 1000), is_larger(descriptor, 8 * _SIZE, 1000)
            kept = stat.S_IMODE((work / closed if closed == "inner" else work).stat().st_mode)
            found[f"{name} {closed}"] = [*seen, kept == mode]
    sys.stdout.write(json.dumps({"user": os.getuid(), "found": found}))


main(Path(sys.argv[1]))
