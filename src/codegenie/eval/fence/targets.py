"""Find out what a PATH means: a bench root, a task class, or something inside one. Links are not followed."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codegenie.eval.errors import TaskClassNotFound
from codegenie.eval.fence.findings import shown_path
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IDENTIFIER_PATTERN
from codegenie.eval.system.files import UnsafeTree, entry_kinds, opened_directory

# Any one of them marks a class, so a pull request that removes the others does not hide the class.
_MARKS = ("registration.py", "rubric.py", "breakdown_keys.py", "failure_modes.yaml", "cases/digests.yaml")


@dataclass(frozen=True, slots=True)
class Target:
    """A directory to check, and how its path is shown. A bench root also has its entries."""

    directory: Path
    shown: str
    kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Targets:
    """The task classes to check, each once, and the bench roots that were given."""

    classes: tuple[Target, ...]
    roots: tuple[Target, ...]


def is_class_name(name: str) -> bool:
    """Say whether a directory of this name could be loaded as a task class."""
    return re.fullmatch(IDENTIFIER_PATTERN, name) is not None


def class_around(path: Path) -> Path | None:
    """Return the task class that a path is, or that it is in; None if there is none.

    A case may contain files that look like a class. If one class is inside the cases of another one, the
    outer one counts.
    """
    chosen: Path | None = None
    for directory in (path, *path.parents):
        if _is_marked(directory) and (chosen is None or _is_part(chosen, directory)):
            chosen = directory
    return chosen


def _is_marked(directory: Path) -> bool:
    return any(os.path.lexists(directory / mark) for mark in _MARKS)


def _is_part(path: Path, task_class: Path) -> bool:
    return path.relative_to(task_class).parts[:1] in {("cases",), ("rubric_lib",)}


def find_targets(paths: Sequence[str | Path]) -> Targets:
    """Find the classes and roots to check for every path. Raises TaskClassNotFound for a path without any."""
    here = _working_directory()
    classes: dict[Path, Target] = {}
    roots: dict[Path, Target] = {}
    for given in paths:
        path = _existing(given, here)
        around = class_around(path)
        if _is_root(path, around):
            root = _root(path, here)
            roots[path] = root
            found = list(_classes_of(root, here))
        elif around is None and not os.path.islink(path):
            hint = "name a bench root, a task class, or a file in one"
            raise TaskClassNotFound(f"{given!s} does not belong to a task class", hint=hint)
        else:
            found = [_target(around or path, here)]
        classes |= {target.directory: target for target in found}
    return Targets(tuple(classes[path] for path in sorted(classes)), tuple(roots.values()))


def _is_root(path: Path, around: Path | None) -> bool:
    if os.path.islink(path) or not os.path.isdir(path) or path == around:
        return False
    # A file named like a mark in a directory above a bench root does not make the root part of a class.
    return around is None or (not _is_part(path, around) and any(_marked_below(path)))


def _marked_below(path: Path) -> Iterator[bool]:
    try:
        with os.scandir(path) as scan:
            yield from (_is_marked(path / entry.name) for entry in itertools.islice(scan, LIMITS.cases))
    except OSError:
        return


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise TaskClassNotFound(
            f"the working directory cannot be used: {error.strerror}",
            hint="change to a directory that exists",
        ) from None


def _existing(given: str | Path, here: str) -> Path:
    text = str(given)
    path = os.path.normpath(os.path.join(here, text))
    if not text or "\0" in text or not os.path.lexists(path):
        raise TaskClassNotFound(f"there is no {text or 'path of that name'}", hint="name a PATH that exists")
    return Path(path)


def _root(path: Path, here: str) -> Target:
    try:
        with opened_directory(path) as descriptor:
            kinds = entry_kinds(descriptor, LIMITS.cases)
    except UnsafeTree as unsafe:
        raise TaskClassNotFound(f"the bench root {unsafe.problem}", where=str(path)) from None
    return Target(path, _shown(path, here), kinds)


def _classes_of(root: Target, here: str) -> Iterator[Target]:
    directories = [name for name, kind in root.kinds.items() if kind == "directory"]
    # Python's cache directory cannot be a class. It is reported with the other entries beside the classes.
    names = [name for name in directories if not name.startswith(".") and name != "__pycache__"]
    if not any(_is_marked(root.directory / name) for name in names):
        raise TaskClassNotFound(
            "there is no task class", where=str(root.directory), hint="name a bench root or a task class"
        )
    return (_target(root.directory / name, here) for name in names)


def _target(directory: Path, here: str) -> Target:
    return Target(directory, _shown(directory, here))


def _shown(path: Path, here: str) -> str:
    inside = os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
    return "" if inside == "." else shown_path(inside)
