"""Check one or several task classes and return findings. All files are read, and none is run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.bench.grammar import (
    COMPILED_CODE,
    Problem,
    inspect_breakdown_keys,
    inspect_registration,
    inspect_taxonomy,
    pycache_hint,
)
from codegenie.eval.bench.loading import CLASS_ENTRIES, python_sources
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.fence.case_rules import NO_CASES, CaseInspector, SeenCases
from codegenie.eval.fence.directory_rules import inspect_bits, inspect_entries, inspect_root
from codegenie.eval.fence.execution_rules import inspect_rubric
from codegenie.eval.fence.findings import Finding, Notes, Spot
from codegenie.eval.fence.targets import Target, find_targets, is_class_name
from codegenie.eval.fence.text_rules import inspect_text, is_plain_text
from codegenie.eval.fence.tier_rules import inspect_counts, inspect_tiers
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.compiling import source_problems
from codegenie.eval.system.files import UnsafeTree, entry_kinds, opened_directory, read_plain_file, walk_files

_FILES = {
    "registration.py": LIMITS.python_bytes,
    "breakdown_keys.py": LIMITS.python_bytes,
    "failure_modes.yaml": LIMITS.yaml_bytes,
    "rubric.py": LIMITS.rubric_tree.file_bytes,
    # The loader does not read it, but a reviewer does.
    "README.md": LIMITS.rubric_tree.file_bytes,
}
_MUST_BE_TEXT = {"rubric.py", "README.md"}
# Problems that have a rule of their own, whatever the file. All others break the form of their file.
_RULE_OF_TOPIC: Mapping[str, str] = {"banned_word": "F021", "runner_code": "F031"}


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What was found in one task class, and what `--fix` needs to know about it."""

    directory: Path
    shown: str
    findings: tuple[Finding, ...]
    seen: SeenCases
    executable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FenceReport:
    """What was found in all classes that were checked."""

    classes: tuple[ClassReport, ...]
    beside: tuple[Finding, ...]
    """Findings about entries of a bench root that are not task classes."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return every finding, in order of place."""
        return (*self.beside, *(finding for report in self.classes for finding in report.findings))

    @property
    def case_count(self) -> int:
        """Return how many cases were checked."""
        return sum(len(report.seen.cases) for report in self.classes)


def inspect_paths(paths: Sequence[str | Path]) -> FenceReport:
    """Check bench roots, task classes, or the classes that the given files belong to.

    Raises TaskClassNotFound if a path belongs to no class, and HarnessFailure if the machine cannot read it.
    """
    found = find_targets(paths)
    beside: list[Finding] = []
    for root in found.roots:
        notes = Notes(root.shown)
        with _typed_failures(root.directory):
            inspect_root(notes, root.kinds)
        beside += notes.findings()
    names = Counter(target.directory.name for target in found.classes)
    reports = [inspect_class(target, twice=names[target.directory.name] > 1) for target in found.classes]
    return FenceReport(tuple(reports), tuple(beside))


@contextmanager
def _typed_failures(where: Path) -> Iterator[None]:
    """Raise HarnessFailure for problems of the machine: no descriptors, no memory, a failing disk."""
    try:
        yield
    except OSError as error:
        raise HarnessFailure(f"cannot read the bench: {error.strerror}", where=str(where)) from None


def inspect_class(target: Target, *, twice: bool = False) -> ClassReport:
    """Check one task class; `twice` says that another class of this name is checked too."""
    notes = Notes(target.shown)
    if twice:
        notes.add("F009", "", f"the task class {target.directory.name!a} is here twice")
    inspector = _ClassInspector(notes, target.directory)
    with _typed_failures(target.directory):
        seen = inspector.inspect()
    executable = (*inspector.executable, *seen.executable)
    return ClassReport(target.directory, target.shown, notes.findings(), seen, executable)


