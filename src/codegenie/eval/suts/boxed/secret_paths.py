"""The paths that no agent may see: answers, records, and what leads to them."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path

import codegenie
from codegenie.eval.models import RunPlan

_STATE = ".codegenie"
_REPOSITORY = ".git"
# Names below the package in which answers travel with a wheel, or lie in a checkout.
_SHIPPED = ("benches.zip", "_bench")
_INSTALLED = "lib*/python*/site-packages/codegenie/eval"


def secret_paths(plan: RunPlan, directory: Path, more: Iterable[Path] = ()) -> tuple[str, ...]:
    """Return real paths: bench roots, log, cache, policy, our state, the repository, the shipped benches.

    `directory` is where the command was called, and `more` are further files and directories, such as the
    bench roots that this run does not use.
    """
    kept = kept_in(plan)
    known = secrets_of(directory, (plan.task_class.directory.parent, *more))
    return tuple(sorted({*known, *(os.path.realpath(path) for path in kept)}))


def secrets_of(directory: Path, more: Iterable[Path]) -> tuple[str, ...]:
    """Return what exists of the secrets around a directory, and of `more`."""
    package = Path(codegenie.__file__).parent / "eval"
    there = [
        directory / _STATE,
        *_repositories(directory),
        *(package / name for name in _SHIPPED),
        package.parents[2] / "bench",
        *more,
    ]
    return tuple(sorted({os.path.realpath(path) for path in filter(os.path.lexists, there)}))


def shipped_answers(shown: Iterable[str]) -> tuple[str, ...]:
    """Return the benches that travel with a harness which is installed in a shown directory, or one below."""
    places = [
        found
        for directory in shown
        for inner in ("", "*/", ".*/")
        for name in _SHIPPED
        for found in glob.iglob(f"{glob.escape(directory)}/{inner}{_INSTALLED}/{name}")
    ]
    return tuple(sorted({os.path.realpath(path) for path in places}))


def kept_in(plan: RunPlan) -> tuple[Path, ...]:
    """Return where a run writes: these are secret, also if they do not exist yet."""
    places = (plan.out_dir, plan.options.cache_dir, plan.options.record_dir)
    return tuple(place for place in places if place is not None)


def _repositories(directory: Path) -> list[Path]:
    """Return the `.git` of the repository around a directory, and what a worktree's file points to."""
    for place in (directory, *directory.parents):
        found = place / _REPOSITORY
        if os.path.isdir(found):
            return [found]
        if os.path.isfile(found):
            return [found, *_pointed_to(found)]
    return []


def _pointed_to(file: Path) -> list[Path]:
    """Return the directories of a worktree: its own and the common one with all objects."""
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    own = file.parent / text.removeprefix("gitdir:").strip()
    common = own / "commondir"
    try:
        return [own, own / common.read_text(encoding="utf-8", errors="surrogateescape").strip()]
    except OSError:
        return [own]
