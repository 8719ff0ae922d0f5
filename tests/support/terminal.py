"""Watches a real terminal: a text that would steer one, what steers one, and a command that writes to one."""

import os
import pty
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration.command import PROGRAM

HOSTILE = (
    "\x1b[2J\x1b[1;1HPASS\x1b[0m \x1b]8;;http://evil.invalid\x07link\x1b]8;;\x07 \x1b]52;c;aGk=\x07"
    " \x1b]0;title\x07 \x9b31m \x90q\x9c \u202egnp\u2066x\u2069 \u200b\u2028\u2029 \r\n\r\nPASSED 100 %"
    " \x08\x08 \x7f \x00 \ufeff \U000e0031"
)
OWN_SEQUENCE = "\r\x1b[2K"
# What could steer a terminal or hide text: C0, DEL, C1, bidirectional, zero width, separators, tags.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


def on_a_terminal(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run the command with a terminal for all three streams; return exit code and all that it wrote."""
    ours, theirs = pty.openpty()
    (directory / "tmp").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory / "tmp"), "COLUMNS": "200", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = bytearray()
    try:
        while chunk := os.read(ours, 65_536):
            written += chunk
    except OSError:
        pass  # Linux tells the end of a terminal by EIO
    os.close(ours)
    # What the terminal itself adds to a line feed is not ours.
    return process.wait(timeout=120), written.decode().replace("\r\n", "\n")
