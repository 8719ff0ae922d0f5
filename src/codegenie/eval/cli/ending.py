"""A command that holds a directory of its own ends in order when it is told to end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from codegenie.eval.bundles import opened_log

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal ended the command, as Ctrl-C does: by the way of every `finally`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def log_until_signal(path: Path) -> Iterator[Path]:
    """Give the directory of a log or of an unpacked bundle, which goes also when the command is ended."""
    # Who ignores a signal, as nohup does, wants it ignored.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        with opened_log(path) as directory:
            yield directory
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _end(number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not stop the removal of what the first one left.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Ended(number)
