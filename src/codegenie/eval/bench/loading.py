"""Read a TaskClass and its BenchCases from disk.

Sizes are capped, links are not followed, digests are checked, and nothing is executed.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.bench.grammar import (
    CaseHead,
    check_reviewable,
    inspect_case,
    pycache_hint,
    read_breakdown_keys,
    read_digests,
    read_registration,
    read_taxonomy,
)
from codegenie.eval.canonical import TreeHasher, digest_json
from codegenie.eval.errors import (
    BenchCaseDigestMismatch,
    BenchCaseLoadError,
    BenchInvalid,
    DigestManifestInvalid,
    HarnessFailure,
    RubricInvalid,
    TaskClassAlreadyRegistered,
    TaskClassNotFound,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IDENTIFIER_PATTERN, BenchCase, SourceFile, TaskClass
from codegenie.eval.system.compiling import source_problems
from codegenie.eval.system.files import (
    FoundFile,
    Refusal,
    UnsafeTree,
    entry_kinds,
    opened_directory,
    read_plain_file,
    stop_at,
    walk_files,
)

BenchRoot = str | Path | Sequence[str | Path]
Seen = Callable[[FoundFile, bytes], object]
"""Is called with each file of a case and its whole content."""

CLASS_ENTRIES: Mapping[str, str] = {
    "registration.py": "file",
    "rubric.py": "file",
    "rubric_lib": "directory",
    "breakdown_keys.py": "file",
    "failure_modes.yaml": "file",
    "README.md": "file",
    "cases": "directory",
}
"""The only entries that a task class may hold."""

_OPTIONAL_ENTRIES = {"rubric_lib", "README.md"}
_CASE_DIRECTORIES = {"input", "expected", "execute", "solution"}
_CASE_PARTS = "input/, expected/, execute/, solution/"
_WRITE_DIGESTS = "write it with `codegenie eval digest TASK_CLASS --write`"


class Misplaced(UnsafeTree):
    """A file in a case directory that does not belong to a case."""


@contextmanager
def typed_refusals(where: Path) -> Iterator[None]:
    """Turn errors of reading into BenchInvalid (the bench is wrong) or HarnessFailure (the machine is)."""
    try:
        yield
    except UnsafeTree as unsafe:
        raise BenchInvalid(
            str(unsafe), where=str(where), hint="a bench may hold only regular files and directories"
        ) from None
    except OSError as error:
        raise HarnessFailure(f"cannot read the bench: {error.strerror}", where=str(where)) from None


def bench_roots(bench_root: BenchRoot) -> tuple[Path, ...]:
    """Return the given roots as absolute paths without duplicates, or raise TaskClassNotFound."""
    given = [bench_root] if isinstance(bench_root, str | Path) else list(bench_root)
    if not all(map(str, given)):
        raise TaskClassNotFound("a bench root is the empty string", hint="name one with --bench-root")
    try:
        return tuple(dict.fromkeys(Path(root).absolute() for root in given))
    except OSError as error:
        raise TaskClassNotFound(
            f"the working directory cannot be used: {error.strerror}",
            hint="change to a directory that exists, or give --bench-root as an absolute path",
        ) from None


def task_class_names(bench_root: BenchRoot) -> tuple[str, ...]:
    """Name the directories that could be task classes, sorted. Raises TaskClassNotFound for a bad root."""
    names = []
    for root in bench_roots(bench_root):
        # `Path.is_dir` raises for a path that is too long or not accessible; `os.path.isdir` does not.
        if not os.path.isdir(root):
            raise TaskClassNotFound(
                f"there is no bench root {str(root)!r}", hint="name one with --bench-root"
            )
        try:
            listed = [name for name in os.listdir(root) if not name.startswith(".")]
            # Python may have left its own directory here, which cannot be a task class.
            names += [name for name in listed if name != "__pycache__" and os.path.isdir(root / name)]
        except OSError as error:
            raise TaskClassNotFound(
                f"the bench root cannot be listed: {error.strerror}", where=str(root)
            ) from None
    return tuple(sorted(names))


def load_task_class(name: str, *, bench_root: BenchRoot = "bench") -> TaskClass:
    """Load one bench without running it. Raises a BenchInvalid that names file and line if it is refused."""
    directory = _find(name, bench_roots(bench_root))
    with typed_refusals(directory), opened_directory(directory) as descriptor:
        return _read_task_class(name, directory, descriptor)


def _find(name: str, roots: tuple[Path, ...]) -> Path:
    looked_in = ", ".join(str(root) for root in roots)
    if not re.fullmatch(IDENTIFIER_PATTERN, name):
        raise TaskClassNotFound(f"{ascii(name)[:80]} is not the name of a task class", where=looked_in)
    found = [root / name for root in roots if os.path.isdir(root / name)]
    if not found:
        raise TaskClassNotFound(
            f"there is no task class {name!r}",
            where=looked_in,
            hint="`codegenie eval list` names those that exist; --bench-root says where to look",
        )
    if len(found) > 1:
        raise TaskClassAlreadyRegistered(
            f"task class {name!r} exists in {len(found)} bench roots",
            where=", ".join(map(str, found)),
            hint="name one bench root, or rename one class",
        )
    return found[0]


def _read_task_class(name: str, directory: Path, descriptor: int) -> TaskClass:
    _raise_first(entry_problems(entry_kinds(descriptor, LIMITS.class_entries)), directory)

    def read(file: str, limit: int) -> bytes:
        raw = read_plain_file(descriptor, file, limit)
        if raw is None:
            raise UnsafeTree(file, "vanished while the bench was read")
        return raw

    try:
        minimums = read_registration(read("registration.py", LIMITS.python_bytes), name)
        keys = read_breakdown_keys(read("breakdown_keys.py", LIMITS.python_bytes))
        taxonomy = read_taxonomy(read("failure_modes.yaml", LIMITS.yaml_bytes))
        program = read("rubric.py", LIMITS.rubric_tree.file_bytes)
        rubric, rubric_digest = _read_rubric(directory, program)
    except BenchInvalid as error:
        error.where = f"{directory}/{error.where}"
        raise
    modes = {code: spec.model_dump(mode="json") for code, spec in taxonomy.items()}
    return TaskClass(
        name=name,
        directory=directory,
        breakdown_keys=keys,
        taxonomy=dict(taxonomy),
        min_cases_for_promotion=minimums,
        rubric=rubric,
        rubric_digest=rubric_digest,
        taxonomy_digest=digest_json("taxonomy.v1", {"breakdown_keys": keys, "failure_modes": modes}),
    )


def entry_problems(kinds: Mapping[str, str]) -> Iterator[tuple[str, BenchInvalid]]:
    """Yield every entry that a task class lacks, then every entry that does not belong to it."""
    for name in sorted(CLASS_ENTRIES.keys() - _OPTIONAL_ENTRIES - kinds.keys()):
        yield name, BenchInvalid(f"the bench has no {name}", hint="see docs/reference/bench.md")
    for name, kind in sorted(kinds.items()):
        if CLASS_ENTRIES.get(name) != kind:
            problem = f"the bench holds {name!a} ({kind}), which is not part of a bench"
            hint = pycache_hint(name) or "remove it; further modules of the rubric belong in rubric_lib/"
            yield name, BenchInvalid(problem, hint=hint)


def _raise_first(problems: Iterator[tuple[str, BenchInvalid]], where: Path) -> None:
    for _, problem in problems:
        problem.where = str(where)
        raise problem


def _read_rubric(directory: Path, program: bytes) -> tuple[tuple[SourceFile, ...], str]:
    files = [SourceFile(path="rubric.py", executable=False, content=program)]
    library = directory / "rubric_lib"
    if library.is_dir():
        for found in walk_files(library, LIMITS.rubric_tree):
            path = f"rubric_lib/{found.path}"
            files.append(SourceFile(path=path, executable=found.executable, content=found.content()))
    files.sort(key=lambda file: file.path.encode())
    hasher = TreeHasher("rubric.v1")
    for file in files:
        check_reviewable(file.path, file.content)
        hasher.begin(file.path, len(file.content), executable=file.executable)
        hasher.content(file.content)
    _check_compiles(files)
    return tuple(files), hasher.hexdigest()


def _check_compiles(files: Sequence[SourceFile]) -> None:
    """Raise RubricInvalid for a rubric that does not compile: every case would fail by the bench's fault."""
    hint = "correct it; `codegenie eval fence` shows everything that is wrong with the bench"
    for problem in source_problems(python_sources((file.path, file.content) for file in files)):
        where = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
        raise RubricInvalid(f"the rubric {problem.message}", where=where, hint=hint)