class _ClassInspector:
    """Checks the files of one class, then its cases, then both together."""

    def __init__(self, notes: Notes, directory: Path) -> None:
        self._notes = notes
        self._directory = directory
        self._name = directory.name
        self.executable: list[str] = []

    def inspect(self) -> SeenCases:
        try:
            with opened_directory(self._directory) as descriptor:
                kinds = entry_kinds(descriptor, LIMITS.class_entries)
                return self._inspect(descriptor, kinds)
        except UnsafeTree as unsafe:
            self._notes.add_unsafe(unsafe, "")
            return NO_CASES

    def _inspect(self, descriptor: int, kinds: dict[str, str]) -> SeenCases:
        if not is_class_name(self._name):
            self._notes.add("F008", "", f"{self._name[:80]!a} is not the name of a task class")
        inspect_entries(self._notes, kinds)
        as_wanted = {name for name, kind in kinds.items() if CLASS_ENTRIES.get(name) == kind}
        files = {name: self._read(descriptor, name) for name in _FILES if name in as_wanted}
        minimums = self._inspect_grammar(files)
        library = self._inspect_library() if "rubric_lib" in as_wanted else []
        # A rubric that cannot be read has a finding already, and there is nothing to compile.
        rubric = files.get("rubric.py")
        self._inspect_sources([*([] if rubric is None else [("rubric.py", rubric)]), *library])
        if "cases" not in as_wanted:
            return NO_CASES
        seen = CaseInspector(self._notes, self._directory, self._name).inspect()
        where = _place_of_minimums(files.get("registration.py") or b"")
        inspect_counts(self._notes, where, minimums, len(seen.cases) + seen.misnamed)
        inspect_tiers(self._notes, where, minimums, [one.case for one in seen.cases.values()])
        return seen

    def _read(self, descriptor: int, name: str) -> bytes | None:
        try:
            raw = read_plain_file(descriptor, name, _FILES[name])
        except UnsafeTree as unsafe:
            self._notes.add_unsafe(unsafe, "")
            return None
        if raw is None:
            self._notes.add("F003", name, "vanished while the bench was read")
            return None
        if inspect_bits(self._notes, descriptor, name, name):
            self.executable.append(name)
        inspect_text(self._notes, name, raw, required=name in _MUST_BE_TEXT)
        return raw

    def _inspect_grammar(self, files: dict[str, bytes | None]) -> dict[str, int]:
        minimums: dict[str, int] = {}
        if (raw := files.get("registration.py")) is not None:
            registration = inspect_registration(raw, self._name)
            minimums = registration.value or {}
            self._add_all(registration.problems, "F010")
        if (raw := files.get("breakdown_keys.py")) is not None:
            self._add_all(inspect_breakdown_keys(raw).problems, "F020")
        if (raw := files.get("failure_modes.yaml")) is not None:
            self._add_all(inspect_taxonomy(raw).problems, "F030")
        return minimums

    def _add_all(self, problems: Sequence[Problem], form: str) -> None:
        """Add problems of one file: by the rule of their topic, or by the rule about the form of the file."""
        for problem in problems:
            self._notes.add_problem(_RULE_OF_TOPIC.get(problem.topic, form), problem)

    def _inspect_sources(self, files: Sequence[tuple[str, bytes]]) -> None:
        # A file that is not text, or that declares another encoding, already has a finding.
        texts = [(path, raw) for path, raw in files if is_plain_text(raw)]
        sources = python_sources(texts)
        for problem in source_problems(sources):
            self._notes.add("F011", Spot(problem.path, problem.line), problem.message)
        library = {path.split("/")[1].removesuffix(".py") for path, _ in sources if "/" in path}
        for path, raw in sources:
            inspect_rubric(self._notes, path, raw.decode(), library)

    def _inspect_library(self) -> list[tuple[str, bytes]]:
        library = self._directory / "rubric_lib"
        read: list[tuple[str, bytes]] = []

        def refused(unsafe: UnsafeTree) -> None:
            self._notes.add_unsafe(unsafe, "rubric_lib")

        try:
            for found in walk_files(library, LIMITS.rubric_tree, refused):
                path = f"rubric_lib/{found.path}"
                if COMPILED_CODE.search(path):
                    self._notes.add("F007", path, "is compiled code", pycache_hint(path))
                    continue
                if found.executable:
                    self._notes.add("F006", path, "is marked as executable")
                    self.executable.append(path)
                read.append((path, found.content()))
                inspect_text(self._notes, *read[-1], required=True)
        except UnsafeTree as unsafe:
            self._notes.add_unsafe(unsafe, "rubric_lib")
        return read


def _place_of_minimums(registration: bytes) -> Spot:
    before, found, _ = registration.partition(b"min_cases_for_promotion")
    return Spot("registration.py", before.count(b"\n") + 1 if found else None)
