"""A command that holds a directory of its own ends in order when it is told to end."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from codegenie.eval.bench.loading import BenchRoot
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.log.bundle import opened_log
from codegenie.eval.runner import resolved
from codegenie.eval.sanitising import printable

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal ended the command, as Ctrl-C does: by the way of every `finally`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ended_in_order(signals: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Leave by the way of every `finally` when one of these signals comes."""
    # Who ignores a signal, as nohup does, wants it ignored.
    before = {number: signal.getsignal(number) for number in signals}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


@contextmanager
def log_until_signal(path: Path) -> Iterator[Path]:
    """Give the directory of a log or of an unpacked bundle, which goes also when the command is ended."""
    with ended_in_order(), opened_log(path) as directory:
        # Resolved once: a link that is turned meanwhile must not change the log that is read.
        yield resolved(directory)


@contextmanager
def benches_until_signal(bench_root: BenchRoot) -> Iterator[Benches]:
    """Give the benches of the user and the shipped ones; what is unpacked for it goes in any case."""
    # Not SIGHUP: a run would be ended by it in the middle of its event loop.
    with ended_in_order((signal.SIGTERM,)), Benches(bench_root, _note) as benches:
        yield benches


def _note(text: str) -> None:
    click.echo(f"codegenie: {printable(text)}", err=True)


def _end(number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not stop the removal of what the first one left.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Ended(number)
