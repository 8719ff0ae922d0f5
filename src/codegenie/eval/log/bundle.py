"""One run, its whole chain and its artefacts in one file that a third party can verify (ADR-0017).

A bundle may come from an attacker. Only names that occur in a log are unpacked, each once, as plain files of
bounded size, into a private directory. Their contents are then verified like those of any log.
"""

import errno
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codegenie.eval.errors import DecodingRefused, HarnessFailure, SettingsInvalid
from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.log.chain import Link, record_name
from codegenie.eval.log.reading import VerifiedLog, artifact_digests
from codegenie.eval.log.records import RunFinished
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.system.run_directory import run_directory

_MEMBER = re.compile(r"HEAD|[0-9]{8}\.json|artifacts/([0-9a-f]{2})/\1[0-9a-f]{62}")
_MEMBERS = 200_000
_DIRECTORY_ENTRY = b"PK\x01\x02"
# An entry has 46 bytes and a name of at most 77 bytes.
_DIRECTORY_BYTES = _MEMBERS * 128
_BUNDLE_BYTES = 1024**3
# Records shrink to about a tenth, a zip bomb to a thousandth. Small bundles may exceed the ratio.
_RATIO = 200
_FREE_BYTES = 64 * 1024**2
# Records are read as a whole, which takes about twenty times their size, so fewer bytes are free. Records of
# a real log shrink to a fifth. A run of 5,000 trials in which the agent always fails has 2 MB.
_RECORD_RATIO = 32
_FREE_RECORD_BYTES = 24 * 1024**2
_UNPACKED_BYTES = 4 * 1024**3
# A fixed date, so that the same run always packs to the same bytes.
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
    """Write the whole chain and the artefacts of the run.

    The chain does not end at the run: such a bundle would hide every later look at the same agent. Raises
    NotMeasured if the run has not finished, SettingsInvalid if `target` is not allowed, and HarnessFailure
    if it cannot be written.
    """
    finished = log.finished(entry)
    target = _checked_target(target, log.directory)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "x") as bundle:
            for name, content in _members(log, finished):
                bundle.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
        temporary.replace(target)
    except OSError as error:
        raise HarnessFailure(f"cannot write the bundle: {error.strerror}", where=str(target)) from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _members(log: VerifiedLog, finished: RunFinished) -> Iterator[tuple[str, bytes]]:
    count = len(log.hashes)
    yield "HEAD", Link(count, log.hashes[count - 1]).encode()
    for index in range(count):
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
            "a bundle inside the log's directory would break the log",
            where=str(target),
            hint="name another place with -o",
        )
    if resolved.exists() and not resolved.is_file():
        raise SettingsInvalid("the path of the bundle exists and is not a file", where=str(target))
    return resolved


@contextmanager
def opened_log(path: Path) -> Iterator[Path]:
    """Yield the directory of a log: the path itself, or an unpacked bundle.

    Raises DecodingRefused if the bundle is not one that we write, and HarnessFailure if it cannot be read.
    """
    if not path.is_file():
        yield path
        return
    with run_directory() as directory:
        _unpack(path, directory)
        yield directory


def _unpack(path: Path, directory: Path) -> None:
    try:
        size = path.stat().st_size
        if size > _BUNDLE_BYTES:
            raise _refused(path, "is larger than a bundle may be")
        with _BundleFile(path) as file, zipfile.ZipFile(file) as bundle:
            members = bundle.infolist()
            _check_members(path, members, size)
            for member in members:
                _unpack_member(bundle, member, directory)
    except _UNREADABLE as error:
        raise _refused(path, f"is not a bundle that we can read: {error}") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # the archive points outside of itself
            raise _refused(path, "is not complete") from None
        raise HarnessFailure(
            f"cannot unpack the bundle: {error.strerror}",
            where=str(path),
            hint="check the space below TMPDIR",
        ) from None


class _BundleFile(io.FileIO):
    """A bundle whose zip directory is counted on reading: zipfile makes an object for each entry at once.

    The count covers exactly the bytes that zipfile reads as the directory, so both always agree on where the
    directory is.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and refuse a read that can only be the directory of far too many files."""
        if size is not None and size > _DIRECTORY_BYTES:
            raise zipfile.BadZipFile("its table of contents is larger than that of a bundle may be")
        raw = super().read(-1 if size is None else size) or b""
        if raw.count(_DIRECTORY_ENTRY) > _MEMBERS:
            raise zipfile.BadZipFile(f"it holds more than {_MEMBERS} files")
        return raw


def _refused(path: Path, problem: str) -> DecodingRefused:
    return DecodingRefused(
        f"the bundle {problem}", where=str(path), hint="ask its sender for it again, or for the log"
    )


def _check_members(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    """Check the directory of the archive before anything is unpacked, or raise DecodingRefused."""
    seen: set[str] = set()
    for member in members:
        name = member.filename
        kind = stat.S_IFMT(member.external_attr >> 16)
        # The sender controls two names: one ends at a zero byte, and from Python 3.12 on an extra field can
        # replace it by any path.
        if name != member.orig_filename or not _MEMBER.fullmatch(name) or kind not in {0, stat.S_IFREG}:
            raise _refused(path, f"holds {ascii(name)[:80]}, which is not part of a log")
        if name in seen:
            raise _refused(path, f"holds {name} twice")
        # With the other methods a single read returns everything that it unpacks to, however much that is.
        if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise _refused(path, f"holds {name}, packed by a method that codegenie does not read")
        seen.add(name)
    records = sum(member.file_size for member in members if member.filename.endswith(".json"))
    unpacked = sum(member.file_size for member in members)
    if records > max(_FREE_RECORD_BYTES, _RECORD_RATIO * size) or unpacked > min(
        _UNPACKED_BYTES, max(_FREE_BYTES, _RATIO * size)
    ):
        raise _refused(path, "unpacks to far more than a log can hold")


def _unpack_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    target = directory / member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with bundle.open(member) as source, target.open("xb") as copy:
        # zipfile returns at most the declared size and checks the content against its checksum.
        while chunk := source.read(1 << 20):
            copy.write(chunk)
