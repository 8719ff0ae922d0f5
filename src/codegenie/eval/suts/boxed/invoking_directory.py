"""What a box shows of the directory from which a Python agent is run: no records, no answers, and no home."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.suts.agent_spec.needs import is_inside, is_too_broad


def refuse_directory(directory: str, home: str, secrets: Sequence[str]) -> None:
    """Raise SutSpecInvalid for a directory that holds answers, or far more than an agent."""
    if is_inside(directory, secrets):
        raise SutSpecInvalid(
            f"{directory} lies where benches, answers or records are, which an agent does not see",
            hint="run the command from the directory of the agent, outside of benches and records",
        )
    if directory != os.path.realpath(home) and is_too_broad(directory, "/"):
        raise SutSpecInvalid(
            f"the agent would see all of {directory}, from where the command is run",
            hint="run the command from a directory that holds the agent and not much else",
        )


def withheld(directory: str, home: str, needed: Sequence[str]) -> tuple[str, ...]:
    """Return what of the directory the box hides because it belongs to a home.

    A home holds keys. If the agent lies in the home itself, its Python files and packages are shown, and no
    other entry. A home below the directory is hidden. What the interpreter needs is left in both. Raises
    SutSpecInvalid if there is too much to hide.
    """
    home = os.path.realpath(home)
    if not is_inside(home, (directory,)) or home == "/":
        return ()
    if home == directory:
        other = [entry.path for entry in os.scandir(home) if not _is_code(entry)]
    else:
        other = [home] if os.path.isdir(home) else []
    hidden = tuple(path for each in other for path in _around(each, needed))
    if len(hidden) > LIMITS.closed_directory_entries:
        raise SutSpecInvalid(
            f"{directory} has more than {LIMITS.closed_directory_entries} entries that a box has to hide",
            hint="run the command from a directory that holds the agent and not much else",
        )
    return hidden


def _is_code(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith("."):
        return False
    if entry.is_dir(follow_symlinks=False):
        with suppress(PermissionError):
            return any(name.endswith(".py") for name in os.listdir(entry.path))
        return False
    return entry.name.endswith((".py", ".so"))


def _around(path: str, needed: Sequence[str]) -> Iterator[str]:
    """Yield a path, or what is in it beside what is needed."""
    if os.path.islink(path) or is_inside(path, needed):
        return
    if not any(is_inside(each, (path,)) for each in needed):
        yield path
        return
    for entry in sorted(os.scandir(path), key=lambda each: each.name):
        yield from _around(entry.path, needed)
