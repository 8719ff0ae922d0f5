"""What a command needs in the box: its program, the interpreter of it, and the directories around both.

Nothing is run. What is not found here, a user names in `readable`.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.suts.agent_spec.records import AgentSpec

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
"""What every box shows."""
AGENT_DIRECTORY = "/agent"
_BROAD = frozenset({"/", "/etc", "/home", "/media", "/mnt", "/root", "/srv", "/tmp", "/var"})  # noqa: S108 - named, not used
# A socket answers through a mount that is read-only, and the others have places of their own in the box.
_NEVER_SHOWN = ("/proc", "/sys", "/dev", "/run", "/var/run")
_FIRST_LINE_BYTES = 256
_CONFIGURATION_BYTES = 64 * 1024
# The kernel follows as many interpreters that are scripts themselves.
_MOST_INTERPRETERS = 5
_INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
    "mini": "pip install mini-swe-agent",
    "aider": "pip install aider-chat",
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where a program is looked for: directories in order, the PATH, and the home that `~` means."""

    directories: tuple[str, ...]
    path: str
    home: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The program to execute, the file that is hashed, and the real paths that the box has to show."""

    program: str
    executed: str
    shown: tuple[str, ...]


def find_needs(name: str, places: Places, files: Sequence[str] = ()) -> Needs:
    """Find a program and all that it needs. `files` are those of the spec, which the box shows as /agent.

    Raises SutSpecInvalid if it is not there, is not a program, or its interpreter is missing.
    """
    if name.startswith(f"{AGENT_DIRECTORY}/"):
        return _own_file(name, places, files)
    found = _located(name, places)
    executed = os.path.realpath(found)
    shown = _around(found, executed, places)
    for _ in range(_MOST_INTERPRETERS):
        words = _shebang(executed if not shown.interpreters else shown.interpreters[-1])
        if not words:
            break
        shown.add_interpreter(_interpreter(words, name, places), places)
    # By its own name where the box shows that: the Python of a virtual environment is a link out of it.
    beside = os.path.join(os.path.realpath(os.path.dirname(found)), os.path.basename(found))
    program = beside if is_inside(beside, (*SYSTEM_DIRECTORIES, *shown.directories)) else executed
    return Needs(program, executed, shown.all())


def _own_file(name: str, places: Places, files: Sequence[str]) -> Needs:
    relative = os.path.normpath(name.removeprefix(f"{AGENT_DIRECTORY}/"))
    if not is_inside(f"/{relative}", [f"/{file.rstrip('/')}" for file in files]):
        raise SutSpecInvalid(f"{name} is not one of files", hint=f"add {relative} to files")
    executed = _located(os.path.join(places.directories[0], relative), places)
    shown = _Shown()
    words = _shebang(executed)
    if words:
        shown.add_interpreter(_interpreter(words, name, places), places)
    return Needs(name, executed, shown.all())


class _Shown:
    """Collects what a program needs."""

    def __init__(self) -> None:
        self.directories: list[str] = []
        self.files: list[str] = []
        self.interpreters: list[str] = []

    def add_interpreter(self, path: str, places: Places) -> None:
        real = os.path.realpath(path)
        self.interpreters.append(real)
        around = _around(path, real, places)
        self.directories += around.directories
        self.files += around.files

    def all(self) -> tuple[str, ...]:
        directories = [path for path in self.directories if not is_inside(path, SYSTEM_DIRECTORIES)]
        files = [path for path in self.files if not is_inside(path, (*SYSTEM_DIRECTORIES, *directories))]
        return tuple(sorted({*directories, *files}))


def _around(found: str, real: str, places: Places) -> _Shown:
    """Return a file with the directory that it belongs to: a virtual environment or node_modules."""
    shown = _Shown()
    shown.files.append(real)
    for path in dict.fromkeys((os.path.abspath(found), real)):
        shown.directories += _virtual_environment(path, places.home) + _node_directory(path, places.home)
    return shown


def _virtual_environment(path: str, home: str) -> list[str]:
    directory = Path(os.path.realpath(os.path.dirname(path))).parent
    try:
        with open(directory / "pyvenv.cfg", "rb") as file:
            text = file.read(_CONFIGURATION_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    if is_too_broad(str(directory), home):
        return []
    found = re.search(r"^home[ \t]*=[ \t]*(/.*?)[ \t]*$", text, re.MULTILINE)
    if found is None:
        return [str(directory)]
    base = Path(os.path.realpath(found[1]))
    # The standard library lies beside `bin`, in the directory above it.
    prefix = base.parent if base.name == "bin" else base
    return [str(directory), str(base if is_too_broad(str(prefix), home) else prefix)]


def _node_directory(path: str, home: str) -> list[str]:
    parts = Path(path).parts
    if "node_modules" not in parts:
        return []
    modules = Path(*parts[: parts.index("node_modules") + 1])
    above = os.path.realpath(modules.parent)
    return [os.path.realpath(modules) if is_too_broad(above, home) else above]


def is_too_broad(path: str, home: str) -> bool:
    """Say whether a directory holds more than one program needs: the root, or a home directory."""
    return path in _BROAD or is_inside(os.path.realpath(home), (path,))


def _located(name: str, places: Places) -> str:
    candidates = [os.path.join(directory, name) for directory in places.directories]
    if "/" not in name:
        entries = [entry for entry in places.path.split(":") if entry.startswith("/")]
        candidates += [os.path.join(entry, name) for entry in entries]
    problem = None
    for path in candidates:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
        problem = problem or f"{path} is not a program: " + (
            "it may not be executed" if stat.S_ISREG(mode) else "it is not a regular file"
        )
    if problem:
        raise SutSpecInvalid(problem, hint="chmod +x it, or name another file")
    install = _INSTALL.get(name)
    raise SutSpecInvalid(
        f"agent not found: {ascii(name[:80]).strip(chr(39))}",
        hint=f"install it ({install}), or add it to PATH" if install else "install it, or give its path",
    )


def _shebang(path: str) -> list[str]:
    """Return the words of a script's first line. Raises SutSpecInvalid if it is not a program either."""
    try:
        with open(path, "rb") as file:
            head = file.read(_FIRST_LINE_BYTES)
    except OSError as error:
        raise SutSpecInvalid(f"cannot read {path}: {error.strerror}", hint="make it readable") from None
    if head.startswith(b"\x7fELF"):
        return []
    words = head.partition(b"\n")[0][2:].decode("utf-8", "surrogateescape").split()
    if not head.startswith(b"#!") or not words:
        raise SutSpecInvalid(
            f"{path} is neither a program nor a script with a #! line", hint="begin it with #!/bin/sh"
        )
    return words


