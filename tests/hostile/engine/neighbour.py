"""A process of the same user, beside the harness: what an attacker can do to it, it can do to the harness.

It stands in for the harness where the attack would end the test itself, and it is its own witness: it says
what its memory holds, and the kernel says whether it lives, who traces it and what its limits are.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNTOUCHED = b"untouched"
_ANYBODY = ctypes.c_ulong(-1)
_PR_SET_PTRACER = 0x59616D61
_PROGRAM = """\
import ctypes, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
memory = ctypes.create_string_buffer(b"untouched", 16)
print(ctypes.addressof(memory), flush=True)
for line in sys.stdin:
    print(memory.value.decode(), flush=True)
"""


class Neighbour:
    """The process, and what can be seen of it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._ask, self._hear = process.stdin, process.stdout
        self.pid = process.pid
        self.address = int(self._hear.readline())

    @property
    def memory(self) -> bytes:
        """What it says that its memory holds; nothing if it is dead."""
        try:
            self._ask.write("\n")
            self._ask.flush()
        except BrokenPipeError:
            return b""
        return self._hear.readline().strip().encode()

    @property
    def lives(self) -> bool:
        """Whether it is still there."""
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """The letter by which the kernel calls its state."""
        return Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


@contextmanager
def neighbour(secret: str = "") -> Iterator[Neighbour]:
    """Start a process that carries a secret in its environment and in its arguments, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _PROGRAM, f"--password={secret}"],
        env={**os.environ, "SERVICE_PASSWORD": secret},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Neighbour(process)
    finally:
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


@contextmanager
def our_memory(content: bytes = UNTOUCHED) -> Iterator["ctypes.Array[ctypes.c_char]"]:
    """Hold a value in the memory of the harness, which no rule of the machine protects beyond its user."""
    memory = ctypes.create_string_buffer(content, 64)
    # Yama would allow only a parent to look; what is tested is our own wall, not the machine's.
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    try:
        yield memory
    finally:
        prctl(_PR_SET_PTRACER, 0, 0, 0, 0)
