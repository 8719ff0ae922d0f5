"""Which files are an agent's own code: found before any of them runs, and checked when they are loaded.

A module is the agent's own if it lies neither in the standard library nor among installed packages. A module
that the agent wrote itself while it worked is not a part of it. A SUT child imports this module on every
call, and any interpreter may run it, so it imports only the standard library.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from codegenie.eval.suts.raised import guarded

LARGEST_SOURCE = 4 * 1024 * 1024
"""Imports of a larger source are not followed: a syntax tree takes a hundred times the memory of its text."""

_INSTALLED = {"site-packages", "dist-packages"}
_HARNESS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_NAMED = (
    os.path.dirname(os.__file__),
    os.path.join(sys.base_prefix, sys.platlibdir, _VERSION),
    os.path.join(sys.base_exec_prefix, sys.platlibdir, _VERSION),
)
_LIBRARY = tuple({*_NAMED, *map(os.path.realpath, _NAMED)})


class NotTheAgent(BaseException):
    """Code that is not part of the agent that was looked up. Not an Exception, which agents often catch."""


class Own:
    """Says which files are the agent's own."""

    def __init__(self, import_from: str, private: Sequence[str]) -> None:
        """`private` are the directories in which the agent works."""
        self.import_from = import_from
        # By their real paths, too: files are compared by theirs.
        self._private = tuple({*private, *map(os.path.realpath, private)})
        # The file of the module that was named, which may also be one of an installed package.
        self.entry = ""
        # The directories of the package in which the agent is, wherever it was installed.
        self._package: tuple[str, ...] = ()

    def claim_package(self, spec: ModuleSpec) -> None:
        """Take the package of the agent for its own, also where packages are installed."""
        self._package = tuple(map(os.path.realpath, spec.submodule_search_locations or ()))

    def has(self, path: str) -> bool:
        """Say whether a file is the agent's own."""
        if path == self.entry:
            return True
        if not os.path.isabs(path) or _below(path, _HARNESS):
            return False
        if any(_below(path, directory) for directory in self._package):
            return True
        if any(_below(path, library) for library in _LIBRARY) or _INSTALLED & set(path.split(os.sep)):
            return False
        # One of these directories may lie in another: the innermost one decides.
        roots = [root for root in (self.import_from, *self._private) if _below(path, root)]
        return max(roots, key=len, default="") not in self._private

    def file_of(self, spec: ModuleSpec | None) -> str | None:
        """Return the file of a module, or the archive that holds it; None if it is not the agent's own."""
        origin = None if spec is None or not spec.has_location else spec.origin
        return self.real_file(origin)

    def real_file(self, path: object) -> str | None:
        """Return the real path of a file; None if it is not the agent's own."""
        if type(path) is not str:
            return None
        if not self.has(path) and os.path.basename(path) != os.path.basename(self.entry):
            return None
        real = os.path.realpath(path)
        while real != os.sep and not os.path.isfile(real):
            real = os.path.dirname(real)
        return real if real != os.sep and self.has(real) else None

    def name_of(self, file: str) -> str:
        """Return the name of a file in the agent: its path below the directory from which it is imported."""
        roots = [root for root in (self.import_from, *sys.path) if root and _below(file, root)]
        root = max(roots, key=len, default=os.path.dirname(file))
        return os.path.relpath(file, root)


def _below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)


class OwnModules:
    """The first finder: it lets every module be found as usual, and hashes those that are the agent's own."""

    def __init__(self, own: Own, known: dict[str, str] | None) -> None:
        """`known` are the digests by file; None if the agent is only looked up."""
        self._own = own
        self._known = known
        self._before = set(sys.modules)
        self.loaded: dict[str, str] = {}
        # The first file that is not part of the agent, and why. An agent may catch what is raised for it.
        self.refused: tuple[str, str] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's spec. Of the agent's own source exactly the bytes run that are hashed."""
        spec = found(fullname, path)
        file = self._own.file_of(spec)
        if spec is None or file is None:
            return spec
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _HashedSource(fullname, file, self)
            spec.cached = None
        else:
            self.check(file, _digest(file))
        return spec

    def check(self, file: str, digest: str | None) -> None:
        """Note that a file is loaded. Raises NotTheAgent if it is not a part of the agent as it was found."""
        if digest is not None:
            self.loaded[file] = digest
        if self._known is None:
            return
        if file not in self._known:
            self._refuse("unknown", file)
        if self._known[file] != digest:
            self._refuse("changed", file)

    def check_all(self) -> None:
        """Check what was loaded without a finder. Raises NotTheAgent if it is not a part of the agent."""
        for file in self.named().values():
            if file not in self.loaded:
                self.check(file, _digest(file))

    def named(self) -> dict[str, str]:
        """Return the names of the agent's own modules that were loaded, and their files."""
        found = {}
        modules: dict[str, object] = dict(sys.modules)
        for name, module in modules.items():
            # Agents put other objects than modules there, too.
            place = vars(module).get("__file__") if isinstance(module, ModuleType) else None
            file = None if name in self._before else self._own.real_file(place)
            if file is not None:
                found[name] = file
        return found

    def _refuse(self, why: str, file: str) -> None:
        self.refused = self.refused or (why, file)
        raise NotTheAgent(f"{why}: {file}")


