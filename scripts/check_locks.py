"""Audit the locks without a network: pinned, hashed, without addresses, and as pyproject.toml asks.

    .venv/bin/python -m scripts.check_locks

Whether a pinned version has a known vulnerability needs a network: `make audit`.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from scripts.locks import (
    DEVELOPMENT,
    ROOT,
    RUNTIME,
    Entry,
    entries,
    logical_lines,
    normalised,
    parsed,
    reachable,
)

# A wheel and its source. A package with one file may have source only, and we build no dependency.
LEAST_FILES = 2
ONLY_WHEELS = "LOCKED := --require-hashes --only-binary :all:"


@dataclass(frozen=True)
class Locks:
    """Both locks as text, what pyproject.toml declares, and the Makefile that installs from them."""

    runtime: str
    development: str
    project: Mapping[str, Any]
    makefile: str

    @classmethod
    def read(cls, root: Path = ROOT) -> "Locks":
        """Read them from a checkout."""
        runtime, development, makefile = (
            (root / name).read_text(encoding="utf-8") for name in (RUNTIME.name, DEVELOPMENT.name, "Makefile")
        )
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        return cls(runtime, development, project, makefile)

    @property
    def asked_of_runtime(self) -> list[str]:
        """Return what a user and a build need."""
        return [*self.project["project"]["dependencies"], *self.project["build-system"]["requires"]]

    @property
    def asked_of_development(self) -> list[str]:
        """Return what a developer needs in addition."""
        return list(self.project["project"]["optional-dependencies"]["dev"])


def form_faults(name: str, text: str) -> Iterator[str]:
    """Yield every line that is not a pinned and hashed requirement, and every comment with a path."""
    for line in text.splitlines():
        if line.startswith("#") and "/" in line:
            yield f"{name}: a comment names a place: {line}"
    seen: set[str] = set()
    for line in logical_lines(text):
        entry = parsed(line)
        if entry is None:
            yield f"{name}: not a pinned and hashed requirement: {line[:100]}"
            continue
        if entry.name in seen:
            yield f"{name}: {entry.name} stands there twice"
        if len(set(entry.hashes)) < LEAST_FILES:
            yield f"{name}: {entry.name} has one file only; it may be source that somebody has to build"
        seen.add(entry.name)


def declared_faults(name: str, lock: Mapping[str, Entry], asked: list[str]) -> Iterator[str]:
    """Yield declared packages that are not in the lock, or not in an accepted version."""
    for requirement in map(Requirement, asked):
        entry = lock.get(normalised(requirement.name))
        if entry is None:
            yield f"{name}: {requirement.name} is declared and not locked"
        elif not requirement.specifier.contains(entry.version, prereleases=True):
            yield f"{name}: {requirement.name} is locked at {entry.version}, but {requirement} is declared"


def surplus_faults(name: str, lock: Mapping[str, Entry], asked: list[str]) -> Iterator[str]:
    """Yield locked packages that no declared package needs."""
    needed = reachable(map(normalised, asked), lock, extras=True)
    yield from (f"{name}: {entry} is locked, and nothing needs it" for entry in sorted(lock.keys() - needed))


def faults(locks: Locks) -> Iterator[str]:
    """Yield all that is wrong with the locks."""
    yield from form_faults(RUNTIME.name, locks.runtime)
    yield from form_faults(DEVELOPMENT.name, locks.development)
    runtime, development = entries(locks.runtime), entries(locks.development)
    for name, entry in runtime.items():
        if development.get(name) != entry:
            yield f"{DEVELOPMENT.name}: {name} is not what {RUNTIME.name} holds"
    yield from declared_faults(RUNTIME.name, runtime, locks.asked_of_runtime)
    yield from declared_faults(DEVELOPMENT.name, development, locks.asked_of_development)
    yield from surplus_faults(RUNTIME.name, runtime, locks.asked_of_runtime)
    everything = [*locks.asked_of_runtime, *locks.asked_of_development]
    yield from surplus_faults(DEVELOPMENT.name, development, everything)
    if ONLY_WHEELS not in locks.makefile:
        yield "Makefile: it may install what has no hash, or build what has no wheel"


def main() -> int:
    """Print what is wrong; return the exit status."""
    locks = Locks.read()
    found = list(faults(locks))
    print("\n".join(found) or f"locks: {len(entries(locks.development))} packages, pinned and hashed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
