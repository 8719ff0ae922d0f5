"""Whoever is killed while a confined program sleeps: nothing is left, and a run that lives goes on.

The harness is a process of its own. What lives is read from /proc, what is mounted from our own mountinfo.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.isolation import launchers
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from tests.hostile.engine.stage import unmeasured
from tests.hostile.engine.table import ROOT
from tests.support.confinement import (
    a_launcher,
    children_of,
    each_class,
    each_way,
    edited_package,
    is_alive,
    parent_of,
    run_by,
    seconds_until,
    status,
    tree_below,
    use_edited_guardian,
    waiting_copy,
)

VICTIMS = ("harness", "guardian", "zygote", "copy")


@dataclass
class Running:
    """A harness with a program that sleeps, and its tree."""

    process: "subprocess.Popen[str]"
    directory: Path
    tree: dict[str, int]

    def kill(self, victim: str) -> None:
        os.kill(self.tree[victim], signal.SIGKILL)

    def said(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        return (json.loads(line) for line in self.process.stdout)

    @property
    def mounts(self) -> list[str]:
        """The mounts below the run directory that the host sees."""
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if str(self.directory) in line]


@contextmanager
def a_running_harness(
    isolation_class: IsolationClass,
    spawn: Spawn,
    directory: Path,
    prefix: Sequence[str] = (),
    package: Path | None = None,
) -> Iterator[Running]:
    place = directory / "run"
    place.mkdir()
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "tests.support.confined_harness", isolation_class, spawn, str(place)],
        cwd=ROOT,
        env=unmeasured() | ({} if package is None else {"PYTHONPATH": str(package)}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        copy = json.loads(process.stdout.readline())["copy"]
        zygote = parent_of(copy)
        tree = {"copy": copy, "zygote": zygote, "guardian": parent_of(zygote), "harness": process.pid}
        assert parent_of(tree["guardian"]) == process.pid
        yield Running(process, place, tree)
    finally:
        process.kill()
        process.communicate()


@each_way
@pytest.mark.parametrize("victim", VICTIMS)
def test_whoever_is_killed_nothing_is_left_and_a_harness_that_lives_goes_on(
    isolation_class: IsolationClass, spawn: Spawn, victim: str, tmp_path: Path
) -> None:
    below = VICTIMS[VICTIMS.index(victim) :]
    with a_running_harness(isolation_class, spawn, tmp_path) as running:
        assert running.mounts == []
        running.kill(victim)
        took = seconds_until(lambda: not any(is_alive(running.tree[name]) for name in below))
        assert took is not None, [name for name in below if is_alive(running.tree[name])]
        if victim == "harness":
            removed = seconds_until(lambda: not running.directory.exists())
            assert removed is not None
            assert seconds_until(lambda: not any(map(is_alive, running.tree.values()))) is not None
        else:
            first, second = running.said()
            expected = (False, "KILL") if victim == "copy" else (True, None)
            assert (first["end"]["lost"], first["end"]["signal"]) == expected
            assert (second["again"]["exit_code"], second["again"]["lost"]) == (0, False)
            assert running.process.wait(timeout=30) == 0
            assert seconds_until(lambda: not any(map(is_alive, running.tree.values()))) is not None
        assert running.mounts == []
        sys.stdout.write(f"{isolation_class} {spawn}: {victim} killed, all below gone after {took:.3f} s\n")


@each_class
def test_a_guardian_is_replaced_as_often_as_it_is_killed(isolation_class: IsolationClass) -> None:
    async def run() -> set[int]:
        guardians = set()
        async with a_launcher(isolation_class) as launcher:
            for _ in range(3):
                assert (await run_by(launcher, "")).way == (0, None)
                tree = tree_below(os.getpid())
                guardians.add(tree[0])
                os.kill(tree[0], signal.SIGKILL)
                # A case that is asked of a zygote while that dies is lost; here none is.
                assert seconds_until(lambda tree=tree: not any(map(is_alive, tree))) is not None  # type: ignore[misc]
            assert (await run_by(launcher, "")).way == (0, None)
        return guardians

    assert len(asyncio.run(run())) == 3
    assert children_of(os.getpid()) == []


@each_class
def test_a_zygote_is_replaced_after_so_many_cases(
    isolation_class: IsolationClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "LIMITS", replace(LIMITS, zygote_cases=3))

    async def run() -> tuple[list[int], list[int]]:
        zygotes: list[int] = []
        async with a_launcher(isolation_class) as launcher:
            for _ in range(7):
                async with waiting_copy(launcher) as number:
                    zygotes.append(parent_of(number))
            alive = [zygote for zygote in set(zygotes) if is_alive(zygote)]
        return zygotes, alive

    zygotes, alive = asyncio.run(run())
    first, second, third = dict.fromkeys(zygotes)
    assert zygotes == [first] * 3 + [second] * 3 + [third]
    assert alive == [third]
    assert not is_alive(third)


WITHOUT_FILTER = ("lockdown.py", "        calls.load(os.getpid())\n", "")
LEAVE_TWO = """\
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
"""


def test_what_a_copy_leaves_behind_is_ended_and_its_zygote_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_edited_guardian(monkeypatch, tmp_path, WITHOUT_FILTER)

    async def run() -> tuple[int, list[int], int, int]:
        async with a_launcher("namespace") as launcher:
            async with waiting_copy(launcher) as number:
                before = parent_of(number)
            ran = await run_by(launcher, LEAVE_TWO)
            left = [pid for pid in tree_below(os.getpid()) if is_alive(pid)]
            async with waiting_copy(launcher) as number:
                after = parent_of(number)
            return ran.end.leaked, left, before, after

    leaked, left, before, after = asyncio.run(run())
    assert leaked == 2
    assert len(left) == 1  # the guardian
    assert before != after


@each_class
def test_a_launch_that_is_cancelled_ends_its_copy_and_keeps_its_zygote(
    isolation_class: IsolationClass,
) -> None:
    async def run() -> tuple[list[int], bool]:
        zygotes: list[int] = []
        async with a_launcher(isolation_class) as launcher:
            copies: list[int] = []

            async def sleep() -> None:
                async with waiting_copy(launcher) as number:
                    copies.append(number)
                    zygotes.append(parent_of(number))
                await run_by(launcher, "import time; time.sleep(60)")

            task = asyncio.ensure_future(sleep())
            # Another process is waited for.
            while not (zygotes and (running := set(children_of(zygotes[0])) - set(copies))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ended = not any(map(is_alive, running))
            async with waiting_copy(launcher) as number:
                zygotes.append(parent_of(number))
        return zygotes, ended

    zygotes, ended = asyncio.run(run())
    assert ended
    assert len(set(zygotes)) == 1


def size_of(number: int) -> tuple[int, int]:
    """Return the room for descriptors, and the memory in KiB, of a process that may not be looked into."""
    seen = status(number)
    return int(seen["FDSize"]), int(seen["VmRSS"].split()[0])


@each_class
def test_two_hundred_cases_leave_no_descriptor_no_process_and_no_memory(
    isolation_class: IsolationClass,
) -> None:
    sources = [
        "print('x' * 100_000)",
        "raise ValueError",
        "import os; os.abort()",
        "import sqlite3; open('x', 'w').write('y' * 99)",
    ]

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        async with a_launcher(isolation_class) as launcher:

            async def facts() -> dict[str, Any]:
                async with waiting_copy(launcher) as number:
                    zygote = parent_of(number)
                guardian = parent_of(zygote)
                return {
                    "tree": [zygote, guardian, len(tree_below(os.getpid()))],
                    "descriptors": len(os.listdir("/proc/self/fd")),
                    "guardian": size_of(guardian),
                    "zygote": size_of(zygote),
                }

            for source in sources * 5:
                await run_by(launcher, source)
            before = await facts()
            for source in sources * 50:
                await run_by(launcher, source)
            return before, await facts()

    before, after = asyncio.run(run())
    assert (after["tree"], after["descriptors"]) == (before["tree"], before["descriptors"])
    for name in ("guardian", "zygote"):
        assert after[name][0] == before[name][0], name
        assert after[name][1] - before[name][1] < 2_048, name


@each_class
def test_zygotes_that_are_killed_while_idle_leave_no_descriptor(isolation_class: IsolationClass) -> None:
    async def run() -> list[int]:
        found = []
        async with a_launcher(isolation_class) as launcher:
            for _ in range(6):
                async with waiting_copy(launcher) as number:
                    zygote = parent_of(number)
                os.kill(zygote, signal.SIGKILL)
                assert seconds_until(lambda number=zygote: not is_alive(number)) is not None  # type: ignore[misc]
                found.append(len(os.listdir("/proc/self/fd")))
        return found

    found = asyncio.run(run())
    assert found[1:] == [found[1]] * 5


@each_class
def test_zygotes_that_are_gone_leave_no_zombies_with_their_guardian(isolation_class: IsolationClass) -> None:
    async def run() -> int:
        async with a_launcher(isolation_class) as launcher:
            for _ in range(6):
                async with waiting_copy(launcher) as number:
                    zygote = parent_of(number)
                os.kill(zygote, signal.SIGKILL)
                assert seconds_until(lambda number=zygote: not is_alive(number)) is not None  # type: ignore[misc]
            [guardian] = children_of(os.getpid())
            return len(children_of(guardian, zombies=True))

    # The last one's number is kept until the next is made: nobody else can have it so long.
    assert asyncio.run(run()) <= 2


@each_class
def test_a_zygote_that_hears_nothing_is_ended_all_the_same_when_the_harness_dies(
    isolation_class: IsolationClass, tmp_path: Path
) -> None:
    # Nor is it tied to its guardian, which would be the second way.
    loose = edited_package(tmp_path, ("guardian_program.py", "        tie_to_parent(self._number)\n", ""))
    with a_running_harness(isolation_class, "zygote", tmp_path, package=loose) as running:
        os.kill(running.tree["zygote"], signal.SIGSTOP)
        running.kill("harness")
        ended = seconds_until(lambda: not any(map(is_alive, running.tree.values())))
        if ended is None:
            running.kill("zygote")
        assert ended is not None
        assert seconds_until(lambda: not running.directory.exists()) is not None


def mounts_in(number: int, directory: Path) -> list[str]:
    lines = Path(f"/proc/{number}/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(directory) in line]


def test_no_mount_reaches_the_host_even_where_mounts_are_shared(tmp_path: Path) -> None:
    # A mount namespace of our own stands for the host: private first, and so no part of it is shared with it.
    script = 'mount --make-rshared / && exec "$@"'
    shared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    with a_running_harness("namespace", "zygote", tmp_path, shared if os.geteuid() == 0 else []) as running:
        assert mounts_in(running.tree["harness"], running.directory) == []
        assert mounts_in(os.getpid(), running.directory) == []


def test_the_groups_of_root_are_given_up(tmp_path: Path) -> None:
    # Whoever is not root has no right to give up a group, nor to have one that was not given to it.
    prefix = ["setpriv", "--groups", "12345"] if os.geteuid() == 0 else []
    with a_running_harness("namespace", "zygote", tmp_path, prefix) as running:
        groups = [status(running.tree[name])["Groups"] for name in ("harness", "copy")]
    assert groups == (["12345", ""] if prefix else [status(os.getpid())["Groups"]] * 2)
