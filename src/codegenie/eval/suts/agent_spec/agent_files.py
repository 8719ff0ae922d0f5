"""The files that a sut.toml brings along: hashed while they are packed, so what is hashed is what runs."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from codegenie.eval.canonical import TreeHasher
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.files import (
    FoundFile,
    UnsafeTree,
    open_plain_file,
    opened_directory,
    read_whole_file,
    walk_files,
)
from codegenie.eval.system.packed_tree import Packer

_HOME_FILE_BYTES = 1024 * 1024
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """The descriptor of a parcel for /agent, and the digest of what is in it."""

    descriptor: int
    digest: str


@contextmanager
def packed_agent_files(spec: AgentSpec, directory: Path) -> Iterator[PackedFiles]:
    """Give the files of a spec as a parcel. Raises SutSpecInvalid for links, pipes and large trees."""
    hasher = TreeHasher("agent-files.v1")
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        made: set[str] = set()
        try:
            for found in _all_files(spec, directory):
                _pack(found, packer, hasher, made)
        except UnsafeTree as unsafe:
            raise SutSpecInvalid(
                f"files: {unsafe}", where=str(directory), hint="name small regular files, and no links"
            ) from None
        except OSError as error:
            raise SutSpecInvalid(f"files: {error.strerror}", where=str(directory)) from None
        packer.close()
        yield PackedFiles(descriptor, hasher.hexdigest())


def _all_files(spec: AgentSpec, directory: Path) -> Iterator[FoundFile]:
    """Yield every file in order of path bytes, open until the next one is asked for."""
    limits = LIMITS.case_tree
    count = total = 0
    # With a slash behind each directory, so that the order of the entries is that of the paths in them.
    for entry in sorted(_entry(name.rstrip("/"), directory) for name in spec.files):
        for found in _files_of(entry, directory):
            count, total = count + 1, total + found.size
            if count > limits.files or total > limits.total_bytes:
                raise UnsafeTree(
                    found.path, f"is beyond {limits.files} files or {limits.total_bytes} bytes in all"
                )
            yield found


def _entry(name: str, directory: Path) -> str:
    path = directory / name
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise UnsafeTree(name, f"cannot be examined: {error.strerror}") from None
    if os.path.realpath(path) != os.path.join(os.path.realpath(directory), name):
        raise UnsafeTree(name, "goes through a symbolic link")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UnsafeTree(name, "is neither a regular file nor a directory")
    return f"{name}/" if stat.S_ISDIR(mode) else name


def _files_of(entry: str, directory: Path) -> Iterator[FoundFile]:
    if entry.endswith("/"):
        for found in walk_files(directory / entry.rstrip("/"), LIMITS.case_tree):
            yield found._replace(path=entry + found.path)
        return
    folder, _, name = entry.rpartition("/")
    with opened_directory(directory / folder) as parent, open_plain_file(parent, name) as descriptor:
        status = os.fstat(descriptor)
        if status.st_size > LIMITS.case_tree.file_bytes:
            raise UnsafeTree(entry, f"is larger than {LIMITS.case_tree.file_bytes} bytes")
        yield FoundFile(entry, bool(status.st_mode & 0o111), status.st_size, descriptor)


def _pack(found: FoundFile, packer: Packer, hasher: TreeHasher, made: set[str]) -> None:
    parts = found.path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in made:
            made.add(folder)
            packer.directory(folder)
    hasher.begin(found.path, found.size, executable=found.executable)

    def hashed() -> Iterator[bytes]:
        for chunk in found.chunks():
            hasher.content(chunk)
            yield chunk

    packer.file(found.path, found.size, hashed(), executable=found.executable)


def handed_over_files(spec: AgentSpec, home: str) -> Mapping[str, bytes]:
    """Read the files of `[home]` that the user hands over. Their content is to be redacted everywhere.

    A link is followed: it is the user's own file. Raises SutSpecInvalid if one is not a small regular file.
    """
    contents = {}
    for name, file in spec.home.items():
        if file.source is None:
            continue
        path = os.path.realpath(
            os.path.join(home, file.source[2:]) if file.source.startswith("~/") else file.source
        )
        try:
            content = read_whole_file(path, _HOME_FILE_BYTES)
        except UnsafeTree as unsafe:
            raise SutSpecInvalid(
                f"home: {file.source} {unsafe.problem}", hint="hand over a small file"
            ) from None
        except OSError as error:
            raise SutSpecInvalid(f"home: cannot read {file.source}: {error.strerror}") from None
        if content is None:
            raise SutSpecInvalid(f"home: {file.source} is not there", hint="log in first, or leave it out")
        contents[name] = content
    return contents


def program_digest(path: str) -> str:
    """Hash the file that is executed. Raises SutSpecInvalid if it cannot be read."""
    hasher = blake3()
    try:
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                hasher.update(chunk)
    except OSError as error:
        raise SutSpecInvalid(f"cannot read {path}: {error.strerror}", hint="make it readable") from None
    return hasher.hexdigest()
