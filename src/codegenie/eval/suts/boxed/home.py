"""The private home of an agent, by descriptor: written before the agent starts, read when it is dead."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from codegenie.eval.boxes.places import USER
from codegenie.eval.errors import BoxFailed
from codegenie.eval.limits import MIB

_AGENT_FILE_BYTES = 16 * MIB
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def write_home(home: int, files: Mapping[str, bytes]) -> None:
    """Write files that only the agent can read. Raises BoxFailed if that fails."""
    try:
        for path, content in files.items():
            _write(home, path, content)
    except OSError as error:
        raise BoxFailed(f"cannot write the home of an agent: {error.strerror}") from None


def _write(home: int, path: str, content: bytes) -> None:
    *folders, name = path.split("/")
    folder = os.dup(home)
    try:
        for each in folders:
            with suppress(FileExistsError):
                os.mkdir(each, 0o700, dir_fd=folder)
                _hand_over(os.open(each, _FOLDER, dir_fd=folder))
            inner = os.open(each, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
        with open(descriptor, "wb", buffering=0, closefd=False) as file:
            file.write(content)
        _hand_over(descriptor)
    finally:
        os.close(folder)


def _hand_over(descriptor: int) -> None:
    """Make the agent the owner, and close the descriptor. Only root works for another user."""
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, USER, USER)
    finally:
        os.close(descriptor)


def read_home_file(home: int, path: str) -> bytes | None:
    """Return a file that the agent left in its home; None if there is no regular file of a usual size."""
    *folders, name = path.split("/")
    opened = [os.dup(home)]
    try:
        for each in folders:
            opened.append(os.open(each, _FOLDER, dir_fd=opened[-1]))
        opened.append(os.open(name, _READ, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_size > _AGENT_FILE_BYTES:
            return None
        with open(opened[-1], "rb", buffering=0, closefd=False) as file:
            return file.read(_AGENT_FILE_BYTES)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
