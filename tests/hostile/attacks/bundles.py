"""Bundles from anybody: a zip file that would do more than hold a log."""

import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from tests.hostile.attackers.hostile_bench import ForeignAgent, ask
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import write_bench
from tests.support.logs import record_run


def packed(room: Path, *members: tuple[str, bytes]) -> Path:
    """Export a run, and add members to the bundle."""
    record_run(write_bench(room / "bench"), room / "runs", ForeignAgent())
    bundle = room / "claim.zip"
    ask(room, "export", "latest", "--out", "runs", "-o", str(bundle))
    with zipfile.ZipFile(bundle, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return bundle


@contextmanager
def largest_seen(directory: Path) -> Iterator[list[int]]:
    """Watch from a thread how much lies below a directory at most."""
    directory.mkdir()
    seen, over = [0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            # What is looked at is being removed at the same time; such a look says nothing.
            with suppress(OSError):
                sizes = [path.stat().st_size for path in directory.rglob("*.json")]
                seen[0] = max(seen[0], sum(sizes))
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with patch("tempfile.tempdir", str(directory)):
            yield seen
    finally:
        over.set()
        thread.join()


@attack("bundle_that_writes_outside")
def bundle_that_writes_outside(room: Path) -> Outcome:
    bundle = packed(room, ("../escaped", b"x"))
    with largest_seen(room / "tmp"):
        said = ask(room, "verify", "--out", str(bundle), "--json")
    escaped = (room / "tmp" / "escaped").exists()
    return Outcome(f"exit {said.code}", "a file was written outside" if escaped else None)


@attack("bundle_that_is_a_bomb")
def bundle_that_is_a_bomb(room: Path) -> Outcome:
    bundle = packed(room, ("00000002.json", bytes(96 << 20)))
    with largest_seen(room / "tmp") as seen:
        said = ask(room, "verify", "--out", str(bundle), "--json")
    filled = f"{bundle.stat().st_size} bytes became {seen[0]}" if seen[0] > 32 << 20 else None
    return Outcome(f"exit {said.code}", filled)


@twin("bundle_that_writes_outside")
@twin("bundle_that_is_a_bomb")
def a_bundle_as_it_is_exported(room: Path) -> Outcome:
    bundle = packed(room)
    with largest_seen(room / "tmp"):
        said = ask(room, "verify", "--out", str(bundle), "--json")
    return Outcome(f"exit {said.code}")


THIEF = """\
import json, os
try:
    with open({key!r}) as key, open({loot!r}, "w") as loot:
        loot.write(key.read())
except OSError:
    pass
print(json.dumps({{"passed": True, "score": 1.0, "breakdown": {{}}, "failure_modes": []}}))
"""


def _claimed(room: Path, rubric: str) -> Path:
    """Export a run whose log says that its rubrics ran without walls."""
    root = write_bench(room / "bench", rubric)
    record_run(root, room / "runs", ForeignAgent(), isolation="subprocess")
    bundle = room / "claim.zip"
    ask(room, "export", "latest", "--out", "runs", "-o", str(bundle))
    return bundle


@attack("bundle_that_names_its_own_walls")
def bundle_that_names_its_own_walls(room: Path) -> Outcome:
    key, loot = room / "key", room / "loot"
    key.touch(mode=0o600)
    key.write_text("the key of whoever checks", encoding="utf-8")
    bundle = _claimed(room, THIEF.format(key=str(key), loot=str(loot)))
    loot.unlink()
    said = ask(room, "verify", "--out", str(bundle), "--rescore", "--json")
    return Outcome(
        f"exit {said.code}", "a rubric took the key of whoever checked it" if loot.exists() else None
    )


@twin("bundle_that_names_its_own_walls")
def a_bundle_that_is_rescored(room: Path) -> Outcome:
    honest = THIEF.format(key=str(room / "no key"), loot=str(room / "loot"))
    said = ask(room, "verify", "--out", str(_claimed(room, honest)), "--rescore", "--json")
    return Outcome(f"exit {said.code}")
