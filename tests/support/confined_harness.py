"""A harness of one confined program, to be killed in part.

Usage: python -m tests.support.confined_harness CLASS SPAWN PLACE

Says, one JSON line each: which process runs the program; how that ended; how a second program ended.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from codegenie.eval.isolation.launchers import open_launcher
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.system.child_files import stream_file
from tests.support.confinement import run_by

SLEEP = b"import os, time\nos.write(1, b'!')\ntime.sleep(60)\n"


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def main(isolation_class: IsolationClass, spawn: Spawn, directory: str) -> None:
    launcher = await open_launcher(isolation_class, spawn, Path(directory))
    copies: list[int] = []
    with (
        launcher.room([("rubric.py", SLEEP)]) as room,
        stream_file() as stdin,
        stream_file() as stdout,
        stream_file() as stderr,
    ):
        running = asyncio.ensure_future(launcher.launch(room, (stdin, stdout, stderr), 60.0, copies.append))
        while not (copies and os.pread(stdout, 1, 0)):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.002)
        say(copy=copies[0])
        say(end=asdict(await running))
    say(again=asdict((await run_by(launcher, "")).end))
    await launcher.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3]))  # type: ignore[arg-type]
