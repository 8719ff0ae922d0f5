"""Disk to TaskClass and BenchCase: capped, no link followed, digests checked, nothing executed."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from codegenie.eval.bench_grammar import read_breakdown_keys, read_digests, read_registration, read_taxonomy
from codegenie.eval.canonical import DIGEST_PREFIX, TreeHasher, digest_json
from codegenie.eval.decoding import decode_toml
from codegenie.eval.errors import (
    BenchCaseDigestMismatch,
    BenchCaseIDCollision,
    BenchCaseLoadError,
    BenchInvalid,
    DecodingRefused,
    DigestManifestInvalid,
    HarnessFailure,
    TaskClassAlreadyRegistered,
    TaskClassNotFound,
)
from codegenie.eval.files import (
    FoundFile,
    UnsafeTree,
    entry_kinds,
    open_directory,
    read_plain_file,
    replace_file,
    walk_files,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IDENTIFIER_PATTERN, BenchCase, SourceFile, TaskClass

BenchRoot = str | Path | Sequence[str | Path]
DigestStatus = Literal["current", "stale", "missing", "extra"]

_CLASS_ENTRIES = {
    "registration.py": "file",
    "rubric.py": "file",
    "rubric_lib": "directory",
    "breakdown_keys.py": "file",
    "failure_modes.yaml": "file",
    "README.md": "file",
    "cases": "directory",
}
_OPTIONAL_ENTRIES = {"rubric_lib", "README.md"}
_CASE_DIRECTORIES = {"input", "expected", "solution"}
_COMPILED = re.compile(r"(^|/)__pycache__/|\.(pyc|pyo|so|pyd|dylib)$")
_WRITE_DIGESTS = "write it with `codegenie eval digest TASK_CLASS --write`"


@contextmanager
def _typed_refusals(where: Path) -> Iterator[None]:
    """Give what the ground refuses the type of this room: the bench's fault, or our own."""
    try:
        yield
    except UnsafeTree as unsafe:
        raise BenchInvalid(
            str(unsafe), where=str(where), hint="a bench is regular files and directories"
        ) from None
    except OSError as error:
        raise HarnessFailure(f"cannot read the bench: {error.strerror}", where=str(where)) from None


def bench_roots(bench_root: BenchRoot) -> tuple[Path, ...]:
    """Return the given roots as absolute paths, each once."""
    given = [bench_root] if isinstance(bench_root, str | Path) else list(bench_root)
    if not all(map(str, given)):
        raise TaskClassNotFound("a bench root is the empty string", hint="name one with --bench-root")
    try:
        return tuple(dict.fromkeys(Path(root).absolute() for root in given))
    except OSError as error:
        raise TaskClassNotFound(
            f"the working directory cannot be used: {error.strerror}",
            hint="go to one that exists, or give --bench-root as an absolute path",
        ) from None


def task_class_names(bench_root: BenchRoot) -> tuple[str, ...]:
    """Name every directory of the roots that could be a task class, sorted, a name in two roots twice."""
    names = []
    for root in bench_roots(bench_root):
        # `os.path.isdir` and not `Path.is_dir`, which raises for a path that is too long or locked away.
        if not os.path.isdir(root):
            raise TaskClassNotFound(
                f"there is no bench root {str(root)!r}", hint="name one with --bench-root"
            )
        try:
            names += [name for name in os.listdir(root) if _could_be_class(root / name)]
        except OSError as error:
            raise TaskClassNotFound(
                f"the bench root cannot be listed: {error.strerror}", where=str(root)
            ) from None
    return tuple(sorted(names))


def _could_be_class(path: Path) -> bool:
    return os.path.isdir(path) and not path.name.startswith(".")


def load_task_class(name: str, *, bench_root: BenchRoot = "bench") -> TaskClass:
    """Load one bench without running any of it; every refusal is typed and names file and line."""
    directory = _find(name, bench_roots(bench_root))
    with _typed_refusals(directory):
        descriptor = open_directory(directory)
        try:
            return _read_task_class(name, directory, descriptor)
        finally:
            os.close(descriptor)


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
    _check_entries(directory, entry_kinds(descriptor, LIMITS.class_entries))

    def read(file: str, limit: int) -> bytes:
        raw = read_plain_file(descriptor, file, limit)
        if raw is None:
            raise UnsafeTree(file, "vanished while the bench was read")
        return raw

    try:
        minimums = read_registration(read("registration.py", LIMITS.python_bytes), name)
        keys = read_breakdown_keys(read("breakdown_keys.py", LIMITS.python_bytes))
        taxonomy = read_taxonomy(read("failure_modes.yaml", LIMITS.yaml_bytes))
    except BenchInvalid as error:
        error.where = f"{directory}/{error.where}"
        raise
    rubric, rubric_digest = _read_rubric(directory, read("rubric.py", LIMITS.rubric_tree.file_bytes))
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


