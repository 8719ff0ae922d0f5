"""Every attack of an agent from its box: one whole run plays all rows of the table, in each class.

`make test` plays them in class `namespace` with a broker; `make test-all` also in `landlock`, without a
network, as an ordinary user, and without walls, where every part succeeds.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.engine.agent_rows import NETWORKS, read_agent_rows
from tests.hostile.engine.loot import WITNESSES, main
from tests.hostile.engine.robbery import robbery
from tests.support.confinement import CONFINED
from tests.support.ordinary_user import run_as_ordinary_user, run_in_own_processes
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

ROWS = read_agent_rows()
TASKS = 2048
DEFAULT = CONFINED[0]
WITHOUT_WALLS = ("subprocess", "host")
# What ends an attacker before it comes to its end: a defense, or its own will.
ENDED = {
    "blinds-watch", "bombs", "exits-75", "fills-disk", "fills-hidden", "fills-inodes", "fills-its-disk",
    "fills-memory", "fills-nameless", "fills-segments", "ignores-end", "provokes-429", "says-rate-limit",
}  # fmt: skip
Found = dict[str, Any]
Play = Callable[[str, str], Found]


def played(run: Callable[..., "subprocess.CompletedProcess[str]"], *arguments: object) -> Found:
    """Play where the user of boxes can go, which is not below a directory of pytest."""
    room = Path(tempfile.mkdtemp(prefix="robbery-"))
    try:
        done = run(main.__module__, room, *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
        found: Found = json.loads((room / "found.json").read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return found


@pytest.fixture(scope="module")
def robbed() -> Play:
    """Give what a hostile agent got in a class with a network; each is played once."""
    return cache(lambda *way: played(run_in_own_processes, *way))


@pytest.fixture(scope="module")
def robbed_as_ordinary_user() -> Play:
    """Give the same for an ordinary user, who may also play without walls."""
    return cache(lambda *way: played(run_as_ordinary_user, TASKS, *way))


def stopped(found: Found, isolation: str) -> None:
    """Assert that the run was in order and that each attacker that could came to its end."""
    assert (found["boundary"], found["honest"], found["planned"]) == (isolation, 1.0, True)
    stumbled = {name: end for name, end in found["ends"].items() if end != "whole" and name not in ENDED}
    assert stumbled == {}


def ways(values: Iterable[tuple[str, ...]]) -> list[Any]:
    """Return classes with networks, and more, as parameters: `make test` plays the strongest class alone."""
    return [
        pytest.param(
            *way, marks=() if {DEFAULT, "broker"} <= {*way} else pytest.mark.all_ways, id="-".join(way)
        )
        for way in values
    ]


@pytest.mark.parametrize(
    ("isolation", "network", "row"),
    ways((each, network, row) for each in CONFINED for row in WITNESSES for network in ROWS[row].networks),
)
def test_an_agent_in_a_box_succeeds_with_no_part_of_an_attack(
    robbed: Play, isolation: str, network: str, row: str
) -> None:
    assert robbed(isolation, network)["reached"][row] == []


@pytest.mark.parametrize(("isolation", "network"), ways(product(CONFINED, NETWORKS)))
def test_a_run_of_attacks_is_whole_and_its_honest_case_passes(
    robbed: Play, isolation: str, network: str
) -> None:
    found = robbed(isolation, network)

    stopped(found, isolation)
    assert found["provider_saw_the_key"] == (network == "broker")


@pytest.mark.all_ways
@pytest.mark.parametrize(("isolation", "network"), list(product(CONFINED, NETWORKS)))
def test_an_ordinary_user_is_robbed_of_nothing_either(
    robbed_as_ordinary_user: Play, isolation: str, network: str
) -> None:
    found = robbed_as_ordinary_user(isolation, network)

    reached = {row: parts for row, parts in found["reached"].items() if network in ROWS[row].networks}
    assert {row: parts for row, parts in reached.items() if parts} == {}
    stopped(found, isolation)


@pytest.mark.all_ways
@pytest.mark.parametrize("row", WITNESSES)
def test_without_walls_and_without_its_defense_every_part_of_an_attack_succeeds(
    robbed_as_ordinary_user: Play, row: str
) -> None:
    found = robbed_as_ordinary_user(*WITHOUT_WALLS)

    assert sorted({*found["reached"][row], *found["absent"]} & {*ROWS[row].parts}) == sorted(ROWS[row].parts)


@pytest.mark.parametrize("isolation", [*CONFINED, "subprocess"])
def test_a_hostile_agent_is_not_played_beside_other_processes(tmp_path: Path, isolation: str) -> None:
    with pytest.raises(RuntimeError, match="played in a pid namespace"), robbery(tmp_path, isolation, "none"):
        pytest.fail("it was played")

    assert os.listdir(tmp_path) == []


def test_root_plays_no_hostile_agent_without_walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(RuntimeError, match="without walls never by root"), robbery(tmp_path, *WITHOUT_WALLS):
        pytest.fail("it was played")
