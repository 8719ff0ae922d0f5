"""The rules for the cases of a task class: names, case.toml, files and digests."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.bench.grammar import CaseHead, digest_lines, inspect_case, inspect_digests
from codegenie.eval.bench.loading import Misplaced, case_entry_problems, scan_case_tree
from codegenie.eval.errors import BenchCaseLoadError, BenchInvalid
from codegenie.eval.execute_steps import EXECUTE
from codegenie.eval.fence.directory_rules import inspect_accidents, inspect_bits, inspect_case_path
from codegenie.eval.fence.execution_rules import inspect_steps
from codegenie.eval.fence.findings import Notes, Spot, shown_name
from codegenie.eval.fence.text_rules import inspect_text
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase
from codegenie.eval.system.files import FoundFile, UnsafeTree, entry_kinds, opened_directory, read_plain_file

_DIGESTS = "cases/digests.yaml"
_LFS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")


@dataclass(frozen=True, slots=True)
class SeenCase:
    """What is known about one case after it was checked."""

    case: BenchCase | None
    digest: str | None
    sound: bool
    """Nothing is wrong with the case, except perhaps its digest."""


_UNREAD = SeenCase(None, None, sound=False)


@dataclass(frozen=True, slots=True)
class SeenCases:
    """The cases of a class by id, and the digests that pin them; None where they cannot be read."""

    cases: Mapping[str, SeenCase]
    manifest: Mapping[str, str] | None
    executable: tuple[str, ...] = ()
    misnamed: int = 0
    """Directories that would be cases if they had another name."""


NO_CASES = SeenCases({}, None)


class CaseInspector:
    """Checks every case of one class in one pass over its bytes."""

    def __init__(self, notes: Notes, directory: Path, name: str) -> None:
        self._notes = notes
        self._cases = directory / "cases"
        self._name = name
        self._accidents: list[str] = []

    def inspect(self) -> SeenCases:
        """Check everything below `cases/`; the digests come last."""
        try:
            kinds = self._kinds()
        except UnsafeTree as unsafe:
            self._notes.add_unsafe(unsafe, "cases")
            return NO_CASES
        wrong = dict(case_entry_problems(kinds))
        for name, problem in wrong.items():
            path = "/".join(filter(None, ("cases", shown_name(name))))
            self._notes.add(_rule_against(problem, kinds.get(name)), path, problem.message, problem.hint)
        ids = frozenset(kinds.keys() - wrong.keys())
        seen = {case_id: self._inspect_case(case_id, ids) for case_id in sorted(ids)}
        inspect_accidents(self._notes, self._accidents)
        manifest, executable = self._inspect_manifest(seen)
        misnamed = sum(isinstance(problem, BenchCaseLoadError) for problem in wrong.values())
        return SeenCases(seen, manifest, executable, misnamed)

    def _kinds(self) -> dict[str, str]:
        with opened_directory(self._cases) as descriptor:
            kinds = entry_kinds(descriptor, LIMITS.cases + 1)
        kinds.pop("digests.yaml", None)
        return kinds

    def _inspect_case(self, case_id: str, ids: frozenset[str]) -> SeenCase:
        folder = f"cases/{case_id}"
        before = self._notes.total()
        left_out: list[str] = []
        for_steps: dict[str, bytes] = {}

        def refused(unsafe: UnsafeTree) -> None:
            left_out.append(unsafe.path)
            self._notes.add_unsafe(unsafe, folder, "F002" if isinstance(unsafe, Misplaced) else "F003")

        def seen(found: FoundFile, content: bytes) -> None:
            self._inspect_file(found, f"{folder}/{found.path}", content)
            if found.path.startswith(EXECUTE):
                for_steps[found.path] = content

        try:
            tree = scan_case_tree(self._cases, case_id, refused, seen)
        except BenchCaseLoadError as error:
            self._notes.add("F003", folder, error.message, error.hint)
            return _UNREAD
        if tree is None:
            if "case.toml" not in left_out:
                self._notes.add("F001", folder, f"case {case_id!r} has no case.toml")
            return _UNREAD
        whole = self._notes.total() == before
        head = CaseHead(tree.head, tree.digest, tree.input_digest)
        reading = inspect_case(head, self._name, case_id, ids)
        for problem in reading.problems:
            self._notes.add_problem("F051", problem, folder)
        if reading.value is not None and inspect_steps(self._notes, reading.value, for_steps):
            whole = False
        # If files were left out, the digest of the rest says nothing about the case.
        digest = None if left_out else tree.digest
        return SeenCase(reading.value, digest, sound=whole and not reading.problems)

    def _inspect_file(self, found: FoundFile, path: str, content: bytes) -> None:
        if inspect_case_path(self._notes, path):
            self._accidents.append(path)
        if found.path == "case.toml" and found.executable:
            fix = "remove the bit with chmod -x, and write the digest of the case again"
            self._notes.add("F006", path, "is marked as executable", fix)
        if content.startswith(_LFS):
            self._notes.add("F052", Spot(path, 1), "is a Git LFS pointer, not the file itself")
        inspect_text(self._notes, path, content, required=False)

    def _inspect_manifest(
        self, seen: Mapping[str, SeenCase]
    ) -> tuple[dict[str, str] | None, tuple[str, ...]]:
        try:
            raw, executable = self._read_manifest()
        except UnsafeTree as unsafe:
            self._notes.add_unsafe(unsafe, "cases")
            return None, ()
        if raw is None:
            self._notes.add("F062", _DIGESTS, "cases/digests.yaml is missing")
            return {}, ()
        inspect_text(self._notes, _DIGESTS, raw, required=False)
        reading = inspect_digests(raw)
        for problem in reading.problems:
            self._notes.add_problem("F060", problem, "cases")
        manifest = reading.value or {}
        if not reading.problems or manifest:
            self._compare(seen, manifest, raw, whole=not reading.problems)
        return (None if reading.problems else manifest), ((_DIGESTS,) if executable else ())

    def _read_manifest(self) -> tuple[bytes | None, bool]:
        with opened_directory(self._cases) as descriptor:
            raw = read_plain_file(descriptor, "digests.yaml", LIMITS.digests_bytes)
            return raw, inspect_bits(self._notes, descriptor, "digests.yaml", _DIGESTS)

    def _compare(
        self, seen: Mapping[str, SeenCase], manifest: Mapping[str, str], raw: bytes, *, whole: bool
    ) -> None:
        lines: dict[str, int] | None = None
        for case_id in sorted(seen.keys() | manifest.keys()):
            entry, case = manifest.get(case_id), seen.get(case_id)
            digest = case.digest if case else None
            if case and (digest is None or digest == entry):
                continue
            lines = digest_lines(raw) if lines is None else lines
            spot = Spot(_DIGESTS, lines.get(case_id))
            if case is None:
                self._notes.add("F063", spot, f"the entry {case_id[:80]!a} names a case that does not exist")
            elif entry is None and whole:
                self._notes.add("F062", spot, f"case {case_id!r} has no entry")
            elif entry is not None:
                message = f"case {case_id!r} has changed: its digest is {digest}, not {entry}"
                self._notes.add("F061", spot, message)


def _rule_against(problem: BenchInvalid, kind: str | None) -> str:
    """Return the rule that an entry of this kind among the cases breaks; no kind means that it is missing."""
    if isinstance(problem, BenchCaseLoadError):
        return "F050"
    if kind is None:
        return "F040"
    return "F003" if kind == "other" else "F002"
