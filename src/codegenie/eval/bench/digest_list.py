"""Compare the cases of a bench with `cases/digests.yaml`, and write that file again."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codegenie.eval.bench.loading import case_directories, read_case_tree, read_manifest, typed_refusals
from codegenie.eval.canonical import DIGEST_PREFIX
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.models import TaskClass
from codegenie.eval.system.file_writing import replace_file_in
from codegenie.eval.system.files import UnsafeTree, opened_directory

_NAME = "digests.yaml"
DigestStatus = Literal["current", "stale", "missing", "extra"]


@dataclass(frozen=True, slots=True)
class CaseDigest:
    """The digest of one case, compared with its entry in the list."""

    case_id: str
    status: DigestStatus
    expected: str | None
    computed: str | None


def digest_statuses(task_class: TaskClass) -> tuple[CaseDigest, ...]:
    """Compare every case with its entry, without stopping at the first difference."""
    cases = task_class.directory / "cases"
    with typed_refusals(cases):
        directories = case_directories(cases)
        manifest = read_manifest(cases) if os.path.lexists(cases / _NAME) else {}
        statuses = [_digest_status(cases, case_id, manifest.get(case_id)) for case_id in directories]
    extra = sorted(manifest.keys() - set(directories))
    return (*statuses, *(CaseDigest(case_id, "extra", manifest[case_id], None) for case_id in extra))


def _digest_status(cases: Path, case_id: str, expected: str | None) -> CaseDigest:
    computed = read_case_tree(cases, case_id).digest
    status: DigestStatus = "missing" if expected is None else "current" if expected == computed else "stale"
    return CaseDigest(case_id, status, expected, computed)


def write_digests(task_class: TaskClass, statuses: Sequence[CaseDigest]) -> None:
    """Write `cases/digests.yaml` again, from computed digests. Raises HarnessFailure if it cannot."""
    cases = task_class.directory / "cases"
    try:
        with opened_directory(cases) as folder:
            replace_digests(folder, {entry.case_id: entry.computed for entry in statuses if entry.computed})
    except UnsafeTree as unsafe:
        raise HarnessFailure(f"cannot write the digests: {unsafe}", where=str(cases)) from None
    except OSError as error:
        # The name in this error is relative to the open directory, and the reader needs the whole path.
        told = OSError(error.errno, error.strerror, str(cases / _NAME))
        raise HarnessFailure(f"cannot write the digests: {told}") from None


def replace_digests(cases: int, digests: Mapping[str, str]) -> None:
    """Replace `digests.yaml` in the open directory `cases`, never through a link. Raises OSError."""
    lines = (f"{case_id}: {DIGEST_PREFIX}{digest}\n" for case_id, digest in digests.items())
    replace_file_in(cases, _NAME, "".join(lines).encode())
