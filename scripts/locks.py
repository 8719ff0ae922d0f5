"""Read the lock files, and say which package of a lock needs which.

`make lock` writes them: one requirement per entry, pinned with `==` and with the SHA-256 of every file of the
package. `scripts.check_locks` audits them, `scripts.bill_of_materials` lists them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / "requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"
_ENTRY = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>[0-9][A-Za-z0-9.]*)"
    r"(?: ; [^\\@]+?)?(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Entry:
    """One package of a lock: name, version, and the hashes of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]


def logical_lines(text: str) -> list[str]:
    """Return the requirements of a lock, one line for each, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = (re.sub(r"\s+", " ", line).strip() for line in lines.replace("\\\n", " ").split("\n"))
    return [line for line in joined if line]


def parsed(line: str) -> Entry | None:
    """Return the entry of a line; None if the line is not a pinned and hashed requirement."""
    found = _ENTRY.fullmatch(line)
    if found is None:
        return None
    hashes = re.findall(r"[0-9a-f]{64}", found["hashes"])
    return Entry(found["name"], found["version"], tuple(hashes))


def entries(text: str) -> dict[str, Entry]:
    """Return the entries of a lock by name."""
    found = (parsed(line) for line in logical_lines(text))
    return {entry.name: entry for entry in found if entry is not None}


def normalised(requirement: str) -> str:
    """Return the name of a requirement in the one spelling that locks use."""
    found = _NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", found[0] if found else "").lower()


def needs(name: str, *, extras: bool) -> set[str]:
    """Return what an installed package declares as needed; with `extras`, also what its extras need."""
    lines = metadata.requires(name) or []
    return {normalised(line) for line in lines if extras or not re.search(r"\bextra\s*==", line)}


def reachable(roots: Iterable[str], lock: Mapping[str, Entry], *, extras: bool) -> set[str]:
    """Return the entries of a lock that these packages need, including these packages.

    For an entry that is not installed here, such as one for another system, no needs are known.
    """
    found: set[str] = set()
    waiting = sorted(set(roots) & lock.keys())
    while waiting:
        name = waiting.pop()
        found.add(name)
        try:
            needed = needs(name, extras=extras)
        except metadata.PackageNotFoundError:
            continue
        waiting += sorted((needed & lock.keys()) - found - set(waiting))
    return found