def python_sources(files: Iterable[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Return the files of a rubric that an interpreter would compile."""
    return tuple((path, content) for path, content in files if path.endswith(".py"))


def case_directories(cases: Path) -> list[str]:
    """Name the cases of a bench, in order. Raises BenchInvalid if there are other entries among them."""
    with opened_directory(cases) as descriptor:
        kinds = entry_kinds(descriptor, LIMITS.cases + 1)
    kinds.pop("digests.yaml", None)
    _raise_first(case_entry_problems(kinds), cases)
    return sorted(kinds)


def case_entry_problems(kinds: Mapping[str, str]) -> Iterator[tuple[str, BenchInvalid]]:
    """Yield every entry among the cases, except `digests.yaml`, that is not a case directory."""
    for name, kind in sorted(kinds.items()):
        if kind != "directory":
            yield name, BenchInvalid(f"{name!a} lies among the cases and is not a directory")
        elif not re.fullmatch(IDENTIFIER_PATTERN, name):
            hint = pycache_hint(name) or "ids match [a-z0-9][a-z0-9_-]{0,63}"
            yield name, BenchCaseLoadError(f"{name!a} is not a case id", hint=hint)
    if not kinds:
        yield "", BenchInvalid("the bench has no case", hint="a bench without cases measures nothing")


def count_cases(task_class: TaskClass) -> int:
    """Count the case directories, without reading them."""
    cases = task_class.directory / "cases"
    with typed_refusals(cases):
        return len(case_directories(cases))


def read_manifest(cases: Path) -> dict[str, str]:
    """Return case id to digest, without the prefix. Raises DigestManifestInvalid if it cannot be read."""
    where = f"{cases}/digests.yaml"
    with opened_directory(cases) as descriptor:
        raw = read_plain_file(descriptor, "digests.yaml", LIMITS.digests_bytes)
    if raw is None:
        raise DigestManifestInvalid("cases/digests.yaml is missing", where=where, hint=_WRITE_DIGESTS)
    try:
        return read_digests(raw)
    except DigestManifestInvalid as error:
        error.where = f"{cases}/{error.where}"
        raise


def load_cases(task_class: TaskClass, wanted: Callable[[str], bool]) -> tuple[tuple[BenchCase, ...], int]:
    """Load the wanted cases, count all. Raises BenchInvalid, or BenchCaseDigestMismatch if bytes differ."""
    cases = task_class.directory / "cases"
    with typed_refusals(cases):
        directories = case_directories(cases)
        manifest = read_manifest(cases)
        _check_bijection(directories, manifest, cases)
        listed = _ListedCases(task_class.name, cases, frozenset(directories), manifest)
        loaded = []
        size = 0
        for case_id in filter(wanted, directories):
            tree = read_case_tree(cases, case_id)
            size += tree.size
            # Each case has a cap of its own, but sparse files in all of them would be hashed for hours.
            if size > LIMITS.bench_bytes:
                raise BenchInvalid(f"the cases hold more than {LIMITS.bench_bytes} bytes", where=str(cases))
            loaded.append(listed.case(case_id, tree))
    return tuple(loaded), len(directories)


def _check_bijection(directories: list[str], manifest: dict[str, str], cases: Path) -> None:
    where = f"{cases}/digests.yaml"
    for case_id in directories:
        if case_id not in manifest:
            raise DigestManifestInvalid(f"case {case_id!r} has no entry", where=where, hint=_WRITE_DIGESTS)
    for case_id in sorted(manifest.keys() - set(directories)):
        raise DigestManifestInvalid(
            f"the entry {ascii(case_id)[:80]} names a case that does not exist",
            where=where,
            hint=f"restore the case, or {_WRITE_DIGESTS}",
        )


def _misplaced(found: FoundFile) -> UnsafeTree | None:
    """Say why a file does not belong to a case; None if it does."""
    top, below, _ = found.path.partition("/")
    if not (top in _CASE_DIRECTORIES if below else top == "case.toml"):
        return Misplaced(found.path, f"is not part of a case (case.toml, {_CASE_PARTS})")
    # Only the last chunk is parsed, so a case.toml must fit into one chunk.
    if not below and found.size > LIMITS.toml_bytes:
        return UnsafeTree(found.path, f"{found.size} bytes are more than the {LIMITS.toml_bytes} allowed")
    return None


@dataclass(frozen=True, slots=True)
class CaseTree:
    """One pass over a case: its digest, the digest of its input, and the case.toml as it was hashed."""

    digest: str
    input_digest: str
    head: bytes
    size: int
    hint: str | None = None
    """Where a file comes from that a tool and not the author put there."""


def read_case_tree(cases: Path, case_id: str) -> CaseTree:
    """Hash every byte of a case. Raises BenchCaseLoadError if it has no case.toml or breaks the contract."""
    tree = scan_case_tree(cases, case_id)
    if tree is None:
        raise BenchCaseLoadError(f"case {case_id!r} has no case.toml", where=f"{cases}/{case_id}")
    return tree


def scan_case_tree(
    cases: Path, case_id: str, refused: Refusal = stop_at, seen: Seen | None = None
) -> CaseTree | None:
    """Hash a case; None if it has no case.toml. `seen` gets each file, `refused` each entry that is wrong."""
    hasher, given = TreeHasher("case.v1"), TreeHasher("input.v1")
    head: bytes | None = None
    hint: str | None = None
    size = 0
    try:
        for found in walk_files(f"{cases}/{case_id}", LIMITS.case_tree, refused):
            problem = _misplaced(found)
            if problem is not None:
                refused(problem)
                continue
            hashers = (hasher, given) if found.path.startswith("input/") else (hasher,)
            content = _feed(found, hashers, whole=seen is not None)
            head = content if found.path == "case.toml" else head
            size += found.size
            hint = hint or pycache_hint(found.path)
            if seen is not None:
                seen(found, content)
    except UnsafeTree as unsafe:
        raise BenchCaseLoadError(
            f"case {case_id!r}: {unsafe}",
            where=f"{cases}/{case_id}",
            hint=pycache_hint(unsafe.path) or "a case may hold only regular files and directories",
        ) from None
    return None if head is None else CaseTree(hasher.hexdigest(), given.hexdigest(), head, size, hint)


def _feed(found: FoundFile, hashers: tuple[TreeHasher, ...], *, whole: bool) -> bytes:
    """Hash one file and return its last chunk. That is the whole file if it is small or `whole` is set."""
    chunk = b""
    for hasher in hashers:
        hasher.begin(found.path, found.size, executable=found.executable)
    for chunk in (found.content(),) if whole else found.chunks():
        for hasher in hashers:
            hasher.content(chunk)
    return chunk


@dataclass(frozen=True, slots=True)
class _ListedCases:
    """What the bench says about its cases as a whole, by which each of them is checked."""

    task_class: str
    directory: Path
    ids: frozenset[str]
    digests: Mapping[str, str]

    def case(self, case_id: str, tree: CaseTree) -> BenchCase:
        expected = self.digests[case_id]
        if tree.digest != expected:
            mismatch = BenchCaseDigestMismatch(case_id, expected, tree.digest)
            mismatch.hint = tree.hint or mismatch.hint
            raise mismatch
        head = CaseHead(tree.head, tree.digest, tree.input_digest)
        try:
            return inspect_case(head, self.task_class, case_id, self.ids).or_refuse()
        except BenchCaseLoadError as error:
            error.where = f"{self.directory}/{case_id}/{error.where}"
            raise