def _interpreter(words: Sequence[str], name: str, places: Places) -> str:
    if os.path.basename(words[0]) != "env":
        wanted = words[0]
    else:
        # `env -S python3 -u` and `env NAME=VALUE python3` run the first word that is neither.
        plain = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        wanted = plain[0] if plain else words[0]
    try:
        return _located(
            wanted, Places((places.directories[0],) if "/" in wanted else (), places.path, places.home)
        )
    except SutSpecInvalid:
        raise SutSpecInvalid(
            f"the interpreter of {name} is not there: {wanted}", hint="install it, or change the #! line"
        ) from None


def is_inside(path: str, directories: Iterable[str]) -> bool:
    """Say whether a path is one of the directories or lies below one of them."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def is_shown(path: str, shown: Sequence[str]) -> bool:
    """Say whether the box has this directory: it is shown, or something in it is."""
    return is_inside(path, (*SYSTEM_DIRECTORIES, *shown)) or any(is_inside(one, (path,)) for one in shown)


def readable_paths(spec: AgentSpec, home: str) -> tuple[str, ...]:
    """Return the real paths of `readable`. Raises SutSpecInvalid if one of them is not there."""
    return tuple(_readable(path, home) for path in spec.readable)


def _readable(path: str, home: str) -> str:
    expanded = os.path.join(home, path[2:]) if path.startswith("~/") else path
    real = os.path.realpath(expanded)
    if not os.path.exists(real):
        raise SutSpecInvalid(f"readable: {path} is not there", hint="correct it, or leave it out")
    mode = os.stat(real).st_mode
    if is_too_broad(real, home) or is_inside(real, _NEVER_SHOWN):
        raise SutSpecInvalid(
            f"readable: {path} shows more than an agent needs", hint="name the directory of the program alone"
        )
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise SutSpecInvalid(
            f"readable: {path} is neither a directory nor a regular file", hint="leave it out"
        )
    return real


def refuse_secret_paths(shown: Iterable[str], secrets: Sequence[str]) -> None:
    """Raise SutSpecInvalid if a shown path is a secret one or lies below one. Real paths on both sides."""
    for path in shown:
        if is_inside(path, secrets):
            raise SutSpecInvalid(
                f"{path} lies where benches, answers or records are, which an agent does not see",
                hint="move the agent to another directory, or leave the path out of readable",
            )


def unseen_arguments(argv: Sequence[str], directory: str, shown: Sequence[str]) -> tuple[str, ...]:
    """Return arguments that name a file here which the box does not show, such as in `python3 agent.py`."""
    found = []
    for argument in argv[1:]:
        path = os.path.realpath(os.path.join(directory, argument)) if "\0" not in argument else ""
        if path and os.path.isfile(path) and not is_inside(path, (*SYSTEM_DIRECTORIES, *shown)):
            found.append(argument)
    return tuple(found)


def missing_in_the_box(path: str, home: str) -> SutSpecInvalid:
    """Return the refusal for a start that failed because the box does not show a path."""
    place = os.path.dirname(path)
    hint = (
        f"add {place} to readable" if not is_too_broad(place, home) else "move it into a directory of its own"
    )
    return SutSpecInvalid(f"the agent is in {place}, which the box does not show", where=path, hint=hint)