class _HashedSource(SourceFileLoader):
    """Runs exactly the bytes that it hashed: no compiled file, and no bytes that were written later."""

    def __init__(self, fullname: str, path: str, modules: OwnModules) -> None:
        super().__init__(fullname, path)
        self._modules = modules

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - importlib's signature
        try:
            source = self.get_data(self.path)
        except OSError:
            self._modules.check(self.path, None)
            raise
        self._modules.check(self.path, hashlib.sha256(source).hexdigest())
        code: CodeType = self.source_to_code(source, self.path)
        return code


def _digest(file: str) -> str | None:
    try:
        with open(file, "rb") as opened:
            return hashlib.sha256(opened.read()).hexdigest()
    except OSError:
        return None


def found(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module as an import would, and import nothing."""
    for finder in list(sys.meta_path):
        find_spec = None if isinstance(finder, OwnModules) else getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find_spec is None else find_spec(name, path)
        if spec is not None:
            return spec
    return None


class Following:
    """Follows the imports of a module through all of the agent's own files, and runs none of them."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self._specs: dict[str, ModuleSpec | None] = {}
        self._seen: set[str] = set()
        self.files: dict[str, str] = {}

    def spec_of(self, name: str) -> ModuleSpec | None:
        """Find a module by its full name; None if there is none that can be found without running code."""
        if name not in self._specs:
            parent, _, _ = name.rpartition(".")
            above = self.spec_of(parent) if parent else None
            places = None if above is None else above.submodule_search_locations
            is_hidden = bool(parent) and places is None
            path = None if places is None else list(places)
            # A finder of a package may raise anything for the name of another one.
            self._specs[name] = None if is_hidden else guarded(lambda: found(name, path), None)
        return self._specs[name]

    def follow(self, names: Sequence[str]) -> None:
        """Note the files of these modules, and of all that they import anywhere in their source."""
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            # `from . import x` outside of a package has no name that could be found.
            if name in self._seen or not name or name.startswith("."):
                continue
            self._seen.add(name)
            spec = self.spec_of(name)
            file = self.own.file_of(spec)
            if spec is None or file is None:
                continue
            is_package = spec.submodule_search_locations is not None
            waiting += self.note(file, name if is_package else name.rpartition(".")[0])

    def note(self, file: str, package: str) -> list[str]:
        """Note one file, and return the names that its source imports. `package` is that of the module."""
        try:
            with open(file, "rb") as opened:
                source = opened.read()
        except OSError:
            return []
        self.files[file] = hashlib.sha256(source).hexdigest()
        return list(_imported(source, package)) if file.endswith(".py") else []


def _imported(source: bytes, package: str) -> Iterator[str]:
    """Yield every name that a source may import, with its parents. No finder knows an attribute."""
    # Only an agent that is looked up needs it, and it takes milliseconds to load.
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source if len(source) <= LARGEST_SOURCE else b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from _with_parents(base)
            for alias in node.names:
                yield f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and _is_import(node.func):
            literal = node.args[0]
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                relative = literal.value.startswith(".")
                yield from _with_parents(package + literal.value if relative else literal.value)


def _is_import(function: object) -> bool:
    """Say whether this is `import_module`, `importlib.import_module` or `__import__`."""
    name = getattr(function, "attr", None) or getattr(function, "id", None)
    return name in {"import_module", "__import__"}


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        yield ".".join(parts[:depth])
