"""The benches that come with codegenie. The user's own benches take precedence over them.

In an installed package they are one archive, because installers compile every `.py` file that they install.
The archive is unpacked into a private directory while a command needs it. In a checkout they are `bench/`.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from codegenie.eval.bench.loading import BenchRoot, bench_roots, task_class_names
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.planning import DEFAULT_BENCH_ROOT
from codegenie.eval.system.file_writing import write_private
from codegenie.eval.system.run_directory import run_directory

_PACKAGE = Path(__file__).parents[1]
_ARCHIVE = _PACKAGE / "benches.zip"
_CHECKOUT = _PACKAGE.parents[2]
_EXECUTABLE = 0o111 << 16


def shipped_names() -> tuple[str, ...]:
    """Name the task classes that come with codegenie, sorted; empty if the package was built without them."""
    if _is_checkout():
        return task_class_names(_CHECKOUT / "bench")
    if not _ARCHIVE.exists():
        return ()
    with _opened_archive() as archive:
        return tuple(sorted({name.partition("/")[0] for name in archive.namelist()}))


@contextmanager
def shipped_root() -> Iterator[Path]:
    """Yield a bench root with the shipped task classes. It is read-only and removed afterwards."""
    if _is_checkout():
        yield _CHECKOUT / "bench"
        return
    with run_directory() as directory:
        write_shipped(directory / "bench")
        yield directory / "bench"


def write_shipped(target: Path) -> None:
    """Write a copy of the shipped benches; `target` must not exist. Raises HarnessFailure if that fails."""
    try:
        os.mkdir(target, 0o700)
        for path, content, executable in _shipped_files():
            (target / path).parent.mkdir(0o700, parents=True, exist_ok=True)
            write_private(f"{target}/{path}", (content,), executable=executable)
    except OSError as error:
        raise HarnessFailure(
            f"cannot write the shipped benches: {error.strerror}", where=str(target), hint="set TMPDIR"
        ) from None


def _is_checkout() -> bool:
    return not _ARCHIVE.exists() and (_CHECKOUT / "pyproject.toml").is_file()


def _shipped_files() -> Iterator[tuple[str, bytes, bool]]:
    if _is_checkout():
        root = _CHECKOUT / "bench"
        for path in sorted(found for found in root.rglob("*") if found.is_file()):
            yield path.relative_to(root).as_posix(), path.read_bytes(), bool(path.stat().st_mode & 0o111)
        return
    with _opened_archive() as archive:
        for entry in archive.infolist():
            yield entry.filename, archive.read(entry), bool(entry.external_attr & _EXECUTABLE)


@contextmanager
def _opened_archive() -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(_ARCHIVE) as archive:
            yield archive
    except (FileNotFoundError, PermissionError, zipfile.BadZipFile, zlib.error) as error:
        raise HarnessFailure(
            f"the shipped benches cannot be read: {getattr(error, 'strerror', None) or 'a damaged archive'}",
            where=str(_ARCHIVE),
            hint="install codegenie again",
        ) from None


class Benches:
    """Finds a task class: in a bench root of the user, or else among the shipped classes."""

    def __init__(self, roots: BenchRoot, note: Callable[[str], object]) -> None:
        self.own = bench_roots(roots)
        self._note = note
        self._held = ExitStack()
        self._shipped: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def roots_of(self, name: str) -> Sequence[Path]:
        """Return the bench roots to load `name` from. If the user's class hides a shipped one, note it."""
        if self.is_shipped(name):
            return (self._unpacked(),)
        own = self._own(name)
        if own is not None and self._hides_shipped(own, name):
            self._note(f"{own} is used, and not the task class of the same name that codegenie ships")
        return self.own

    def names(self) -> dict[str, bool]:
        """Return every available task class, sorted, and whether it is a shipped one."""
        here = set(task_class_names([root for root in self.own if not _is_absent_default(root)]))
        return {name: name not in here for name in sorted(here.union(shipped_names()))}

    def _hides_shipped(self, own: Path, name: str) -> bool:
        """Say whether a shipped class has this name and is another directory."""
        if name not in shipped_names():
            return False
        return not (_is_checkout() and os.path.samefile(own, _CHECKOUT / "bench" / name))

    def is_shipped(self, name: str) -> bool:
        """Say whether `name` comes from the shipped classes. False if a root named by the user is missing."""
        missing = [root for root in self.own if not os.path.isdir(root) and not _is_absent_default(root)]
        return not missing and self._own(name) is None and name in shipped_names()

    def _own(self, name: str) -> Path | None:
        return next((root / name for root in self.own if os.path.isdir(root / name)), None)

    def _unpacked(self) -> Path:
        if self._shipped is None:
            self._shipped = self._held.enter_context(shipped_root())
        return self._shipped


def _is_absent_default(root: Path) -> bool:
    return root == Path(DEFAULT_BENCH_ROOT).absolute() and not os.path.lexists(root)
