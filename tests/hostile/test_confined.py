"""Every attack of a rubric on its surroundings, in every isolation class: it comes to what the table says.

`make test` plays each in the default way; `make test-all` in the others too, and where nothing is in its way.
"""

import os
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from codegenie.eval.errors import IsolationUnavailable
from tests.hostile.attackers.hostile_bench import HONEST
from tests.hostile.engine.census import all_gone, descendants
from tests.hostile.engine.ground import CONFINED, Ground, Plan, Played, set_the_ground
from tests.hostile.engine.rows import STOPPED, SUCCEEDS, WAYS, Row, Way, read_rows
from tests.support.benches import canonical_score
from tests.support.sampling import one_machine, sampled

ROWS = read_rows()
PATIENCE_SECONDS = 30.0  # some milliseconds are enough where the machine has time
set_the_ground(row.surface for row in ROWS.values())
every_way_in = pytest.mark.parametrize("way", WAYS, ids=str)
DEFAULT_WAY = Way("namespace", "zygote")
# Attacks on what the whole machine shares: beside each other, one would be counted for the other.
OF_ONE_MACHINE = {"channels", "counted", "resources"}
# What these meet, `integration/test_time_is_divided.py` shows in every run without an attacker.
OF_TIME = {"time_of_another_run", "time_of_the_case_beside"}
every_row = pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=row.name,
            marks=[
                *([one_machine] if row.surface in OF_ONE_MACHINE else []),
                *([pytest.mark.all_ways] if row.name in OF_TIME else []),
            ],
        )
        for row in ROWS.values()
    ],
)


def in_order(plan: Plan) -> str:
    """Do what honest rubrics do; the attacker's own tools must work too, or nothing would be proved."""
    import ctypes
    import json
    import os
    import socket
    import tempfile
    import threading

    done = []
    with open("expected/answer.txt", encoding="utf-8") as file:
        done.append(file.read())
    os.mkdir("scratch")
    with open("scratch/notes.json", "w", encoding="utf-8") as file:
        json.dump(plan, file)
    with open("scratch/notes.json", encoding="utf-8") as file:
        done.append(json.load(file)["word"])
    thread = threading.Thread(target=done.append, args=("threaded",))
    thread.start()
    thread.join()
    one, other = socket.socketpair()
    one.sendall(b"paired")
    done.append(other.recv(16).decode())
    with tempfile.TemporaryFile() as file:
        file.write(b"temporary")
        file.seek(0)
        done.append(file.read().decode())
    with open("/dev/null", "wb") as sink, open("/dev/zero", "rb", buffering=0) as source:
        done.append("sunk" if sink.write(source.read(4)) == 4 else "floats")
    number = ctypes.c_int.from_buffer_copy(os.urandom(4)).value
    done.append(ctypes.CDLL(None).abs(number) == abs(number) and "called")
    return " ".join(done)


def benign(room: Path, way: Way) -> Played:
    """Run a bench in which nobody attacks."""
    return Ground(room, way.isolation, way.spawn).play(in_order, {"word": "written"})


@cache
def honest_score() -> bytes:
    """Return what the honest case scores where nobody attacks."""
    with TemporaryDirectory() as room:
        return canonical_score(benign(Path(room), WAYS[0]).score(HONEST))


def not_proved(what: str, way: Way, refusal: IsolationUnavailable) -> str:
    return f"not proved here: {what} in {way.isolation}: {refusal}"


def what_is_left(room: Path, before: set[int]) -> list[str]:
    """Name processes and private directories that are still there a while after a run.

    `before` are the processes that were there before it, such as the one that serves commands to other tests.
    """
    processes = all_gone(descendants(os.getpid()) - before, PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (directories := list(room.rglob("codegenie-eval-*"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [*(f"process {pid}" for pid in sorted(processes)), *map(str, directories)]


@every_way_in
def test_an_honest_rubric_does_its_work(way: Way, tmp_path: Path) -> None:
    try:
        played = benign(tmp_path, way)
    except IsolationUnavailable as refusal:
        pytest.fail(not_proved("an honest rubric", way, refusal))
    assert played.loot() == "it is hostile written threaded paired temporary sunk called", played.refusal()
    assert canonical_score(played.score(HONEST)) == honest_score()


@pytest.mark.parametrize("way", sampled(WAYS, DEFAULT_WAY.__eq__))
@every_row
def test_an_attack_comes_to_what_the_table_says(row: Row, way: Way, tmp_path: Path) -> None:
    before = descendants(os.getpid())
    try:
        outcome = CONFINED[row.name](tmp_path, way.isolation, way.spawn)
    except IsolationUnavailable as refusal:
        pytest.fail(not_proved(row.name, way, refusal))
    expected = row.comes_to_here(way, root=os.geteuid() == 0)
    assert (SUCCEEDS if outcome.harm else STOPPED) == expected, outcome
    if not outcome.harm:
        # An attempt that came to its end, and not an attacker that stumbled over its own feet.
        assert outcome.met == row.met, outcome
        assert what_is_left(tmp_path, before) == []
    if outcome.sibling is not None:
        assert outcome.sibling == honest_score()
