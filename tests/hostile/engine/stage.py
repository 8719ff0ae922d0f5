"""Where attacks are played: what one returns, and how it is found by the name of its scenario.

An attack is a function of one empty directory. It does what the attacker does, through the harness's own
doors, and says two things: what the harness answered (`met`), and what the attacker got (`harm`), seen from
outside the code under test: in a file, in a process, on a socket, on a terminal. The same function is played
with the defense on, where `harm` must be None, and with it off, where it must not be. A twin is as close to
its attack as an honest bench, agent or operator comes, and must pass. The attacks of a table lie in the
module of its name in `tests/hostile/attacks`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What the harness answered, what the attacker got, and the score of an honest sibling, if any."""

    met: str
    harm: str | None = None
    sibling: bytes | None = None
    said: str = field(default="", compare=False)  # by the hostile case, for a reader of a failed test


Play = Callable[[Path], Outcome]
ATTACKS: dict[str, Play] = {}
TWINS: dict[str, Play] = {}


def attack(scenario: str) -> Callable[[Play], Play]:
    """Register the attack of a scenario."""
    return _registered(ATTACKS, scenario)


def twin(scenario: str) -> Callable[[Play], Play]:
    """Register the benign twin of a scenario."""
    return _registered(TWINS, scenario)


def _registered(plays: dict[str, Play], scenario: str) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        if scenario in plays:
            raise ValueError(f"{scenario} is played twice")
        plays[scenario] = play
        return play

    return register


def set_the_stage(surfaces: Iterable[str]) -> None:
    """Import the attacks of these surfaces."""
    for surface in sorted(set(surfaces)):
        import_module(f"tests.hostile.attacks.{surface}")


def unmeasured() -> dict[str, str]:
    """Return our environment without coverage, which would look for the sources of a copy that is gone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Give the harness an environment variable for the time of an attack."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def files_that_hold(secret: bytes, *places: Path) -> list[str]:
    """Name every file below these places in which the bytes stand."""
    found = [file for place in places for file in sorted(place.rglob("*")) if file.is_file()]
    return [str(file) for file in found if secret in file.read_bytes()]
