"""What `--fix` repairs: digests of cases that are otherwise sound, and executable bits. Nothing else.

Everything is opened by descriptor, from the class downwards and never through a link. Only files that the
class itself holds are changed.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from codegenie.eval.bench.digest_list import replace_digests
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.fence.linting import ClassReport
from codegenie.eval.system.files import UnsafeTree, open_directory, open_plain_file

_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def fix_classes(reports: Iterable[ClassReport]) -> tuple[str, ...]:
    """Repair what can be repaired automatically; return one line for each repair."""
    return tuple(line for report in reports for line in _fix_class(report))


def _fix_class(report: ClassReport) -> Iterator[str]:
    try:
        for path in report.executable:
            yield from _take_bits(report, path)
        yield from _renew_digests(report)
    except UnsafeTree as unsafe:
        raise HarnessFailure(f"not fixed: {unsafe}", where=str(report.directory)) from None
    except OSError as error:
        raise HarnessFailure(f"cannot fix: {error.strerror}", where=str(report.directory)) from None


@contextmanager
def _folder(report: ClassReport, parts: list[str]) -> Iterator[int]:
    """Open a directory of the class, one step at a time."""
    descriptor = open_directory(report.directory)
    try:
        for part in parts:
            inner = open_directory(part, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _take_bits(report: ClassReport, path: str) -> Iterator[str]:
    *folders, name = path.split("/")
    with _folder(report, folders) as folder, open_plain_file(folder, name) as descriptor:
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_EXECUTABLE)
    yield f"{_shown(report, path)}: is no longer executable"


def _renew_digests(report: ClassReport) -> Iterator[str]:
    """Write the digests of sound cases. An unsound case keeps its entry; entries without a case go."""
    before, cases = report.seen.manifest, report.seen.cases
    if before is None or not cases:
        return
    after = {
        case_id: case.digest if case.sound and case.digest else before.get(case_id)
        for case_id, case in sorted(cases.items())
    }
    kept = {case_id: digest for case_id, digest in after.items() if digest}
    if kept == dict(before):
        return
    with _folder(report, ["cases"]) as folder:
        replace_digests(folder, kept)
    where = _shown(report, "cases/digests.yaml")
    for case_id in sorted(kept.keys() | before.keys()):
        old, new = before.get(case_id), kept.get(case_id)
        if old != new:
            yield f"{where}: {case_id[:80]}: {old or 'no entry'} is now {new or 'no entry'}"


def _shown(report: ClassReport, path: str) -> str:
    return "/".join(filter(None, (report.shown, path)))