def _check_entries(directory: Path, kinds: dict[str, str]) -> None:
    for name in sorted(_CLASS_ENTRIES.keys() - _OPTIONAL_ENTRIES - kinds.keys()):
        raise BenchInvalid(
            f"the bench has no {name}", where=str(directory), hint="see docs/reference/bench.md"
        )
    for name, kind in sorted(kinds.items()):
        if _CLASS_ENTRIES.get(name) != kind:
            raise BenchInvalid(
                f"the bench holds {name!a} ({kind}), which is not part of a bench",
                where=str(directory),
                hint="remove it; further modules of the rubric belong in rubric_lib/",
            )


def _read_rubric(directory: Path, program: bytes) -> tuple[tuple[SourceFile, ...], str]:
    files = [SourceFile(path="rubric.py", executable=False, content=program)]
    library = directory / "rubric_lib"
    if library.is_dir():
        for found in walk_files(library, LIMITS.rubric_tree):
            path = f"rubric_lib/{found.path}"
            if _COMPILED.search(path):
                raise UnsafeTree(path, "is compiled code, which nobody can review; remove it")
            files.append(SourceFile(path=path, executable=found.executable, content=found.content()))
    files.sort(key=lambda file: file.path.encode())
    hasher = TreeHasher("rubric.v1")
    for file in files:
        hasher.begin(file.path, len(file.content), executable=file.executable)
        hasher.content(file.content)
    return tuple(files), hasher.hexdigest()


def _case_directories(cases: Path) -> list[str]:
    descriptor = open_directory(cases)
    try:
        kinds = entry_kinds(descriptor, LIMITS.cases + 1)
    finally:
        os.close(descriptor)
    kinds.pop("digests.yaml", None)
    for name, kind in sorted(kinds.items()):
        if kind != "directory":
            raise BenchInvalid(f"{name!a} lies among the cases and is no directory", where=str(cases))
        if not re.fullmatch(IDENTIFIER_PATTERN, name):
            raise BenchCaseLoadError(
                f"{name!a} is not a case id", where=str(cases), hint="ids match [a-z0-9][a-z0-9_-]{0,63}"
            )
    if not kinds:
        raise BenchInvalid(
            "the bench has no case", where=str(cases), hint="a bench without cases measures nothing"
        )
    return sorted(kinds)


def count_cases(task_class: TaskClass) -> int:
    """Count the case directories, without reading them."""
    cases = task_class.directory / "cases"
    with _typed_refusals(cases):
        return len(_case_directories(cases))


def _read_manifest(cases: Path) -> dict[str, str]:
    """Return case id to digest, without the prefix."""
    where = f"{cases}/digests.yaml"
    descriptor = open_directory(cases)
    try:
        raw = read_plain_file(descriptor, "digests.yaml", LIMITS.digests_bytes)
    finally:
        os.close(descriptor)
    if raw is None:
        raise DigestManifestInvalid("cases/digests.yaml is missing", where=where, hint=_WRITE_DIGESTS)
    try:
        return read_digests(raw)
    except DigestManifestInvalid as error:
        error.where = where
        raise


def load_cases(task_class: TaskClass, wanted: Callable[[str], bool]) -> tuple[tuple[BenchCase, ...], int]:
    """Load and digest-check the cases that are wanted; also return how many there are in all."""
    cases = task_class.directory / "cases"
    with _typed_refusals(cases):
        directories = _case_directories(cases)
        manifest = _read_manifest(cases)
        _check_bijection(directories, manifest, cases)
        names = frozenset(directories)
        loaded = [
            _load_case(task_class.name, cases, case_id, (names, manifest[case_id]))
            for case_id in directories
            if wanted(case_id)
        ]
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


def _check_case_entry(path: str) -> None:
    top, below, _ = path.partition("/")
    if (top not in _CASE_DIRECTORIES) if below else (top != "case.toml"):
        raise UnsafeTree(path, "is not part of a case (case.toml, input/, expected/, solution/)")


@dataclass(frozen=True, slots=True)
class CaseTree:
    """One pass over a case: the digest of all of it, that of its input, and the case.toml that was hashed."""

    digest: str
    input_digest: str
    head: bytes


