"""One run, the chain up to it and its artefacts in one file that a third party can verify (ADR-0017).

A bundle comes from anybody. Nothing is unpacked but the names of a log, each once, as plain files of bounded
size, into a directory of our own; what they hold is then verified like any log.
"""

import errno
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from codegenie.eval.artifacts import ArtifactStore
from codegenie.eval.audit_chain import Link, record_name
from codegenie.eval.errors import DecodingRefused, HarnessFailure, SettingsInvalid
from codegenie.eval.evidence import RunFinished
from codegenie.eval.history import RunEntry
from codegenie.eval.inspection import VerifiedLog, artifact_digests

_MEMBER = re.compile(r"HEAD|[0-9]{8}\.json|artifacts/([0-9a-f]{2})/\1[0-9a-f]{62}")
_MEMBERS = 200_000
_BUNDLE_BYTES = 1024**3
# Records shrink to a tenth or so; a bomb to a thousandth. Small bundles may hold small jokes.
_RATIO = 200
_FREE_BYTES = 64 * 1024**2
_UNPACKED_BYTES = 4 * 1024**3
# Fixed: the same run packs to the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)


def export_run(log: VerifiedLog, entry: RunEntry, target: Path) -> None:
    """Write the chain up to the finish of a run, a HEAD that ends there, and what the run left behind."""
    finished = log.finished(entry)
    target = _checked_target(target, log.directory)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "x") as bundle:
            for name, content in _members(log, entry.finished_index or 0, finished):
                bundle.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
        temporary.replace(target)
    except OSError as error:
        raise HarnessFailure(f"cannot write the bundle: {error.strerror}", where=str(target)) from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _members(log: VerifiedLog, last: int, finished: RunFinished) -> Iterator[tuple[str, bytes]]:
    yield "HEAD", Link(last + 1, log.hashes[last]).encode()
    for index in range(last + 1):
        yield record_name(index), log.raw(index)
    store = ArtifactStore(log.directory / "artifacts")
    for digest in sorted(set(artifact_digests(finished))):
        content = store.read(digest)
        if content is not None:
            yield f"artifacts/{digest[:2]}/{digest}", content


def _checked_target(target: Path, log: Path) -> Path:
    resolved = target.resolve()
    if resolved.is_relative_to(log.resolve()):
        raise SettingsInvalid(
            "a bundle inside the log would break the log",
            where=str(target),
            hint="name another place with -o",
        )
    if resolved.exists() and not resolved.is_file():
        raise SettingsInvalid("the bundle's place is taken by something else than a file", where=str(target))
    return resolved


@contextmanager
def opened_log(path: Path) -> Iterator[Path]:
    """Give the directory of a log: the path itself, or a bundle unpacked by names that we know."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="codegenie-eval-bundle-") as temporary:
        _unpack(path, Path(temporary))
        yield Path(temporary)


def _unpack(path: Path, directory: Path) -> None:
    try:
        size = path.stat().st_size
        if size > _BUNDLE_BYTES:
            raise _refused(path, "is larger than any bundle that we read")
        with path.open("rb") as file, zipfile.ZipFile(file) as bundle:
            members = bundle.infolist()
            _check_members(path, members, size)
            for member in members:
                _unpack_member(bundle, member, directory)
    except _UNREADABLE as error:
        raise _refused(path, f"is not a bundle that we can read: {error}") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # the archive points outside of itself
            raise _refused(path, "is not whole") from None
        raise HarnessFailure(
            f"cannot unpack the bundle: {error.strerror}",
            where=str(path),
            hint="check the space below TMPDIR",
        ) from None


def _refused(path: Path, problem: str) -> DecodingRefused:
    return DecodingRefused(f"the bundle {problem}", where=str(path), hint="ask for it again, or for the log")


def _check_members(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse by the directory of the archive alone, before anything is unpacked."""
    if len(members) > _MEMBERS:
        raise _refused(path, f"holds more than {_MEMBERS} files")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        kind = stat.S_IFMT(member.external_attr >> 16)
        # The name ends at a zero byte, the original one does not.
        if not _MEMBER.fullmatch(member.orig_filename) or kind not in {0, stat.S_IFREG}:
            raise _refused(path, f"holds {ascii(name)[:80]}, which belongs to no log")
        if name in seen:
            raise _refused(path, f"holds {name} twice")
        # The other methods give all that one read unpacks to at once, however much it is.
        if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise _refused(path, f"holds {name}, packed by a method that we do not read")
        seen.add(name)
    most = min(_UNPACKED_BYTES, max(_FREE_BYTES, _RATIO * size))
    if sum(member.file_size for member in members) > most:
        raise _refused(path, "unpacks to far more than a log would")


def _unpack_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    target = directory / member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with bundle.open(member) as source, target.open("xb") as copy:
        # The archive gives no more than it declared, and checks it against its own sum.
        while chunk := source.read(1 << 20):
            copy.write(chunk)
