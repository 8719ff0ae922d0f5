"""Run one case and count how often the work passes from room to room.

Usage: python -m scripts.trace_rooms [--most N] [--pairs]

A room is a package of `codegenie.eval`, or a module at its top. A hand-off is a call from one room to a
function in another room. Library code between the two does not count. Many hand-offs for one case mean that
one thought is spread over many rooms. With `--most` the count is checked: the exit code is 1 if it is higher.
"""

import argparse
import asyncio
import collections
import dis
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
CASE = "aiohttp-3-9-2"
PACKAGE = str(ROOT / "src" / "codegenie" / "eval")


def room_of(file: str) -> str | None:
    """Return the room of a source file; None if it does not belong to the harness."""
    if not file.startswith(PACKAGE):
        return None
    return file[len(PACKAGE) + 1 :].partition("/")[0].removesuffix(".py")


def goes_on(frame: FrameType) -> bool:
    """Say whether a coroutine or generator is resumed: that is no call, and depends on the load."""
    code, position = frame.f_code.co_code, frame.f_lasti
    # The argument of RESUME is 0 at the start of a function, and says in its two lowest bits what else it is.
    return dis.opname[code[position]] == "RESUME" and bool(code[position + 1] & 3)


class Tracer:
    """Counts hand-offs from file to file and from room to room."""

    def __init__(self) -> None:
        self.rooms: collections.Counter[tuple[str, str]] = collections.Counter()
        self.files: collections.Counter[tuple[str, str]] = collections.Counter()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call, if it is a hand-off."""
        if event != "call" or room_of(frame.f_code.co_filename) is None or goes_on(frame):
            return
        caller = frame.f_back
        while caller is not None and room_of(caller.f_code.co_filename) is None:
            caller = caller.f_back
        if caller is None or frame.f_code.co_name in {"<module>", "<lambda>"}:
            return
        files = caller.f_code.co_filename, frame.f_code.co_filename
        rooms = room_of(files[0]), room_of(files[1])
        if files[0] != files[1]:
            self.files[files] += 1
        if rooms[0] != rooms[1]:
            self.rooms[str(rooms[0]), str(rooms[1])] += 1


def traced(directory: Path) -> Tracer:
    """Plan and record one case of the shipped bench by the agent that knows the solution."""
    from codegenie.eval.models import RunOptions
    from codegenie.eval.runner import Runner
    from codegenie.eval.suts.spec import SutRequest, open_sut

    tracer = Tracer()
    runner = Runner()
    sys.setprofile(tracer)
    threading.setprofile(tracer)
    try:
        plan = runner.plan(
            task_class_name="dependency-pin",
            bench_root=ROOT / "bench",
            out_dir=directory / "runs",
            case_filter=[CASE],
            options=RunOptions(isolation="subprocess"),
        )
        asyncio.run(runner.record(plan, system_under_test=open_sut(SutRequest("oracle"), plan)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return tracer


def main() -> int:
    """Trace one case, print the counts, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, help="the highest count of hand-offs between rooms that is fine")
    parser.add_argument("--pairs", action="store_true", help="list every pair of rooms")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="codegenie-trace-") as directory:
        tracer = traced(Path(directory))
    hand_offs, rooms = sum(tracer.rooms.values()), {room for pair in tracer.rooms for room in pair}
    print(f"hand-offs from file to file: {sum(tracer.files.values())}")
    print(f"hand-offs from room to room: {hand_offs}, over {len(rooms)} rooms")
    if wanted.pairs:
        for (caller, called), count in tracer.rooms.most_common():
            print(f"{count:6}  {caller} -> {called}")
    return int(wanted.most is not None and hand_offs > wanted.most)


if __name__ == "__main__":
    sys.exit(main())
