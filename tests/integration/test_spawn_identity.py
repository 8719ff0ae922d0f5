"""A rubric cannot tell, and its score does not tell, whether a zygote or a fresh interpreter ran it."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from codegenie.eval.isolation.launchers import open_launcher
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.ports import Room
from codegenie.eval.system.child_files import read_head, stream_file
from tests.integration.interpreter_probes import KNOWN_DIFFERENCES, PROBES

ROOT = Path(__file__).parents[2]
REQUEST = b'{"protocol": 1}\nsecond line\n'


@dataclass(frozen=True)
class Seen:
    """All that is seen of a program from outside."""

    ended: int | str | None
    stdout: bytes
    stderr: bytes


def without_chance(said: bytes, room: Room) -> bytes:
    """Replace what no two processes have in common: addresses, and the name of a directory."""
    if not isinstance(room, int):
        said = said.replace(str(room).encode(), b"ROOM")
    return re.sub(rb"0x[0-9a-f]{6,}", b"ADDRESS", said)


async def play(
    isolation_class: IsolationClass, spawn: Spawn, directory: Path, names: Iterable[str]
) -> dict[str, Seen]:
    """Run these probes, one after the other and by the same zygote."""
    launcher = await open_launcher(isolation_class, spawn, directory)
    seen: dict[str, Seen] = {}
    try:
        for name in names:
            with ExitStack() as held:
                source = PROBES[name]
                room = held.enter_context(
                    launcher.room([("rubric.py", source.encode("utf-8", "surrogateescape"))])
                )
                streams = [held.enter_context(stream_file(content)) for content in (REQUEST, b"", b"")]
                end = await launcher.launch(room, (streams[0], streams[1], streams[2]), 20.0)
                out, err = read_head(streams[1], 1 << 22)[0], read_head(streams[2], 1 << 20)[0]
                seen[name] = Seen(
                    end.signal or end.exit_code, without_chance(out, room), without_chance(err, room)
                )
    finally:
        await launcher.close()
    return seen


@pytest.fixture(scope="module")
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, isolation_class: IsolationClass
) -> Mapping[str, tuple[Seen, Seen]]:
    asked_for = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "both" in item.fixturenames
        if item.callspec.params["isolation_class"] == isolation_class
    }
    names = [name for name in PROBES if name in asked_for]
    seen = [
        asyncio.run(play(isolation_class, spawn, tmp_path_factory.mktemp(spawn), names))
        for spawn in ("zygote", "cold")
    ]
    return {name: (seen[0][name], seen[1][name]) for name in names}


# An interpreter is imitated in the same way in both classes. So the second one repeats some of the first.
SAMPLE = set(sorted(PROBES)[::12])


def of_each_class(names: Iterable[str]) -> pytest.MarkDecorator:
    """Give each name in each class; the probes of one class are played by one worker."""
    classes: tuple[IsolationClass, ...] = ("namespace", "landlock")
    rows = [
        pytest.param(
            isolation_class,
            name,
            id=f"{isolation_class}-{name}",
            marks=[
                pytest.mark.xdist_group(f"probes in {isolation_class}"),
                *([] if isolation_class == classes[0] or name in SAMPLE else [pytest.mark.all_ways]),
            ],
        )
        for isolation_class in classes
        for name in names
    ]
    return pytest.mark.parametrize(("isolation_class", "name"), rows, scope="module")


@of_each_class(name for name in PROBES if name not in KNOWN_DIFFERENCES)
def test_a_probe_is_the_same_by_a_zygote_and_in_a_fresh_interpreter(
    both: Mapping[str, tuple[Seen, Seen]], name: str
) -> None:
    by_zygote, cold = both[name]
    assert by_zygote == cold


@of_each_class(KNOWN_DIFFERENCES)
def test_a_known_difference_is_still_one_and_is_written_down(
    both: Mapping[str, tuple[Seen, Seen]], name: str
) -> None:
    by_zygote, cold = both[name]
    assert by_zygote != cold, "no longer a difference: take it off the list"
    page = (ROOT / "docs" / "reference" / "spawning.md").read_text(encoding="utf-8")
    assert KNOWN_DIFFERENCES[name] in page
