"""Private copies of a case, hashed while they are copied.

If a user edits a case after its digest was checked, the copy has another digest and the run ends
(threats CA-02). Systems under test and rubrics read only these copies, never the bench itself.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from codegenie.eval.canonical import TreeHasher
from codegenie.eval.errors import BenchCaseDigestMismatch, HarnessFailure
from codegenie.eval.execute_steps import EXECUTE
from codegenie.eval.execution_ports import CaseFile
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, TaskClass
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.file_writing import write_private
from codegenie.eval.system.files import FoundFile, UnsafeTree, walk_files
from codegenie.eval.system.packed_tree import Packer, packed
from codegenie.eval.system.removal import Sweeper, Unfinished, for_entries, remove_tree

_HELPER = Path(__file__).with_name("codegenie_rubric.py")
_INPUT = "input/"
_FOR_RUBRICS = (_INPUT, "expected/")
_FOR_EXECUTION = (_INPUT, EXECUTE)


def read_case_parts(
    cases: Path, case_id: str, digest: str, wanted: Collection[str]
) -> dict[str, dict[str, bytes]]:
    """Read the files of some parts of a case, by name, in the same pass that checks its digest.

    Raises BenchCaseDigestMismatch if the bytes of the case do not have this digest.
    """
    hasher = TreeHasher("case.v1")
    parts: dict[str, dict[str, bytes]] = {part: {} for part in wanted}
    try:
        for found in walk_files(cases / case_id, LIMITS.case_tree):
            hasher.begin(found.path, found.size, executable=found.executable)
            content = found.content()
            hasher.content(content)
            part, _, name = found.path.partition("/")
            if part in parts:
                parts[part][name] = content
    except UnsafeTree as unsafe:
        raise BenchCaseDigestMismatch(case_id, digest, f"(unreadable: {unsafe})") from None
    if hasher.hexdigest() != digest:
        raise BenchCaseDigestMismatch(case_id, digest, hasher.hexdigest())
    return parts


class CaseSnapshots:
    """Copies the cases of one task class into one run directory."""

    def __init__(self, task_class: TaskClass, directory: Path) -> None:
        self._cases = f"{task_class.directory}/cases"
        self._rubric = [(file.path, file.content) for file in task_class.rubric]
        self._rubric.append(("codegenie_rubric.py", _HELPER.read_bytes()))
        self._rubric_directories = sorted({folder for name, _ in self._rubric for folder in _folders(name)})
        self._packed_rubric = packed(self._rubric)
        self._directory = directory
        self._sweeper = Sweeper()

    def close(self) -> None:
        """Stop removing copies. What is left is removed with the run directory."""
        self._sweeper.close()

    @contextmanager
    def for_sut(self, case: BenchCase) -> Iterator[Path]:
        """Yield a directory that holds `input/` and nothing else of the case."""
        with self._private("sut") as path:
            self._copy(case, path, ("input/",))
            yield Path(path)

    def input_files(self, case: BenchCase) -> list[tuple[str, bytes, bool]]:
        """Return the files that `for_sut` copies: path, content, and whether it can be executed."""
        taken = _InputReader()
        self._hashed(case, taken)
        return taken.files

    def for_execution(self, case: BenchCase) -> dict[str, CaseFile]:
        """Return the files of `input/` and `execute/` by their paths in the case."""
        files: dict[str, CaseFile] = {}

        def take(found: FoundFile, hasher: TreeHasher) -> None:
            if not found.path.startswith(_FOR_EXECUTION):
                _hash_file(found, hasher)
                return
            hasher.begin(found.path, found.size, executable=found.executable)
            content = b"".join(_hashed(found, hasher))
            files[found.path] = CaseFile(content, found.executable)

        with _typed_failure("read a case"):
            self._hashed(case, take)
        return files

    @contextmanager
    def for_rubric(self, case: BenchCase) -> Iterator[Path]:
        """Yield a directory that holds the rubric, `input/`, `expected/` and, for steps, `execute/`."""
        with self._private("rubric") as path:
            self._copy(case, path, _parts_for_rubrics(case))
            with _typed_failure("write a rubric"):
                self._write_rubric(path)
            yield Path(path)

    @contextmanager
    def parcel_for_rubric(self, case: BenchCase) -> Iterator[int]:
        """Yield the descriptor of a parcel with the same files."""
        with stream_file() as descriptor:
            packer = Packer(descriptor)
            with _typed_failure("pack a case"):
                packer.ready(*self._packed_rubric)
                self._hashed(case, _CasePacker(packer, _parts_for_rubrics(case)))
                packer.close()
            yield descriptor

    @contextmanager
    def parcel_for_sut(self, case: BenchCase) -> Iterator[int]:
        """Yield the descriptor of a parcel with the files of `input/` and nothing else of the case."""
        with stream_file() as descriptor:
            packer = Packer(descriptor)
            with _typed_failure("pack a case"):
                self._hashed(case, _InputPacker(packer))
                packer.close()
            yield descriptor

    def _write_rubric(self, path: str) -> None:
        for folder in self._rubric_directories:
            os.mkdir(f"{path}/{folder}", 0o700)
        for name, content in self._rubric:
            write_private(f"{path}/{name}", (content,))

    @contextmanager
    def _private(self, kind: str) -> Iterator[str]:
        # The name does not contain the case id, so the path tells the agent nothing. It cannot be guessed:
        # code that runs as our user could otherwise create the next directory before us and end the run.
        path = f"{self._directory}/{kind}-{os.urandom(8).hex()}"
        with _typed_failure("make a private directory"):
            os.mkdir(path, 0o700)
        try:
            yield path
        finally:
            # What cannot be removed now is removed later with the whole run directory. Other cases wait for a
            # few entries only, not for all entries of a hostile case: 8,000 directories took 27 s.
            try:
                remove_tree(path, for_entries(LIMITS.removed_at_once))
            except Unfinished:
                self._sweeper.sweep(path)
            except OSError:
                pass

    def _copy(self, case: BenchCase, target: str, parts: tuple[str, ...]) -> None:
        with _typed_failure("copy a case"):
            for part in parts:
                os.mkdir(f"{target}/{part}", 0o700)
            self._hashed(case, _CaseCopier(target, parts))

    def _hashed(self, case: BenchCase, take: Callable[[FoundFile, TreeHasher], None]) -> None:
        """Pass every file of a case to `take`, which hashes it. Refuse a case that is not the planned one."""
        hasher = TreeHasher("case.v1")
        try:
            for found in walk_files(f"{self._cases}/{case.case_id}", LIMITS.case_tree):
                take(found, hasher)
        except UnsafeTree as unsafe:
            raise BenchCaseDigestMismatch(case.case_id, case.digest, f"(unreadable: {unsafe})") from None
        if hasher.hexdigest() != case.digest:
            raise BenchCaseDigestMismatch(case.case_id, case.digest, hasher.hexdigest())


class _InputReader:
    """Reads the files of `input/`, and hashes all files of a case."""

    def __init__(self) -> None:
        self.files: list[tuple[str, bytes, bool]] = []

    def __call__(self, found: FoundFile, hasher: TreeHasher) -> None:
        if not found.path.startswith("input/"):
            _hash_file(found, hasher)
            return
        hasher.begin(found.path, found.size, executable=found.executable)
        content = found.content()
        hasher.content(content)
        self.files.append((found.path.removeprefix("input/"), content, found.executable))


class _CaseCopier:
    """Copies the files in certain parts of a case, whose directories exist, and hashes all of its files."""

    def __init__(self, target: str, parts: tuple[str, ...]) -> None:
        self._target = target
        self._parts = parts
        self._made = {part.rstrip("/") for part in parts}

    def __call__(self, found: FoundFile, hasher: TreeHasher) -> None:
        if not found.path.startswith(self._parts):
            _hash_file(found, hasher)
            return
        for folder in _new_folders(found.path, self._made):
            os.mkdir(f"{self._target}/{folder}", 0o700)
        hasher.begin(found.path, found.size, executable=found.executable)
        chunks = _hashed(found, hasher)
        write_private(f"{self._target}/{found.path}", chunks, executable=found.executable)


class _CasePacker:
    """Packs the files in certain parts of a case, and hashes all of its files."""

    def __init__(self, packer: Packer, parts: tuple[str, ...]) -> None:
        self._packer = packer
        self._parts = parts
        self._made = {part.rstrip("/") for part in parts}
        for part in sorted(self._made):
            packer.directory(part)

    def __call__(self, found: FoundFile, hasher: TreeHasher) -> None:
        if not found.path.startswith(self._parts):
            _hash_file(found, hasher)
            return
        for folder in _new_folders(found.path, self._made):
            self._packer.directory(folder)
        hasher.begin(found.path, found.size, executable=found.executable)
        chunks = _hashed(found, hasher)
        self._packer.file(found.path, found.size, chunks, executable=found.executable)


class _InputPacker:
    """Packs the files of `input/` by their paths in it, and hashes all files of the case."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._made: set[str] = set()

    def __call__(self, found: FoundFile, hasher: TreeHasher) -> None:
        if not found.path.startswith(_INPUT):
            _hash_file(found, hasher)
            return
        path = found.path.removeprefix(_INPUT)
        for folder in _new_folders(path, self._made):
            self._packer.directory(folder)
        hasher.begin(found.path, found.size, executable=found.executable)
        self._packer.file(path, found.size, _hashed(found, hasher), executable=found.executable)