def read_case_tree(cases: Path, case_id: str) -> CaseTree:
    """Hash every byte of a case."""
    hasher, given = TreeHasher("case.v1"), TreeHasher("input.v1")
    head: bytes | None = None
    try:
        for found in walk_files(f"{cases}/{case_id}", LIMITS.case_tree):
            _check_case_entry(found.path)
            hashers = (hasher, given) if found.path.startswith("input/") else (hasher,)
            content = _feed(found, hashers)
            head = content if found.path == "case.toml" else head
    except UnsafeTree as unsafe:
        raise BenchCaseLoadError(
            f"case {case_id!r}: {unsafe}",
            where=f"{cases}/{case_id}",
            hint="a case is regular files and directories",
        ) from None
    if head is None:
        raise BenchCaseLoadError(f"case {case_id!r} has no case.toml", where=f"{cases}/{case_id}")
    return CaseTree(hasher.hexdigest(), given.hexdigest(), head)


def _feed(found: FoundFile, hashers: tuple[TreeHasher, ...]) -> bytes:
    """Hash one file and return the last chunk of it, which is all of it where it is small."""
    chunk = b""
    for hasher in hashers:
        hasher.begin(found.path, found.size, executable=found.executable)
    for chunk in found.chunks():
        for hasher in hashers:
            hasher.content(chunk)
    return chunk


def _load_case(task_class: str, cases: Path, case_id: str, known: tuple[frozenset[str], str]) -> BenchCase:
    names, expected = known
    tree = read_case_tree(cases, case_id)
    if tree.digest != expected:
        raise BenchCaseDigestMismatch(case_id, expected, tree.digest)
    where = f"{cases}/{case_id}/case.toml"
    try:
        fields = decode_toml(tree.head)
    except DecodingRefused as refusal:
        raise BenchCaseLoadError(f"case {case_id!r}: {refusal.message}", where=where) from None
    claimed = fields.get("case_id")
    if claimed != case_id:
        collides = isinstance(claimed, str) and claimed in names
        kind = BenchCaseIDCollision if collides else BenchCaseLoadError
        raise kind(f"case_id is {ascii(claimed)[:80]}, but the directory is {case_id!r}", where=where)
    if fields.get("task_class") != task_class:
        raise BenchCaseLoadError(
            f"case {case_id!r} says task_class = {ascii(fields.get('task_class'))[:80]}, not {task_class!r}",
            where=where,
        )
    return _case_record(fields, tree, where)


def _case_record(fields: dict[str, Any], tree: CaseTree, where: str) -> BenchCase:
    if fields.keys() & {"digest", "input_digest"}:
        raise BenchCaseLoadError("digest: is computed, not declared", where=where)
    try:
        return BenchCase(
            **{
                "family": fields["case_id"],
                **fields,
                "digest": tree.digest,
                "input_digest": tree.input_digest,
            }
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(ascii(part).strip("'")[:80] for part in problem["loc"])
        raise BenchCaseLoadError(
            f"{place or 'case'}: {problem['msg']}",
            where=where,
            hint="see docs/reference/bench.md for the fields",
        ) from None


@dataclass(frozen=True, slots=True)
class CaseDigest:
    """How the bytes of one case stand to its entry."""

    case_id: str
    status: DigestStatus
    expected: str | None
    computed: str | None


def digest_statuses(task_class: TaskClass) -> tuple[CaseDigest, ...]:
    """Compare every case with its entry, without stopping at the first difference."""
    cases = task_class.directory / "cases"
    with _typed_refusals(cases):
        directories = _case_directories(cases)
        manifest = _read_manifest(cases) if os.path.lexists(cases / "digests.yaml") else {}
        statuses = [_digest_status(cases, case_id, manifest.get(case_id)) for case_id in directories]
    extra = sorted(manifest.keys() - set(directories))
    return (*statuses, *(CaseDigest(case_id, "extra", manifest[case_id], None) for case_id in extra))


def _digest_status(cases: Path, case_id: str, expected: str | None) -> CaseDigest:
    computed = read_case_tree(cases, case_id).digest
    status: DigestStatus = "missing" if expected is None else "current" if expected == computed else "stale"
    return CaseDigest(case_id, status, expected, computed)


def write_digests(task_class: TaskClass, statuses: Sequence[CaseDigest]) -> None:
    """Write `cases/digests.yaml` anew from computed digests."""
    lines = [f"{entry.case_id}: {DIGEST_PREFIX}{entry.computed}\n" for entry in statuses if entry.computed]
    replace_file(task_class.directory / "cases" / "digests.yaml", "".join(lines).encode())
