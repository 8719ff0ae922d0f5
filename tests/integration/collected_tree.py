"""A program: closes entries of a workspace to their own user, collects them, and prints what came of it.

It is run as an ordinary user, because no mode keeps root from reading.
"""

import json
import os
import sys
from pathlib import Path

from codegenie.eval.collection.collecting import collect
from codegenie.eval.collection.records import original_of


def main(room: Path) -> None:
    """Collect three closed folders and two closed files."""
    work = room / "work"
    for folder in ("closed/below", "listed", "searched"):
        (work / folder).mkdir(parents=True)
        (work / folder / "file.txt").write_text(folder)
    (work / "same.sh").write_text("same")
    (work / "changed.txt").write_text("changed")
    original = original_of([("same.sh", b"same", False), ("changed.txt", b"before", False)])
    for name, mode in {
        "same.sh": 0,
        "changed.txt": 0,
        "closed/below/file.txt": 0o200,
        "closed/below": 0o100,
        "closed": 0,
        "listed": 0o400,
        "searched": 0o100,
    }.items():
        (work / name).chmod(mode)
    descriptor = os.open(work, os.O_PATH | os.O_DIRECTORY)
    work.chmod(0)
    collected = collect(descriptor, original)
    told = {"files": collected.files, "other": collected.other, "user": os.getuid()}
    sys.stdout.write(json.dumps(told))


main(Path(sys.argv[1]))