def _parts_for_rubrics(case: BenchCase) -> tuple[str, ...]:
    # A case without steps gets the copy that it always got.
    return (*_FOR_RUBRICS, EXECUTE) if case.execute else _FOR_RUBRICS


def _folders(path: str) -> Iterator[str]:
    """Name the directories above a relative path, outermost first."""
    parts = path.split("/")[:-1]
    return ("/".join(parts[: depth + 1]) for depth in range(len(parts)))


def _new_folders(path: str, made: set[str]) -> Iterator[str]:
    """Name the directories above a path that are not in `made` yet, outermost first, and note them there."""
    for folder in _folders(path):
        if folder not in made:
            made.add(folder)
            yield folder


def _hash_file(found: FoundFile, hasher: TreeHasher) -> None:
    hasher.begin(found.path, found.size, executable=found.executable)
    for chunk in found.chunks():
        hasher.content(chunk)


def _hashed(found: FoundFile, hasher: TreeHasher) -> Iterator[bytes]:
    for chunk in found.chunks():
        hasher.content(chunk)
        yield chunk


@contextmanager
def _typed_failure(task: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HarnessFailure(
            f"cannot {task}: {error.strerror}",
            where=None if error.filename is None else str(error.filename),
            hint="check the free space below TMPDIR and the limit on open files, `ulimit -n`",
        ) from None
