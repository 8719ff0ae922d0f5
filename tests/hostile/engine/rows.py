"""What each attack of a rubric on its surroundings comes to, class by class.

Each `*.toml` in `tests/hostile/tables/confined` is one surface, and its attacks lie in the module of its name
in `tests/hostile/confined`.
A row says for every isolation class whether the attack succeeds in it. In `subprocess` it does: an attack
that fails where nothing is in its way proves nothing. What differs from that, or gets through a stronger
class, says why.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.hostile.engine.table import TABLES

CLASSES = ("subprocess", "landlock", "namespace")
SUCCEEDS = "succeeds"
STOPPED = "stopped"


@dataclass(frozen=True)
class Row:
    """One attack, and what it comes to in each class."""

    name: str
    surface: str
    threats: tuple[str, ...]
    attack: str
    subprocess: str
    landlock: str
    namespace: str
    # In `namespace` with a fresh interpreter (`--spawn cold`), where that differs.
    cold: str = ""
    # In `subprocess`, where the harness is not run by root: it is hidden from its own user (ADR-0025).
    not_as_root: str = ""
    why: str = ""
    met: str = (
        "passed"  # what the hostile case meets where the attack is stopped: the attempt came to its end
    )

    @property
    def expected(self) -> dict[str, str]:
        """What the attack comes to, by class."""
        return {"subprocess": self.subprocess, "landlock": self.landlock, "namespace": self.namespace}

    def comes_to(self, way: "Way") -> str:
        """Return what the attack comes to in a class and by a way to start."""
        fresh = way == Way("namespace", "cold")
        return self.cold if fresh and self.cold else self.expected[way.isolation]

    def comes_to_here(self, way: "Way", *, root: bool) -> str:
        """Return the same for the user who runs the harness; the table and its page speak of root."""
        hidden = way.isolation == "subprocess" and not root and self.not_as_root
        return self.not_as_root if hidden else self.comes_to(way)

    @property
    def is_plain(self) -> bool:
        """Whether it succeeds without confinement and nowhere else, so that nothing needs a reason."""
        classes = (self.subprocess, self.landlock, self.namespace)
        return not self.cold and classes == (SUCCEEDS, STOPPED, STOPPED)


@dataclass(frozen=True)
class Way:
    """One class of isolation, and how its children are started."""

    isolation: str
    spawn: str

    def __str__(self) -> str:
        """Return the name that a test shows."""
        return f"{self.isolation}-{self.spawn}"


WAYS = (
    Way("subprocess", "cold"),
    Way("landlock", "zygote"),
    Way("namespace", "zygote"),
    Way("namespace", "cold"),
)


def read_rows() -> dict[str, Row]:
    """Read every table; a name that appears twice is an error."""
    rows = list(_rows())
    by_name = {row.name: row for row in rows}
    if len(by_name) != len(rows):
        raise ValueError("an attack appears twice")
    return by_name


def _rows() -> Iterator[Row]:
    for file in sorted((TABLES / "confined").glob("*.toml")):
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        for row in table.pop("row"):
            yield Row(surface=file.stem, threats=tuple(row.pop("threats")), **row)
        if table:
            raise ValueError(f"{file.name} holds {sorted(table)}")
